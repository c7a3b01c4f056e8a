"""Tables of others: delimited text, JSON lines, Parquet, SQLite and DuckDB, read in bounded memory.

pyarrow parses delimited text, DuckDB reads Parquet and its own files under a memory limit, Python's library
JSON and SQLite. Each reader gives the chosen columns as ``Rows``, some at a time; a file that breaks a limit
ends in an error with its name, the line, rule, value and remedy.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import math
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from victims.common.errors import InputError
from victims.common.files import existing_file, json_of

MIB = 1 << 20
MAX_BYTES = 2048 * MIB  # after decompression: three times the ratings of MovieLens 25M
MAX_JSON_BYTES = 16 * 1024 * MIB  # Yelp's reviews, with their texts, have 5 GiB
MAX_LINE = MIB
MAX_RATIO = 200  # decoded bytes for each packed one; rating files reach 5 to 20
FREE_BYTES = 64 * MIB  # decoded bytes that any archive may hold
MAX_COLUMNS = 1000
MAX_RATINGS = 1 << 27  # all of the Netflix Prize, five times MovieLens 25M
MAX_TABLE_BYTES = 64 * MIB  # of a table beside the ratings; the film list of MovieLens 32M has 4 MiB
MAX_TABLE_CELLS = 1 << 22
MAX_CELL = 4096  # characters in a database: several categories, or an identifier
MAX_IDENTIFIER = 256  # characters
MAX_TEXT_BYTES = 256 * MIB  # of distinct identifiers, in an array of one width
LONGEST_VALUE = 60  # characters of a value in a message
BLOCK = 256 << 10
PARSED = 8 * MIB  # bytes of text that are parsed at a time, which also bound a row
ROWS = 1 << 14
FETCHED = 4096  # rows of SQLite
BYTES_OF_A_ROW = 4  # at least, on a page of SQLite
BYTES_OF_A_RATING = 20  # two identifiers and a number, at least
DUCKDB_MEMORY = "1GB"
DATABASES = (".sqlite", ".sqlite3", ".db", ".duckdb", ".ddb")
JSON = (".json", ".jsonl", ".ndjson")
SEVERAL = "|"  # between the categories of one cell, as MovieLens writes genres
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "FLOAT", "DOUBLE")
NO_CELLS = ("[", "STRUCT", "MAP", "UNION", "BLOB", "VARIANT", "GEOMETRY")  # in the names of DuckDB's types
Choose = Callable[[Sequence[str]], Mapping[str, int]]  # a header -> what a column holds, and which it is


@dataclass(frozen=True)
class Layout:
    """Layout of a delimited text file."""

    separator: str = ","  # two characters are allowed (``::``), a blank means any white space
    columns: tuple[str, ...] | None = None  # names in order; None where the first line has them
    encoding: str = "utf-8"
    skip_lines: int = 0  # lines before the header or the first row
    quoted: bool = True  # fields may be quoted, as in CSV


class Rows(NamedTuple):
    """Some rows of a file."""

    path: Path
    columns: dict[str, pa.Array]  # text or numbers
    locate: Callable[[int], str]  # row -> where it stands in the file: ``line 5``

    def check(self, column: str, bad: np.ndarray, rule: str) -> None:
        """Refuse the first row where ``bad``, if there is one."""
        if bad.any():
            row = int(np.argmax(bad))
            value = self.columns[column][row].as_py()
            got = "nothing" if value is None else shown(value)
            raise InputError(f"{self.path} {self.locate(row)}: {column} must be {rule}, got {got}")


def shown(value: object) -> str:
    """Write a value of a file for a message: as Python writes it, and not longer than a line takes.

    Examples
    --------
    >>> shown("x" * 1000)[-12:]
    'xxxxxxxxx...'
    """
    text = repr(value[: 2 * LONGEST_VALUE] if isinstance(value, str | bytes) else value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


def ending(path: Path) -> str:
    """Read off the ending that tells the format, without that of compression.

    Examples
    --------
    >>> ending(Path("users.CSV.gz"))
    '.csv'
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix


def text_layout(path: Path) -> Layout:
    """Tell how a file that names its columns separates them."""
    return Layout("\t" if ending(path) in (".tsv", ".inter") else ",")


def read_rows(path: Path, choose: Choose, table: str | None = None) -> Iterator[Rows]:
    """Read the chosen columns of a table, whichever its format."""
    suffix = ending(path)
    if table is not None and suffix not in DATABASES:
        raise InputError(f"{path} is no database, so it has no table {shown(table)}; leave it out")
    if suffix in DATABASES:
        return (_duckdb_rows if suffix in (".duckdb", ".ddb") else _sqlite_rows)(path, choose, table)
    if suffix == ".parquet":
        return _duckdb_rows(path, choose, None)
    return _json_rows(path, choose) if suffix in JSON else text_rows(path, choose, text_layout(path))


def chosen(
    path: Path, header: Sequence[str], names: Mapping[str, Sequence[str]], optional: Collection[str] = ()
) -> dict[str, int]:
    """Find the index in the header of each column that is looked for under any of its spellings."""
    columns: dict[str, int] = {}
    for wanted, spellings in names.items():
        matches = [column for column, name in enumerate(header) if str(name).strip().lower() in spellings]
        if not matches and wanted in optional:
            continue
        if not matches:
            heads = ", ".join(map(shown, header[:10]))
            names_it = " or ".join(map(shown, spellings))
            remedy = f"give it as {wanted}=NAME"
            if len(header) == 1:
                remedy = "separate columns by commas (.csv) or tabs (.tsv)"
            raise InputError(
                f"{path} must name a column {wanted!r} in its header, as {names_it}, got {heads}; {remedy}"
            )
        if len(matches) > 1:
            heads = " and ".join(shown(header[column]) for column in matches[:2])
            raise InputError(f"{path} must name one column {wanted!r} in its header, got {heads}; rename one")
        columns[wanted] = matches[0]
    return columns


# delimited text


def _blocks(path: Path, most: int) -> Iterator[bytes]:
    """Whole lines of a regular file, decompressed if it is a gzip archive."""
    existing_file(path)
    total = lines = 0
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            while block := stream.read(BLOCK):
                rest = stream.readline(MAX_LINE)
                if len(rest) == MAX_LINE and not rest.endswith(b"\n"):
                    line = lines + line_ends(block) + 1
                    raise InputError(
                        f"{path} line {line}: must have at most {MAX_LINE // MIB} MiB; check what the file is"
                    )
                block += rest
                if not block.endswith((b"\n", b"\r")):
                    block += b"\n"  # the last line, without which pyarrow takes one line for none
                total += len(block)
                lines += line_ends(block)
                if total > most:
                    raise InputError(
                        f"{path} must hold at most {most // MIB:,} MiB"
                        f"{' after decompression' if packed else ''}; split or subsample it"
                    )
                _check_ratio(path, total, raw.tell())
                yield block
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}; check or download it again") from None


def _check_ratio(path: Path, decoded: int, packed: int) -> None:
    """Refuse a file that grows beyond measure when it is decoded."""
    if decoded > max(FREE_BYTES, MAX_RATIO * packed):
        raise InputError(
            f"{path} must not grow to more than {MAX_RATIO} times its packed size beyond "
            f"{FREE_BYTES // MIB} MiB, got {decoded / max(packed, 1):,.0f} times; check or unpack it"
        )


def line_ends(block: bytes) -> int:
    """Count line ends: LF or CR LF, else CR.

    Examples
    --------
    >>> line_ends(b"a\\r\\nb\\n"), line_ends(b"a\\rb\\r")
    (2, 2)
    """
    return block.count(b"\n") or block.count(b"\r")


def _text(path: Path, layout: Layout, most: int) -> Iterator[bytes]:
    """The lines of a file as UTF-8 with separators of one byte, from the first that is not skipped on."""
    lines, skip, double = 0, layout.skip_lines, len(layout.separator) > 1
    for block in _blocks(path, most):
        if lines == 0:
            if block.startswith(WIDE_MARKS):
                raise InputError(
                    f"{path} must be {layout.encoding} text, it is UTF-16 or UTF-32; save it again"
                )
            block = block.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901
        bad = block.find(b"\0")
        if bad < 0 and double:
            bad = block.find(b"\x01")
        try:
            text = block.decode(layout.encoding)
        except UnicodeDecodeError as error:
            bad = error.start if bad < 0 else min(bad, error.start)
        if bad >= 0:
            raise InputError(
                f"{path} line {lines + line_ends(block[:bad]) + 1}: must be {layout.encoding} text, "
                f"got byte 0x{block[bad]:02x}; convert the file"
            )
        lines += line_ends(block)
        while skip and block:
            block = block.partition(b"\n")[2]  # noqa: PLW2901
            skip -= 1
        if layout.separator == " ":
            block = b"".join(b" ".join(line.split()) + b"\n" for line in block.splitlines())  # noqa: PLW2901
        elif layout.encoding != "utf-8":
            block = text.encode()  # noqa: PLW2901
        yield block.replace(layout.separator.encode(), b"\x01") if double else block


class _Stream:
    """What pyarrow reads the text of a file from."""

    closed = False

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._waiting = blocks, b""

    def read(self, size: int) -> bytes:
        """As many bytes as are asked for, fewer at the end alone."""
        while len(self._waiting) < size and (block := next(self._blocks, b"")):
            self._waiting += block
        given, self._waiting = self._waiting[:size], self._waiting[size:]
        return given

    def close(self) -> None:
        """The file closes with its iterator."""


def text_rows(path: Path, choose: Choose, layout: Layout, most: int = MAX_BYTES) -> Iterator[Rows]:
    """Read columns of delimited text; at least once, though perhaps no row."""
    invalid: list[Any] = []

    def refuse(row: Any) -> str:
        if not row.text.strip():
            return "skip"
        invalid.append(row)
        return "error"

    records, columns = 0, dict[str, int]()
    header = list(layout.columns or ())
    try:
        batches = pa_csv.open_csv(
            pa.PythonFile(_Stream(_text(path, layout, most)), "r"),
            pa_csv.ReadOptions(use_threads=False, block_size=PARSED, autogenerate_column_names=True),
            pa_csv.ParseOptions(
                delimiter=layout.separator if len(layout.separator) == 1 else "\x01",
                quote_char='"' if layout.quoted else False,
                newlines_in_values=layout.quoted,
                invalid_row_handler=refuse,
            ),
            pa_csv.ConvertOptions(column_types={f"f{k}": pa.string() for k in range(MAX_COLUMNS)}),
        )
        for batch in batches:
            if not records:
                first = f"{path} line {layout.skip_lines + 1}"
                if batch.num_columns > MAX_COLUMNS:
                    raise InputError(
                        f"{first}: must have at most {MAX_COLUMNS:,} columns, got {batch.num_columns:,}; "
                        "keep user, item and rating"
                    )
                if batch.num_columns < len(header):
                    raise InputError(
                        f"{first}: must have {len(header)} fields ({', '.join(header)}), "
                        f"got {batch.num_columns}; get it again"
                    )
                if not header:
                    header = [column[0].as_py().strip() for column in batch.columns]
                    batch, records = batch.slice(1), 1  # noqa: PLW2901
                columns = dict(choose(header))
            cells = {name: batch.column(at) for name, at in columns.items()}
            yield Rows(path, cells, lambda row, before=records: _line_of(path, layout, before + row))
            records += batch.num_rows
    except pa.ArrowInvalid as error:
        raise InputError(_problem(path, layout, records, invalid, str(error))) from None


def _problem(path: Path, layout: Layout, records: int, invalid: list[Any], said: str) -> str:
    """What pyarrow refused, in words that name the line."""
    if invalid:
        row = invalid[0]
        line = _line_of(path, layout, row.number - 1)
        if layout.quoted and row.text.count('"') % 2:
            return f"{path} {line}: a quote must be closed; repair that line"
        return (
            f"{path} {line}: must have {row.expected_columns} fields as the first line, "
            f"got {row.actual_columns}; repair it"
        )
    if "Empty CSV" in said:
        return f"{path} must hold at least one line, it is empty; get it again"
    if "straddling" in said:
        line = _line_of(path, layout, records)
        return (
            f"{path}: a row or quoted field from {line} on is longer than {PARSED // MIB} MiB; "
            "close the quotes or leave long columns out"
        )
    return f"{path}: {said}; repair the file or its separator"


def _line_of(path: Path, layout: Layout, record: int) -> str:
    """The line where a record begins; records may hold line ends between quotes, and empty lines are none."""
    texts = (io.StringIO(block.decode(), newline="") for block in _text(path, layout, MAX_JSON_BYTES))
    reader = csv.reader(
        (line for text in texts for line in text),
        delimiter=layout.separator if len(layout.separator) == 1 else "\x01",
        quoting=csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE,
    )
    line = reader.line_num
    try:
        while True:
            line = reader.line_num
            row = next(reader)
            record -= len(row) > 1 or bool(row and row[0].strip())
            if record < 0:
                break
    except (csv.Error, StopIteration):  # a field longer than this module takes: the line where that happens
        pass
    return f"line {layout.skip_lines + line + 1}"


# JSON lines


def json_objects(path: Path, most: int = MAX_JSON_BYTES) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the objects of a file and the numbers of their lines; empty lines are passed over."""
    number = 0
    for block in _text(path, Layout(), most):
        for line in io.StringIO(block.decode()):
            number += 1
            if not line.strip():
                continue
            try:
                found = json_of(line)
            except RecursionError:
                raise InputError(f"{path} line {number}: must not be nested so deep; repair it") from None
            except ValueError as error:
                raise InputError(
                    f"{path} line {number}: must be one JSON object, got {shown(str(error))}; repair it"
                ) from None
            if not isinstance(found, dict):
                raise InputError(
                    f"{path} line {number}: must be one JSON object, got {shown(found)}; repair it"
                )
            yield number, found


def _json_rows(path: Path, choose: Choose) -> Iterator[Rows]:
    keys: dict[str, str] = {}
    cells: dict[str, list[str | None]] = {}
    lines: list[int] = []

    def rows() -> Rows:
        columns = {name: pa.array(values, pa.large_string()) for name, values in cells.items()}
        return Rows(path, columns, lambda row, lines=lines: f"line {lines[row]}")

    for line, found in json_objects(path):
        if not keys:
            header = list(found)
            keys = {name: header[at] for name, at in choose(header).items()}
            cells = {name: [] for name in keys}
        for name, key in keys.items():
            value = found.get(key)
            if isinstance(value, list | dict | bool) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise InputError(
                    f"{path} line {line}: {key} must be a finite number or a text, got {shown(value)}"
                )
            cells[name].append(None if value is None else str(value))
        lines.append(line)
        if len(lines) == ROWS:
            yield rows()
            cells, lines = {name: [] for name in keys}, []
    if lines:
        yield rows()


# databases and Parquet


def _sqlite_rows(path: Path, choose: Choose, table: str | None) -> Iterator[Rows]:
    """Columns of a SQLite table as text.

    Views, virtual tables, generated columns and triggers are not read: they run what the file says.
    """
    existing_file(path)
    for suffix in ("-wal", "-journal"):  # of a database that somebody is writing
        unfinished = path.with_name(path.name + suffix)
        if unfinished.is_file() and unfinished.stat().st_size:
            raise InputError(
                f"{path} must not be in use: {unfinished.name} beside it holds changes; "
                "close the program that writes it, or export the table"
            )
    try:
        with closing(_opened(path)) as connection:
            found = connection.execute(  # a virtual table has no page of its own
                "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 "
                "AND name NOT LIKE 'sqlite_%' ORDER BY name LIMIT 1000"
            )
            name = _only(path, [row[0].decode("utf-8", "replace") for row in found], table)
            described = connection.execute(f"PRAGMA table_info({_quoted(name)})")
            header = [row[1].decode("utf-8", "replace") for row in described]
            columns = {what: header[at] for what, at in choose(header).items()}
            cut = "iif(length({0}) > {1}, substr({0}, 1, {1} + 1), {0})"  # what is longer is refused below
            cells = ", ".join(cut.format(_quoted(column), MAX_CELL) for column in columns.values())
            rows = connection.execute(f"SELECT {cells} FROM {_quoted(name)}")
            most = path.stat().st_size // BYTES_OF_A_ROW  # pages that are shared would go on for ever
            start = 0
            while part := rows.fetchmany(FETCHED):
                texts = [_cells(path, start + at, columns, row) for at, row in enumerate(part)]
                arrays = (pa.array(column, pa.large_string()) for column in zip(*texts, strict=True))
                yield Rows(
                    path,
                    dict(zip(columns, arrays, strict=True)),
                    lambda row, start=start: f"row {start + row}",
                )
                start += len(part)
                if start > most:
                    raise InputError(
                        f"{path} must hold at most {most:,} rows by its size; check it, or subsample it"
                    )
    except (sqlite3.Error, OverflowError) as error:
        raise InputError(f"{path} cannot be read: {shown(str(error))}; check or export it again") from None


def _opened(path: Path) -> sqlite3.Connection:
    place = quote(str(path.resolve()))
    connection = sqlite3.connect(f"file:{place}?mode=ro&immutable=1", uri=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MIB)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for rule in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {rule}")
    connection.text_factory = bytes
    return connection


def _cells(path: Path, row: int, names: Iterable[str], values: Sequence[Any]) -> list[str | None]:
    """Values of SQLite as text."""
    texts: list[str | None] = []
    for name, value in zip(names, values, strict=True):
        if isinstance(value, bytes):
            if len(value) > MAX_CELL:
                raise InputError(
                    f"{path} row {row}: {name} must have at most {MAX_CELL:,} characters, "
                    f"got {shown(value[:80])}; number them"
                )
            try:
                texts.append(value.decode())
            except UnicodeDecodeError:
                raise InputError(f"{path} row {row}: {name} must be UTF-8 text, got {shown(value)}") from None
        else:
            texts.append(None if value is None else str(value))
    return texts


def _duckdb_rows(path: Path, choose: Choose, table: str | None) -> Iterator[Rows]:
    """Columns of a DuckDB table or a Parquet file as text or numbers, within DuckDB's memory limit."""
    existing_file(path)
    import duckdb

    is_parquet = ending(path) == ".parquet"
    locked: dict[str, Any] = {
        "enable_external_access": str(is_parquet).lower(),  # to read the file itself
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": DUCKDB_MEMORY,
        "threads": "1",
    }
    try:
        place = ":memory:" if is_parquet else str(path)
        with duckdb.connect(place, read_only=not is_parquet, config=locked) as connection:
            if is_parquet:
                file = _literal(glob.escape(str(path.resolve())))
                relation = f"read_parquet({file}, hive_partitioning = false)"
                size = connection.execute(
                    f"SELECT sum(num_rows) FROM parquet_file_metadata({file})"
                ).fetchone()
                n_rows, stored = int(size[0] or 0) if size else 0, []
            else:
                tables = connection.execute(
                    "SELECT table_name, estimated_size FROM duckdb_tables() WHERE NOT internal"
                )
                sizes = {str(row[0]): int(row[1] or 0) for row in tables.fetchmany(1000)}
                name = _only(path, list(sizes), table)
                relation, n_rows = _quoted(name), sizes[name]
            if not 0 <= n_rows <= MAX_RATINGS:
                raise InputError(
                    f"{path} must hold at most {MAX_RATINGS:,} rows, got {n_rows:,}; subsample it"
                )
            _check_ratio(path, n_rows * BYTES_OF_A_RATING, path.stat().st_size)  # run lengths
            described = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
            columns = choose([str(row[0]) for row in described])
            if not is_parquet:
                stored = connection.execute(
                    "SELECT DISTINCT column_name FROM pragma_storage_info(?)", [relation]
                ).fetchall()
            texts = ", ".join(
                f"{_as_cell(path, what, described[at], stored)} AS {_quoted(what)}"
                for what, at in columns.items()
            )
            start = 0
            for batch in connection.sql(f"SELECT {texts} FROM {relation}").to_arrow_reader(ROWS):
                cells = dict(zip(columns, batch.columns, strict=True))
                rows = Rows(path, cells, lambda row, start=start: f"row {start + row}")
                for what, column in cells.items():
                    if pa.types.is_string(column.type):
                        long = pc.greater(pc.utf8_length(column), MAX_CELL).fill_null(False)
                        rows.check(what, np.asarray(long), f"at most {MAX_CELL:,} characters long")
                yield rows
                start += batch.num_rows
                if start > n_rows:
                    raise InputError(
                        f"{path} must hold the {n_rows:,} rows that it declares; export it again"
                    )
    except (duckdb.Error, RuntimeError) as error:
        kind = " as Parquet" if is_parquet else ""
        words = str(error).partition("\n")[0].replace(str(path.resolve()), path.name)
        raise InputError(f"{path} cannot be read{kind}: {words:.300}; check or export it again") from None


def _as_cell(path: Path, what: str, described: Sequence[Any], stored: list[Any]) -> str:
    """A column in SQL, numbers as they are and all else as text."""
    name, kind = str(described[0]), str(described[1])
    if stored and (name,) not in stored:
        raise InputError(
            f"{path}: column {shown(name)} is computed by what the file says, which is not "
            f"run; store its values, or name another column as {what}=NAME"
        )
    if any(word in kind for word in NO_CELLS):
        raise InputError(
            f"{path}: column {shown(name)} must hold numbers or text, it holds {shown(kind)}; "
            "convert it, or leave it out"
        )
    if kind.startswith("DECIMAL"):
        return f"CAST({_quoted(name)} AS DOUBLE)"
    # what is longer is refused below, and need not be handed over
    return _quoted(name) if kind in NUMBERS else f"left(CAST({_quoted(name)} AS VARCHAR), {MAX_CELL + 1})"


def _only(path: Path, tables: Sequence[str], wanted: str | None) -> str:
    """The table that is named, or the only one."""
    heads = ", ".join(map(shown, tables[:10])) or "none"
    if wanted is not None and wanted not in tables:
        raise InputError(f"{path} must hold a table {shown(wanted)}, got {heads}; views are not read")
    if wanted is None and len(tables) != 1:
        raise InputError(f"{path} must hold one table, got {heads}; give its name as table=NAME")
    return wanted or tables[0]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# small tables, beside the ratings


@dataclass(frozen=True)
class Table:
    """All rows of a small file, all cells as text, and where in the file they stand."""

    frame: pd.DataFrame
    path: Path
    locate: Callable[[int], str]  # row -> ``line 5``

    def text(self, column: str) -> list[str]:
        """A column."""
        return self.frame[column].tolist()

    def require(self, *columns: str) -> None:
        """Refuse a table that lacks one of the columns, or has it twice."""
        for column in columns:
            count = list(self.frame.columns).count(column)
            if count != 1:
                rule = "must name a column" if count == 0 else "must name only one column"
                raise InputError(f"{self.path} line 1: {rule} {column!r}")

    def renamed(self, names: Callable[[str], str]) -> Table:
        """The same under other column names."""
        return Table(self.frame.rename(columns=names), self.path, self.locate)

    def integers(self, column: str, *, low: int, high: int) -> np.ndarray:
        """Read a column as int64."""
        numbers = pd.to_numeric(self.frame[column], errors="coerce").to_numpy(np.float64)
        with np.errstate(invalid="ignore"):
            good = (numbers == np.rint(numbers)) & (numbers >= low) & (numbers <= high)
        self.check(column, ~good, f"an integer between {low} and {high}")
        return numbers.astype(np.int64)

    def identifiers(self, column: str) -> np.ndarray:
        """Read a column as int64 where all are integers, else as text; none is empty or there twice."""
        text = self.frame[column].str.strip()
        self.check(column, (text == "").to_numpy(), "a non-empty identifier")
        long = (text.str.len() > MAX_IDENTIFIER).to_numpy()
        self.check(column, long, f"an identifier of at most {MAX_IDENTIFIER} characters")
        if len(text) * text.str.len().max() * 4 > MAX_TEXT_BYTES:
            raise too_much_text(self.path, f"column {column}")
        all_integers = text.str.fullmatch(r"-?\d{1,18}").all()
        ids = text.astype(np.int64).to_numpy() if all_integers else text.to_numpy(dtype=str)
        self.check(column, pd.Series(ids).duplicated().to_numpy(), "an identifier that no line above has")
        return ids

    def categories(self, column: str, names: Sequence[str]) -> np.ndarray:
        """Find the index in ``names`` of every entry of a column."""
        index = pd.Index(names).get_indexer(pd.Index(self.frame[column]))
        self.check(column, index < 0, f"one of {', '.join(names)}")
        return index

    def check(self, column: str, bad: np.ndarray, rule: str) -> None:
        """Refuse the first cell that is bad, with its line."""
        if bad.any():
            self.refuse(column, int(np.argmax(bad)), rule)

    def refuse(self, column: str, row: int, rule: str) -> NoReturn:
        """Raise the error for one cell."""
        value = shown(self.frame[column].iloc[row])
        raise InputError(f"{self.path} {self.locate(row)}: {column} must be {rule}, got {value}")


def too_much_text(path: Path, name: str) -> InputError:
    """Make the error about identifiers that are too long for their number."""
    return InputError(
        f"{path}: the identifiers of {name} must fit into {MAX_TEXT_BYTES // MIB} MiB; number them"
    )


def read_table(path: Path, layout: Layout | None = None, table: str | None = None) -> Table:
    """Read all columns of a small table as text; what is missing is empty."""
    if layout is None and table is None and ending(path) in JSON:
        return _json_table(path)
    is_text = layout is not None or ending(path) not in (*JSON, *DATABASES, ".parquet")
    every = (lambda header: _every(path, header)) if layout is None else _indexed
    if is_text and table is None:
        parts = text_rows(path, every, layout or text_layout(path), MAX_TABLE_BYTES)
    else:
        parts = read_rows(path, every, table)
    frames: list[pd.DataFrame] = []
    starts, places = [0], []
    size = cells = 0
    for rows in parts:
        frame = pd.DataFrame({name: _texts(column) for name, column in rows.columns.items()}, dtype=object)
        frames.append(frame)
        starts.append(starts[-1] + len(frame))
        places.append(rows.locate)
        cells += frame.size
        size += sum(column.nbytes for column in rows.columns.values())
        _check_small(path, 0 if is_text else size, cells)
    if not frames:
        raise InputError(f"{path} must hold at least one row, got none")

    def locate(row: int) -> str:
        part = int(np.searchsorted(starts, row, side="right")) - 1
        return places[part](row - starts[part])

    return Table(pd.concat(frames, ignore_index=True), path, locate)


def _indexed(header: Sequence[str]) -> dict[str, int]:
    return {name: at for at, name in enumerate(header)}


def _every(path: Path, header: Sequence[str]) -> dict[str, int]:
    if len(header) > MAX_COLUMNS:
        raise InputError(
            f"{path} must have at most {MAX_COLUMNS:,} columns, got {len(header):,}; leave some out"
        )
    twice = next((name for name in header if list(header).count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path} must name only one column {shown(twice)}; rename one")
    return _indexed(header)


def _check_small(path: Path, size: int, cells: int) -> None:
    if cells > MAX_TABLE_CELLS or size > MAX_TABLE_BYTES:
        raise InputError(
            f"{path} must have at most {MAX_TABLE_CELLS:,} fields and {MAX_TABLE_BYTES // MIB} MiB, for it "
            "lies beside the ratings; leave columns or rows out"
        )


def _texts(column: pa.Array) -> list[str]:
    """Cells as text: whole numbers without a point, nothing where there is none."""
    if pa.types.is_floating(column.type):
        return [_written(value) for value in column.to_pylist()]
    return pc.fill_null(column.cast(pa.large_string()), "").to_pylist()


def _written(value: object) -> str:
    if value is None or value != value:  # noqa: PLR0124 (no number)
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _json_table(path: Path) -> Table:
    """JSON lines: a column for each key of any object; a list of texts or numbers is several categories."""
    columns: dict[str, list[str]] = {}
    lines: list[int] = []
    size = 0
    for line, row in json_objects(path, MAX_TABLE_BYTES):
        columns |= {key: [""] * len(lines) for key in row if key not in columns}
        lines.append(line)
        for key, cells in columns.items():
            value = row.get(key)
            several = value if isinstance(value, list) else [value]
            if any(isinstance(one, list | dict) for one in several):
                raise InputError(
                    f"{path} line {line}: {key} must be a number, a text or a list, got {shown(value)}"
                )
            cells.append(SEVERAL.join(map(_written, several)))
            size += len(cells[-1])
        _check_small(path, size, len(lines) * len(columns))
    _every(path, list(columns))
    return Table(pd.DataFrame(columns, dtype=object), path, lambda row: f"line {lines[row]}")
