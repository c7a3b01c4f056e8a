"""What made a folder of results: ``run.json`` beside the rows, the same for every command.

The rows stay a plain list, which every tool reads; this is their envelope.
``docs/reference/run.schema.json`` is its JSON Schema.
"""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from audit.plugins import own_code
from victims.common.errors import printable
from victims.common.files import json_of, write_text

RUN_FILE = "run.json"
PACKAGES = ("numpy", "scipy", "jax", "pandas", "pyarrow", "phe")
MOST_BYTES = 1 << 20
Word = Annotated[str, Field(max_length=2_000)]


class RunRecord(BaseModel):
    """What made the rows beside it.

    Attributes
    ----------
    format, version
        Of this file.
    run : str
        A new one for every run.
    command : list of str
        As it was given; repeating it gives the same rows.
    tool, code : str
        Version of factorleak, and a hash of its source.
    python, platform : str
    packages : dict
        Name -> version.
    started, ended : str
        ISO 8601, UTC.
    seconds : float
    rows : int
        How many there are.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["factorleak-run"] = "factorleak-run"
    version: Literal[1] = 1
    run: Word
    command: Annotated[list[Word], Field(max_length=10_000)]
    tool: Word
    code: Word
    python: Word
    platform: Word
    packages: dict[Word, Word]
    started: Word
    ended: Word
    seconds: float
    rows: Annotated[int, Field(ge=0)]


def write_run(directory: Path, command: Sequence[str], seconds: float, n_rows: int) -> None:
    """Write ``run.json``."""
    now = datetime.now(UTC)
    record = RunRecord(
        run=uuid4().hex,
        command=["factorleak", *map(printable, command)],
        tool=version("factorleak"),
        code=own_code(),
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        packages={name: found for name in PACKAGES if (found := _version(name))},
        started=(now - timedelta(seconds=seconds)).isoformat(timespec="seconds"),
        ended=now.isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        rows=n_rows,
    )
    write_text(directory / RUN_FILE, json.dumps(record.model_dump(), indent=1) + "\n")


def facts_of(path: Path) -> list[tuple[str, str]]:
    """Read a run's facts for people; nothing where there is no such file, or it is damaged."""
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return [("command", f"not recorded ({RUN_FILE} is not beside the results)")]
    try:
        found = RunRecord.model_validate(json_of(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, ValidationError):
        return [("command", f"not known ({RUN_FILE} is not as a command wrote it)")]
    packages = ", ".join(f"{name} {version}" for name, version in found.packages.items())
    facts: list[tuple[str, Any]] = [
        ("command", shlex.join(found.command)),
        ("run", found.run),
        ("version", found.code),
        ("Python", f"{found.python} on {found.platform}; {packages}"),
        ("started, ended", f"{found.started}, {found.ended}"),
        ("seconds in all", f"{found.seconds:.1f}"),
    ]
    return [(name, printable(value)) for name, value in facts]


@cache
def _version(name: str) -> str:
    """Of a package; empty where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
