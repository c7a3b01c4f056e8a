"""JSON Schemas of ``manifest.json``, for whoever writes the files without this program.

They are made from the models that the reader checks with. Some rules are beyond a schema, as the reader
knows them: keys that are misspelt, ascending levels, distinct rounds, sizes beside the rows of the tables.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

from pydantic import BaseModel

from victims.common.errors import InputError
from victims.transcript.client_rule import ClientRule
from victims.transcript.kinds import Kind
from victims.transcript.manifest import NOT_OF_VERSION_1, Manifest, Upload
from victims.transcript.manifest_2 import Manifest2, NamedParty

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MODELS: dict[int, type[BaseModel]] = {1: Manifest, 2: Manifest2}
PARTS: tuple[type[BaseModel], ...] = (ClientRule, Kind, NamedParty, Upload)


def schema_of(version: int) -> dict[str, Any]:
    """Make the JSON Schema of one version.

    Examples
    --------
    >>> schema_of(2)["properties"]["n_users"]["minimum"]
    1
    """
    if version not in MODELS:
        raise InputError(f"the version of a transcript must be 1 or 2, got {version}")
    found = _without_titles(MODELS[version].model_json_schema())
    for name in NOT_OF_VERSION_1 if version == 1 else ():
        del found["properties"][name]
    found["properties"]["version"] = {"const": version, "type": "integer"}
    if version == 1:
        found["properties"]["update"] = {"enum": ["semi-als", "sgd"], "type": "string"}
    used = json.dumps(found["properties"])
    found["$defs"] = {name: part for name, part in found["$defs"].items() if f"#/$defs/{name}" in used}
    for part in PARTS:
        if part.__name__ in found["$defs"]:
            _describe(found["$defs"][part.__name__], part)
    about = f"manifest.json of factorleak's transcript, version {version}"
    return {"$schema": DIALECT, "title": about, **{k: v for k, v in found.items() if k != "description"}}


def schema_text(version: int) -> str:
    """Write the JSON Schema of one version, as the handbook has it."""
    return json.dumps(schema_of(version), indent=2) + "\n"


def _without_titles(schema: Any) -> Any:
    """Names once: pydantic repeats each as a title."""
    if isinstance(schema, list):
        return [_without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _describe(schema: dict[str, Any], part: type[BaseModel]) -> None:
    """What the docstring's section of attributes says of each key."""
    text = inspect.cleandoc(part.__doc__ or "")
    schema["description"] = text.split("\n\n")[0].replace("\n", " ")
    for names, said in re.findall(r"^([\w, ]+) : .*\n((?:    .+\n?)+)", text, flags=re.MULTILINE):
        for name in names.split(", "):
            schema["properties"][name]["description"] = " ".join(said.split())
