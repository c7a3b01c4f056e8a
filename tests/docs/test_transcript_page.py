"""The handbook's specification of transcripts, held against what the reader takes and the writers write."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

from audit.scoring.truth import read_truth
from tests.oracles.simulator import Reference
from victims.common.errors import InputError
from victims.transcript.manifest import (
    NOT_OF_VERSION_1,
    ClientRule,
    Manifest,
    Manifest2,
    schema_of,
    schema_text,
)
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

DOCS = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (DOCS / "transcript.md").read_text()
TABLES = ("state.arrow", "messages.arrow", "deliveries.arrow", "NAME.truth.arrow")


def table(heading: str) -> list[list[str]]:
    """The cells of the tables below a heading, without their heads."""
    below = PAGE.split(f"{heading}\n", 1)[1]
    text = re.split(r"^#", below, flags=re.MULTILINE)[0]
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if "|" in line
    ]
    return [row for row in rows if row[0].startswith("`")]


def keys(heading: str) -> dict[str, list[str]]:
    return {name: row for row in table(heading) for name in re.findall(r"`([^`]+)`", row[0])}


def columns(name: str, version: int) -> dict[str, bool]:
    """Columns of a file that a version knows, and whether they are needed."""
    return {key: row[3] == "yes" for key, row in keys(f"## {name}").items() if str(version) in row[2]}


@pytest.fixture
def everything(tmp_path):
    """A recording of version 2 with every file and every column of rows in the clear."""
    rng = np.random.default_rng(0)
    with Recorder(tmp_path / "t", rating_levels=[1, 2, 3]) as recorder:
        recorder.broadcast(0, rng.normal(size=(4, 3)))
        recorder.broadcast(0, rng.normal(size=(4, 3)), to="anna")
        for client, to in (("anna", Recorder.NEIGHBOURS), ("ben", "anna"), (None, "anna")):
            rows, references = rng.normal(size=(2, 2, 3))
            recorder.upload(0, client, rows, [0, 2], to=to, references=references)
        recorder.edge("anna", "ben", 0.5)
        recorder.truth("anna", [0, 2], [1, 3])
        recorder.truth("ben", [0, 2], [2, 3])
    return tmp_path / "t"


def read(path: Path) -> pa.Table:
    with pa.ipc.open_file(path) as file:
        return file.read_all()


def write(path: Path, content: pa.Table) -> None:
    with pa.ipc.new_file(path, content.schema) as file:
        file.write_table(content)


def place(name: str, transcript: Path) -> Path:
    return transcript.with_name("t.truth.arrow") if name.startswith("NAME") else transcript / name


class TestColumns:
    @pytest.mark.parametrize("name", TABLES)
    def test_what_is_written_is_specified(self, everything, name):
        assert set(read(place(name, everything)).column_names) <= set(columns(name, 2))

    @pytest.mark.parametrize("name", TABLES)
    def test_needed_columns_are_needed(self, everything, name):
        path = place(name, everything)
        whole = read(path)
        for column, needed in columns(name, 2).items():
            if column not in whole.column_names:
                assert not needed
                continue
            write(path, whole.drop_columns([column]))
            if needed:
                with pytest.raises(InputError, match=column):
                    read_truth(path) if name.startswith("NAME") else open_transcript(everything)
            elif column != "holder":  # without it a row would be there twice
                open_transcript(everything)

    @pytest.mark.parametrize("name", TABLES[:2])
    def test_version_1_is_specified(self, tmp_path, name):
        path = Reference().write(tmp_path / "one")
        assert set(read(path / name).column_names) <= set(columns(name, 1))
        assert set(columns(name, 1)) < set(columns(name, 2))


class TestKeys:
    def test_of_both_versions(self):
        both = keys("### Both versions")
        one, two = keys("### Version 1 alone"), keys("### Version 2 alone")
        assert both.keys() | one.keys() == set(Manifest.model_fields) - set(NOT_OF_VERSION_1)
        names = {name for name in two if name in Manifest2.model_fields}
        assert both.keys() | names == set(Manifest2.model_fields)

    def test_of_the_rule(self):
        rows = keys("### Keys of `rule`")
        assert set(ClientRule.model_fields) == set(rows)

    def test_needed_keys_are_needed(self):
        required = {name for name, row in keys("### Both versions").items() if row[2] == "yes"}
        assert required == set(schema_of(2)["required"])
        in_1 = {name for name, row in keys("### Both versions").items() if row[2] != "no"}
        assert in_1 | {"update"} == set(schema_of(1)["required"])


class TestSchema:
    @pytest.mark.parametrize("version", [1, 2])
    def test_the_handbook_has_it(self, version):
        assert (DOCS / f"manifest-{version}.schema.json").read_text() == schema_text(version)
        jsonschema.Draft202012Validator.check_schema(schema_of(version))

    def test_recordings_of_the_tests_are_valid(self, everything, tmp_path, transcripts):
        other = Reference().write(tmp_path / "one")
        for path in (everything, other, *(found.path for found in transcripts.values())):
            content = json.loads((path / "manifest.json").read_text())
            jsonschema.validate(content, schema_of(content["version"]))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("n_users", 0),
            ("n_items", 2**31),
            ("factors", "3"),
            ("rounds", []),
            ("rating_levels", []),
            ("weighting", "all"),
            ("version", 3),
            ("rule", {"order": "sometimes"}),
            ("rule", {"local_steps": 0}),
            ("kinds", {"item": {"of": "user"}}),
            ("anonymous", 1),
            ("rounds", None),
        ],
    )
    def test_what_the_reader_refuses_is_invalid(self, everything, key, value):
        """Of the rules that a schema can say."""
        content = json.loads((everything / "manifest.json").read_text()) | {key: value}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(content, schema_of(2))
        (everything / "manifest.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=re.escape("manifest.json")):
            open_transcript(everything)
