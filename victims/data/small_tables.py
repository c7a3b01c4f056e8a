"""Small tables beside the ratings, whole and as text, from every format that ratings may have.

CSV and TSV, Parquet, JSON lines, SQLite and DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from victims.common.errors import InputError
from victims.data.databases import duckdb_rows, sqlite_rows
from victims.data.delimited import MAX_COLUMNS, MAX_TABLE_BYTES, MAX_TABLE_CELLS, read_text_table
from victims.data.json_lines import json_objects
from victims.data.parquet import parquet_columns
from victims.data.streams import MIB
from victims.data.tables import Table, shown
from victims.data.text_lines import TextFormat

SEVERAL = "|"  # between the categories of one cell, as MovieLens writes genres
DATABASES = {".sqlite": sqlite_rows, ".sqlite3": sqlite_rows, ".db": sqlite_rows} | dict.fromkeys(
    (".duckdb", ".ddb"), duckdb_rows
)
JSON = (".json", ".jsonl", ".ndjson")
Records = Iterable[dict[str, pa.Array]]


def ending(path: Path) -> str:
    """Read off the ending that tells the format, without that of compression.

    Examples
    --------
    >>> ending(Path("users.CSV.gz"))
    '.csv'
    """
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix


def read_small_table(path: Path, table: str | None = None) -> Table:
    """Read all columns of a small table as text; what is missing is empty."""
    suffix = ending(path)
    if table is not None and suffix not in DATABASES:
        raise InputError(f"{path} is no database, so it has no table {shown(table)}; leave it out")
    if suffix in DATABASES:
        rows = DATABASES[suffix](path, table, lambda header: _every(path, header))
        return _whole(path, (cells.columns for cells in rows), lambda row: f"row {row}")
    if suffix == ".parquet":
        return _whole(
            path, parquet_columns(path, lambda header: _every(path, header)), lambda row: f"row {row}"
        )
    if suffix in JSON:
        return _objects(path)
    return read_text_table(path, TextFormat("\t" if suffix in (".tsv", ".inter") else ",", quoted=True))


def _every(path: Path, header: Iterable[str]) -> dict[str, int]:
    names = list(header)
    if len(names) > MAX_COLUMNS:
        raise InputError(
            f"{path} must have at most {MAX_COLUMNS:,} columns, got {len(names):,}; leave some out"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path} must name only one column {shown(twice)}; rename one")
    return {name: at for at, name in enumerate(names)}


def _whole(path: Path, parts: Records, locate: Callable[[int], str]) -> Table:
    """The parts of a table in one, within the limits of a small one."""
    frames, size, cells = [], 0, 0
    for columns in parts:
        frame = pd.DataFrame({name: _texts(column) for name, column in columns.items()}, dtype=object)
        frames.append(frame)
        cells += frame.size
        size += sum(column.nbytes for column in columns.values())
        _refuse_large(path, size, cells)
    if not frames:
        raise InputError(f"{path} must hold at least one row, got none")
    return Table(pd.concat(frames, ignore_index=True), path, locate)


def _refuse_large(path: Path, size: int, cells: int) -> None:
    if cells > MAX_TABLE_CELLS or size > MAX_TABLE_BYTES:
        raise InputError(
            f"{path} must have at most {MAX_TABLE_CELLS:,} fields and {MAX_TABLE_BYTES // MIB} MiB, for it "
            "lies beside the ratings; leave columns or rows out"
        )


def _texts(column: pa.Array) -> list[str]:
    """Cells as text: whole numbers without a point, nothing where there is none."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        return [_written(value) for value in column.to_pylist()]
    return pc.fill_null(column.cast(pa.large_string()), "").to_pylist()


def _written(value: object) -> str:
    if value is None or value != value:  # noqa: PLR0124 (no number)
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _objects(path: Path) -> Table:
    """JSON lines: a column for each key of any object; a list of texts or numbers is several categories."""
    columns: dict[str, list[str]] = {}
    lines: list[int] = []
    size = 0
    for line_number, row in json_objects(path, MAX_TABLE_BYTES):
        for key in row:
            if key not in columns:
                columns[key] = [""] * len(lines)
        lines.append(line_number)
        for key, cells in columns.items():
            cells.append(_of_json(path, line_number, key, row.get(key)))
            size += len(cells[-1])
        _refuse_large(path, size, len(lines) * len(columns))
    _every(path, columns)
    return Table(pd.DataFrame(columns, dtype=object), path, lambda row: f"line {lines[row]}")


def _of_json(path: Path, line_number: int, key: str, value: object) -> str:
    if isinstance(value, list) and not any(isinstance(one, list | dict) for one in value):
        return SEVERAL.join(map(_written, value))
    if isinstance(value, list | dict):
        raise InputError(
            f"{path} line {line_number}: {key} must be a number, a text or a list, got {shown(value)}"
        )
    return _written(value)
