"""Ratings in a table of SQLite or DuckDB, read without changing it and without running anything of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from victims.common.errors import InputError
from victims.common.files import existing_file
from victims.data.encoded_rows import MAX_RATINGS, Chunk
from victims.data.streams import MIB
from victims.data.tables import shown
from victims.data.wanted import Wanted

ROWS = 1 << 16
BYTES_OF_A_ROW = 4  # at least, on a page of SQLite
NO_CELLS = ("[", "STRUCT", "MAP", "UNION", "BOOLEAN", "BLOB")  # in the names of DuckDB's types
LONGEST_VALUE = MIB  # bytes
DUCKDB_MEMORY = "2GB"


def sqlite_chunks(path: Path, wanted: Wanted, table: str | None) -> Iterator[Chunk]:
    """The rating rows of a SQLite table.

    Views, virtual tables and triggers are not read: they run what the file says.

    Parameters
    ----------
    path : Path
    wanted : Wanted
    table : str or None
        None where there is one only.

    Raises
    ------
    InputError
        If the file is damaged, has no such table, lacks a column or holds what is no rating.
    """
    existing_file(path)
    _refuse_unfinished(path)
    with _refusals(path), closing(_opened(path)) as connection:
        found = connection.execute(  # a virtual table has no page of its own
            "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 "
            "AND name NOT LIKE 'sqlite_%' ORDER BY name LIMIT 1000"
        )
        name = _chosen(path, [_name(row[0]) for row in found], table)
        header = [_name(row[1]) for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")]
        columns = {what: header[at] for what, at in wanted.columns(path, header).items()}
        rows = connection.execute(f"SELECT {', '.join(map(_quoted, columns.values()))} FROM {_quoted(name)}")
        most = path.stat().st_size // BYTES_OF_A_ROW  # pages that are shared would go on for ever
        yield from _chunks(path, wanted, list(columns), lambda: rows.fetchmany(ROWS), most)


def duckdb_chunks(path: Path, wanted: Wanted, table: str | None) -> Iterator[Chunk]:
    """The rating rows of a DuckDB table.

    Parameters
    ----------
    path : Path
    wanted : Wanted
    table : str or None
        None where there is one only.

    Raises
    ------
    InputError
        If DuckDB is not installed, or as ``sqlite_chunks``.
    """
    existing_file(path)
    try:
        import duckdb
    except ModuleNotFoundError:
        raise InputError(
            f"{path} needs DuckDB; install factorleak[duckdb], or write the table as Parquet"
        ) from None
    locked: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": DUCKDB_MEMORY,
        "threads": "1",
    }
    try:
        with duckdb.connect(str(path), read_only=True, config=locked) as connection:
            tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal")
            name = _chosen(path, [str(row[0]) for row in tables.fetchmany(1000)], table)
            described = connection.execute(f"DESCRIBE {_quoted(name)}").fetchall()
            header, types = ([str(row[at]) for row in described] for at in (0, 1))
            found = wanted.columns(path, header)
            for what, at in found.items():
                if any(word in types[at] for word in NO_CELLS):
                    raise InputError(f"{path}: {what} must hold numbers or text, it holds {shown(types[at])}")
            texts = ", ".join(f"CAST({_quoted(header[at])} AS VARCHAR)" for at in found.values())
            connection.execute(f"SELECT {texts} FROM {_quoted(name)}")
            yield from _chunks(path, wanted, list(found), lambda: connection.fetchmany(ROWS), 2 * MAX_RATINGS)
    except (duckdb.Error, RuntimeError) as error:
        raise InputError(f"{path} cannot be read: {shown(str(error))}; check or export it again") from None


def _refuse_unfinished(path: Path) -> None:
    """Refuse a database that somebody is writing: what counts is then in the file beside it."""
    for ending in ("-wal", "-journal"):
        beside = path.with_name(path.name + ending)
        if beside.is_file() and beside.stat().st_size:
            raise InputError(
                f"{path} must not be in use: {beside.name} beside it holds changes; close the program that "
                "writes it, or export the table"
            )


def _opened(path: Path) -> sqlite3.Connection:
    place = quote(str(path.resolve()))
    connection = sqlite3.connect(f"file:{place}?mode=ro&immutable=1", uri=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for rule in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {rule}")
    connection.text_factory = bytes
    return connection


def _chosen(path: Path, tables: Sequence[str], wanted: str | None) -> str:
    """The table that is named, or the only one."""
    heads = ", ".join(map(shown, tables[:10])) or "none"
    if wanted is not None and wanted not in tables:
        raise InputError(f"{path} must hold a table {shown(wanted)}, got {heads}; views are not read")
    if wanted is None and len(tables) != 1:
        raise InputError(f"{path} must hold one table, got {heads}; give its name as table=NAME")
    return wanted or tables[0]


def _chunks(path: Path, wanted: Wanted, names: Sequence[str], fetch: Any, most_rows: int) -> Iterator[Chunk]:
    start = 0
    while rows := fetch():
        columns = {
            name: pa.array(
                [_cell(path, start + at, name, row[place]) for at, row in enumerate(rows)], pa.large_string()
            )
            for place, name in enumerate(names)
        }
        before = start
        yield wanted.chunk(columns, path, lambda row, before=before: f"row {before + row}")
        start += len(rows)
        if start > most_rows:
            raise InputError(
                f"{path} must hold at most {most_rows:,} rows by its size; check it, or subsample it"
            )


def _cell(path: Path, row: int, name: str, value: object) -> str | None:
    """A value as text; bytes are text in SQLite."""
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InputError(f"{path} row {row}: {name} must be UTF-8 text, got {shown(value)}") from None
    if isinstance(value, list | dict | tuple | bool):
        raise InputError(f"{path} row {row}: {name} must be a number or a text, got {shown(value)}")
    return str(value)


def _name(value: bytes) -> str:
    """A name of the schema; what is no text has another one, which is then not found."""
    return value.decode("utf-8", "replace")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        raise InputError(f"{path} cannot be read: {shown(str(error))}; check or export it again") from None
