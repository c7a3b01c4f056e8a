"""Ratings in a table of SQLite or DuckDB, read without changing it and without running anything of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pyarrow as pa

from victims.common.errors import InputError
from victims.common.given_files import existing_file
from victims.data.encoded_rows import MAX_RATINGS, Chunk
from victims.data.parquet import BYTES_OF_A_RATING, Choose
from victims.data.streams import MIB, check_ratio
from victims.data.tables import shown
from victims.data.wanted import Wanted

ROWS = 1 << 16
FETCHED = 256  # rows: of SQLite each may have ``LONGEST_VALUE`` bytes
MAX_CELL = 4096  # characters: several categories, or an identifier
MAX_CHUNK_BYTES = 64 * MIB
BYTES_OF_A_ROW = 4  # at least, on a page of SQLite
NO_CELLS = ("[", "STRUCT", "MAP", "UNION", "BOOLEAN", "BLOB")  # in the names of DuckDB's types
LONGEST_VALUE = MIB  # bytes
DUCKDB_MEMORY = "2GB"


class Cells(NamedTuple):
    """Some rows of a table: the number of the first, and the texts of each column that was chosen."""

    start: int
    columns: dict[str, pa.Array]


Reader = Callable[[Path, str | None, Choose], Iterator[Cells]]  # of a file, its table, and the columns chosen


def database_chunks(rows: Reader, path: Path, wanted: Wanted, table: str | None) -> Iterator[Chunk]:
    """Read the rating rows of a table."""
    found = rows(path, table, lambda header: wanted.columns(path, list(header)))
    return (_chunk(path, wanted, cells) for cells in found)


def _chunk(path: Path, wanted: Wanted, cells: Cells) -> Chunk:
    return wanted.chunk(cells.columns, path, lambda row: f"row {cells.start + row}")


def sqlite_rows(path: Path, table: str | None, choose: Choose) -> Iterator[Cells]:
    """Read columns of a SQLite table as text, some rows at a time.

    Views, virtual tables, generated columns and triggers are not read: they run what the file says.
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
        columns = {what: header[at] for what, at in choose(header).items()}
        rows = connection.execute(f"SELECT {', '.join(map(_quoted, columns.values()))} FROM {_quoted(name)}")
        most = path.stat().st_size // BYTES_OF_A_ROW  # pages that are shared would go on for ever
        yield from _gathered(path, list(columns), lambda: rows.fetchmany(FETCHED), most)


def duckdb_rows(path: Path, table: str | None, choose: Choose) -> Iterator[Cells]:
    """Read columns of a DuckDB table as text, some rows at a time."""
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
            tables = connection.execute(
                "SELECT table_name, estimated_size FROM duckdb_tables() WHERE NOT internal"
            )
            size = {str(row[0]): int(row[1] or 0) for row in tables.fetchmany(1000)}
            name = _chosen(path, list(size), table)
            _refuse_growing(path, size[name])
            described = connection.execute(f"DESCRIBE {_quoted(name)}").fetchall()
            header, types = ([str(row[at]) for row in described] for at in (0, 1))
            found = choose(header)
            stored = connection.execute(
                "SELECT DISTINCT column_name FROM pragma_storage_info(?)", [_quoted(name)]
            ).fetchall()
            for what, at in found.items():
                if stored and (header[at],) not in stored:
                    raise InputError(
                        f"{path}: column {shown(header[at])} is computed by what the file says, which is not "
                        f"run; store its values, or name another column as {what}=NAME"
                    )
                if any(word in types[at] for word in NO_CELLS):
                    raise InputError(f"{path}: {what} must hold numbers or text, it holds {shown(types[at])}")
            cut = MAX_CELL + 1  # characters: what is longer is refused below, and need not be handed over
            texts = ", ".join(f"left(CAST({_quoted(header[at])} AS VARCHAR), {cut})" for at in found.values())
            connection.execute(f"SELECT {texts} FROM {_quoted(name)}")
            yield from _gathered(path, list(found), lambda: connection.fetchmany(FETCHED), size[name])
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


def _refuse_growing(path: Path, n_rows: int) -> None:
    """Refuse a table whose run lengths stand for more rows than a file of its size plausibly holds."""
    if n_rows > MAX_RATINGS:
        raise InputError(f"{path} must hold at most {MAX_RATINGS:,} rows, got {n_rows:,}; subsample it")
    check_ratio(path, n_rows * BYTES_OF_A_RATING, path.stat().st_size)


def _gathered(path: Path, names: Sequence[str], fetch: Callable[[], list], most_rows: int) -> Iterator[Cells]:
    """Rows as they are fetched, a few at a time, put together to ``ROWS`` or ``MAX_CHUNK_BYTES``."""
    start, waiting, size = 0, 0, 0
    cells: dict[str, list[str | None]] = {name: [] for name in names}
    while rows := fetch():
        for place, name in enumerate(names):
            texts = [_cell(path, start + waiting + at, name, row[place]) for at, row in enumerate(rows)]
            size += sum(map(len, filter(None, texts)))
            cells[name] += texts
        waiting += len(rows)
        if start + waiting > most_rows:
            raise InputError(
                f"{path} must hold at most {most_rows:,} rows by its size; check it, or subsample it"
            )
        if waiting >= ROWS or size > MAX_CHUNK_BYTES:
            yield Cells(start, {name: pa.array(texts, pa.large_string()) for name, texts in cells.items()})
            start, waiting, size = start + waiting, 0, 0
            cells = {name: [] for name in names}
    if waiting:
        yield Cells(start, {name: pa.array(texts, pa.large_string()) for name, texts in cells.items()})


def _cell(path: Path, row: int, name: str, value: object) -> str | None:
    """A value as text; bytes are text in SQLite."""
    if value is None:
        return None
    if isinstance(value, bytes | str) and len(value) > MAX_CELL:
        raise InputError(
            f"{path} row {row}: {name} must have at most {MAX_CELL:,} characters, got {shown(value[:80])}; "
            "number them"
        )
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
