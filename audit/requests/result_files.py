"""Result rows that lie on disk, checked as what strangers wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audit.experiments.results import COLUMNS, Row
from victims.common.errors import InputError, printable
from victims.common.json_text import json_of

RESULTS = "results.json"
MOST_BYTES = 256 << 20
MOST_ROWS = 200_000
WORDS = frozenset(
    {
        "victim", "update", "weighting", "data", "defense", "adversary", "attack", "metric", "baseline_name",
        "status", "reason", "verdict",
    }
)  # fmt: skip
LONGEST = 2_000  # characters of a text


def file_of(results: Path) -> Path:
    """The file of rows in a directory of results, or the file itself."""
    return results / RESULTS if results.is_dir() else results


def rows_of(path: Path) -> list[Row]:
    """Read the rows of a ``results.json``."""
    if not path.is_file():
        raise InputError(
            f"{path} is no file of results; give the directory that a command wrote, or its {RESULTS}"
        )
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(
            f"{path} must have at most {MOST_BYTES >> 20} MiB, got {size >> 20}; report a part of it"
        )
    try:
        found = json_of(path.read_text(encoding="utf-8"))
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path} must be JSON as a command wrote it: {error}") from error
    if not isinstance(found, list) or not found:
        raise InputError(f"{path} must be a list of one result row or more; did the command end?")
    if len(found) > MOST_ROWS:
        raise InputError(f"{path} must have at most {MOST_ROWS} rows, got {len(found)}; report a part of it")
    return [_checked(path, number, row) for number, row in enumerate(found)]


def _checked(path: Path, number: int, row: Any) -> Row:
    where = f"{path}, row {number}"
    if not isinstance(row, Mapping):
        raise InputError(f"{where} must be an object with the result columns, got {type(row).__name__}")
    if missing := [name for name in COLUMNS if name not in row]:
        raise InputError(f"{where} lacks the column {missing[0]}; was it written by another version?")
    return {name: _cell(where, name, row[name]) for name in COLUMNS}


def _cell(where: str, name: str, value: Any) -> Any:
    if name in WORDS:
        if value is None or isinstance(value, str):
            return value if value is None else printable(value[:LONGEST])
        raise InputError(f"{where}: {name} must be text or null, got {value!r:.60}")
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise InputError(f"{where}: {name} must be a finite number or null, got {value!r:.60}")
    return value
