"""The tidy result table, one row per cell and metric, and ``run.json`` beside it: what made the rows.

Failed and inapplicable cells are rows, too. ``docs/reference/run.schema.json`` is the JSON Schema of
``run.json``.
"""

from __future__ import annotations

import csv
import json
import math
import platform
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from audit.plugins import own_code
from victims.common.errors import InputError, printable
from victims.common.files import json_of, replacing, write_text

COLUMNS = (
    "victim", "update", "weighting", "data", "defense", "adversary", "attack", "rounds", "seed",
    "metric", "value", "ci_low", "ci_high", "baseline", "baseline_name", "ceiling", "advantage",
    "n_users", "n_abstained", "status", "reason", "seconds", "bytes",
    "advantage_low", "advantage_high", "p_value", "verdict", "ceiling_ml", "ceiling_map",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # with which spreadsheets let a formula begin
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
Row = dict[str, Any]


def make_row(**values: Any) -> Row:
    """Make a row with every column; what is not given is NaN, or empty for words."""
    unknown = set(values) - set(COLUMNS)
    if unknown:
        raise KeyError(f"no such result columns: {sorted(unknown)}")
    words = {"baseline_name", "reason", "verdict", "status", "defense"}
    return {name: values.get(name, "" if name in words else float("nan")) for name in COLUMNS}


def columns_of(rows: Sequence[Row]) -> list[str]:
    """List the columns of rows: those of the contract, then what a command has beside them."""
    return list(dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)]))


def write_results(rows: list[Row], directory: Path) -> None:
    """Write ``results.json``, ``results.csv`` and ``results.parquet``, each one whole or not at all.

    In the CSV a text that a spreadsheet would take for a formula stands behind an apostrophe; the other two
    hold it as it is.
    """
    columns = {name: [_known(row.get(name)) for row in rows] for name in columns_of(rows)}
    text = json.dumps([finite(row) for row in rows], indent=1) + "\n"
    write_text(directory / RESULTS, text)
    write_table(directory / "results.csv", [{**dict.fromkeys(columns), **row} for row in rows])
    with replacing(directory / "results.parquet") as partial:
        pq.write_table(pa.table({name: _column(cells) for name, cells in columns.items()}), partial)


def _known(cell: Any) -> Any:
    """A cell as Python has it; None where there is nothing."""
    plain = cell.item() if isinstance(cell, np.generic) else cell
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _column(cells: list[Any]) -> pa.Array:
    return pa.array(cells, None if any(cell is not None for cell in cells) else pa.float64())


def _no_formula(cells: Sequence[Any]) -> list[Any]:
    """Cells that a spreadsheet shows and does not evaluate."""
    return [f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for cell in cells]


def finite(row: Mapping[str, Any]) -> Row:
    """Replace NaN and infinities of a row by null, as JSON has none."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


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


def write_beside(cell: Path, columns: np.ndarray) -> None:
    """Keep numbers of clients beside the rows of a cell: a row for each column of them."""
    with replacing(_beside(cell)) as partial, partial.open("wb") as file:
        np.save(file, columns, allow_pickle=False)


def read_beside(cell: Path | None, n_columns: int) -> np.ndarray | None:
    """Read the numbers beside the rows of a cell."""
    if cell is None:
        return None
    try:
        table = np.load(_beside(cell), allow_pickle=False, mmap_mode="r")
    except (OSError, ValueError):
        return None
    if table.ndim != 2 or table.shape[0] != n_columns or table.dtype != np.float64:
        return None
    return np.array(table)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV; a text that a spreadsheet would take for a formula stands behind an apostrophe."""
    with replacing(path) as partial, partial.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns := list(dict.fromkeys(name for row in rows for name in row)))
        writer.writerows(_no_formula([_known(row.get(name)) for name in columns]) for row in rows)


def _beside(cell: Path) -> Path:
    return cell.with_suffix(".users.npy")


RUN_FILE = "run.json"
PACKAGES = ("numpy", "scipy", "jax", "pandas", "pyarrow", "phe")
RUN_BYTES = 1 << 20
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
    held : list of str
        Kinds of rows of the recording that no attack reads, and how much there is of each.
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
    held: Annotated[list[Word], Field(max_length=100)] = Field(default_factory=list)


def write_run(
    directory: Path, command: Sequence[str], seconds: float, n_rows: int, held: Sequence[str] = ()
) -> None:
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
        held=list(map(printable, held)),
    )
    content = record.model_dump(exclude=None if held else {"held"})
    write_text(directory / RUN_FILE, json.dumps(content, indent=1) + "\n")


def facts_of(path: Path) -> list[tuple[str, str]]:
    """Read a run's facts for people; nothing where there is no such file, or it is damaged."""
    if not path.is_file() or path.stat().st_size > RUN_BYTES:
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
    facts += [("held and read by no attack", "; ".join(found.held))] if found.held else []
    return [(name, printable(value)) for name, value in facts]


@cache
def _version(name: str) -> str:
    """Of a package; empty where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
