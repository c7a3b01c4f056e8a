"""Delimited text in bounded memory, with the file, line and rule of the first bad cell.

The ratings of a file are read chunk by chunk (``chunks``); tables beside them, of users or items, are small
and read whole (``read_text_table``).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from victims.common.errors import InputError
from victims.data.streams import MAX_BYTES, MIB, TextStream

MAX_COLUMNS = 1000
MAX_IDENTIFIER = 256  # characters
MAX_TEXT_BYTES = 256 * MIB  # of distinct identifiers, in an array of one width
MAX_TABLE_BYTES = 64 * MIB  # of a table beside the ratings; the film list of MovieLens 32M has 4 MiB
MAX_TABLE_CELLS = 1 << 22
CHUNK_CELLS = MIB
CHUNK_BYTES = 8 * MIB
MAX_CHUNK_BYTES = 16 * CHUNK_BYTES  # lines may be longer than the first ones, but not by that much
LONGEST_VALUE = 60  # characters of a value in a message


@dataclass(frozen=True)
class TextFormat:
    """Layout of a delimited text file.

    Attributes
    ----------
    separator : str
        Field separator; two characters are allowed (``::``), a blank means any white space.
    columns : tuple of str or None
        Column names in order for files without header; None when the first line names them.
    encoding : str
    skip_lines : int
        Lines before the header or the first row.
    quoted : bool
        Fields may be quoted, as in CSV.
    """

    separator: str
    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    skip_lines: int = 0
    quoted: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of a file, all cells as text, and where in the file they stand.

    Attributes
    ----------
    frame : DataFrame
    path : Path
    place : callable
        Row of the frame -> ``line 5``.
    """

    frame: pd.DataFrame
    path: Path
    place: Callable[[int], str]

    def __getitem__(self, column: str) -> pd.Series:
        """A column."""
        return self.frame[column]

    def text(self, column: str) -> list[str]:
        """A column, nothing where a line ended before it."""
        return self.frame[column].fillna("").astype(str).tolist()

    def require(self, *columns: str) -> None:
        """Refuse a table that lacks one of the columns, or has it twice."""
        for column in columns:
            count = list(self.frame.columns).count(column)
            if count != 1:
                rule = "must name a column" if count == 0 else "must name only one column"
                raise InputError(f"{self.path} line 1: {rule} {column!r}")

    def renamed(self, names: Callable[[str], str]) -> Table:
        """The same under other column names."""
        return Table(self.frame.rename(columns=names), self.path, self.place)


def read_text_table(path: Path, layout: TextFormat) -> Table:
    """Read a small file whole.

    Raises
    ------
    InputError
        As ``chunks``, or if there are more than ``MAX_TABLE_BYTES`` or ``MAX_TABLE_CELLS``.
    """
    parts: list[Table] = []
    cells = 0
    for part in chunks(path, layout, MAX_TABLE_BYTES):
        parts.append(part)
        cells += part.frame.size
        if cells > MAX_TABLE_CELLS:
            raise InputError(
                f"{path} must have at most {MAX_TABLE_CELLS:,} fields; leave columns or rows out"
            )
    whole = pd.concat([part.frame for part in parts], ignore_index=True)
    return Table(whole, path, parts[0].place)


def chunks(path: Path, layout: TextFormat, most: int = MAX_BYTES) -> Iterator[Table]:
    """Read all columns as text, some rows at a time; at least one table, which may be empty.

    Raises
    ------
    InputError
        If the file cannot be decoded, a line has more fields than the first, one has too many fields, or
        quotes are not closed.
    """
    with TextStream(path, layout.encoding, layout.separator, layout.skip_lines, most) as stream:
        width, rows = _shape(path, layout, stream.peek())
        header: list[str] | None = None
        before = 0  # records
        for frame in _frames(path, layout, stream, rows):
            if header is None:
                header = _header(path, layout, frame, width)
                if layout.columns is None:
                    frame, before = frame.iloc[1:].reset_index(drop=True), 1  # noqa: PLW2901
            frame = frame.iloc[:, : len(header)]  # noqa: PLW2901
            frame.columns = pd.Index(header)
            yield Table(frame, path, _placer(path, layout, stream, before))
            before += len(frame)


def _shape(path: Path, layout: TextFormat, text: str) -> tuple[int, int]:
    """Number of columns by the first line, and of rows to read at a time."""
    first = re.split(r"[\r\n]", text, maxsplit=1)[0]
    if layout.separator == " ":
        width = len(first.split())
    elif layout.quoted:
        try:
            width = len(next(csv.reader(_lines(text), delimiter=layout.separator), []))
        except csv.Error as error:
            raise InputError(
                f"{path} line {layout.skip_lines + 1}: must name short columns, got {error}; repair it"
            ) from None
    else:
        width = first.count(_single(layout.separator)) + 1
    if width > MAX_COLUMNS:
        raise InputError(
            f"{path} line {layout.skip_lines + 1}: must have at most {MAX_COLUMNS:,} columns, got {width:,}; "
            "keep user, item and rating"
        )
    line = max(1, len(text) // (text.count("\n") or text.count("\r") or 1))
    return width, max(1, min(CHUNK_CELLS // max(width, 1), CHUNK_BYTES // line))


def _single(separator: str) -> str:
    return separator if len(separator) == 1 else "\x01"


def _lines(text: str) -> Iterator[str]:
    yield from (found.group() for found in re.finditer(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text))


def _frames(path: Path, layout: TextFormat, stream: TextStream, rows: int) -> Iterator[pd.DataFrame]:
    separator = r"\s+" if layout.separator == " " else _single(layout.separator)
    budget: Any = _Budget(path, layout, stream)
    try:
        with pd.read_csv(
            budget,
            sep=separator,
            header=None,  # so that the first line, header or not, fixes the number of fields
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            quoting=csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE,
            index_col=False,
            engine="c",
            chunksize=rows,
        ) as reader:
            for frame in reader:
                yield frame
                budget.records += len(frame)
                stream.delivered = 0
    except InputError:
        raise
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} must hold at least one line, it is empty; get it again") from None
    except (pd.errors.ParserError, ValueError) as error:
        raise InputError(_parser_message(path, layout, stream, str(error))) from None


class _Budget:
    """What pandas reads from: the stream, up to a limit for each chunk."""

    def __init__(self, path: Path, layout: TextFormat, stream: TextStream) -> None:
        self._path, self._layout, self._stream = path, layout, stream
        self.records = 0  # in the chunks before

    def read(self, size: int = -1) -> str:
        if self._stream.delivered > MAX_CHUNK_BYTES:
            line = _line_of(self._path, self._layout, self._stream.quotes, self.records)
            raise InputError(
                f"{self._path}: a row or quoted field from line {line} on is too long for its chunk of "
                f"{MAX_CHUNK_BYTES // MIB} MiB; close the quotes or leave long columns out"
            )
        return self._stream.read(size)

    def __iter__(self) -> Iterator[str]:
        return iter(lambda: self.read(1), "")


def _parser_message(path: Path, layout: TextFormat, stream: TextStream, problem: str) -> str:
    fields = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", problem)
    if fields:
        expected, record, found = (int(part) for part in fields.groups())
        line = _line_of(path, layout, stream.quotes, record - 1)
        return f"{path} line {line}: must have {expected} fields as the first line, got {found}; repair it"
    quote = re.search(r"EOF inside string starting at row (\d+)", problem)
    if quote:
        line = _line_of(path, layout, stream.quotes, int(quote.group(1)))
        return f"{path} line {line}: a quote must be closed; repair that line"
    return f"{path}: {problem}; repair the file or its separator"


def _header(path: Path, layout: TextFormat, frame: pd.DataFrame, width: int) -> list[str]:
    if layout.columns is None:
        return [str(name).strip() for name in frame.iloc[0]]
    if frame.shape[1] < len(layout.columns):
        raise InputError(
            f"{path} line {layout.skip_lines + 1}: must have {len(layout.columns)} fields "
            f"({', '.join(layout.columns)}), got {width}"
        )
    return list(layout.columns)


def _placer(path: Path, layout: TextFormat, stream: TextStream, before: int) -> Callable[[int], str]:
    return lambda row: f"line {_line_of(path, layout, stream.quotes, before + row)}"


def _line_of(path: Path, layout: TextFormat, quotes: bool, record: int) -> int:
    """The line, counted from 1, where a record begins; read again only where quotes may hide line ends."""
    if not (layout.quoted and quotes):
        return layout.skip_lines + record + 1
    with TextStream(path, layout.encoding, layout.separator, layout.skip_lines) as stream:
        pieces = iter(lambda: stream.read(-1), "")
        reader = csv.reader(_joined_lines(pieces), delimiter=layout.separator)
        try:
            for _ in range(record):
                next(reader, None)
        except csv.Error:  # a field longer than this module takes: the line where that happens
            pass
        return layout.skip_lines + reader.line_num + 1


def _joined_lines(pieces: Iterator[str]) -> Iterator[str]:
    """Lines of a text that comes in pieces."""
    rest = ""
    for piece in pieces:
        *whole, rest = [*_lines(rest + piece)] or [""]
        yield from whole
    if rest:
        yield rest


def chosen(path: Path, header: Sequence[str], names: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Index in the header of each column that is looked for under any of its spellings.

    Raises
    ------
    InputError
        If one is missing, or two mean the same.
    """
    places: dict[str, int] = {}
    for wanted, spellings in names.items():
        found = [place for place, name in enumerate(header) if str(name).strip().lower() in spellings]
        if not found:
            heads = ", ".join(map(shown, header[:10]))
            raise InputError(f"{path} must name a column {wanted!r} in its header, got {heads}")
        if len(found) > 1:
            heads = " and ".join(shown(header[place]) for place in found[:2])
            raise InputError(f"{path} must name one column {wanted!r} in its header, got {heads}; rename one")
        places[wanted] = found[0]
    return places


def integers(table: Table, column: str, *, low: int, high: int) -> np.ndarray:
    """The column as int64, every value in ``[low, high]``; else an error with file and line."""
    numbers = numeric(table, column)
    bad = np.flatnonzero((numbers != np.rint(numbers)) | (numbers < low) | (numbers > high))
    if bad.size:
        fail(table, column, int(bad[0]), f"an integer between {low} and {high}")
    return numbers.astype(np.int64)


def numeric(table: Table, column: str) -> np.ndarray:
    """The column as finite float64, else an error with file and line."""
    numbers = pd.to_numeric(table[column], errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        fail(table, column, int(bad[0]), "a finite number")
    return numbers


def identifiers(table: Table, column: str) -> np.ndarray:
    """The column as int64 where every identifier is an integer, else as text; never empty, none twice."""
    values = table[column]
    text = values.astype(str).str.strip()
    bad = np.flatnonzero((text == "").to_numpy() | values.isna().to_numpy())
    if bad.size:
        fail(table, column, int(bad[0]), "a non-empty identifier")
    bad = np.flatnonzero((text.str.len() > MAX_IDENTIFIER).to_numpy())
    if bad.size:
        fail(table, column, int(bad[0]), f"an identifier of at most {MAX_IDENTIFIER} characters")
    if len(text) * text.str.len().max() * 4 > MAX_TEXT_BYTES:
        raise InputError(too_much_text(table.path, f"column {column}"))
    all_integers = text.str.fullmatch(r"-?\d{1,18}").all()
    ids = text.astype(np.int64).to_numpy() if all_integers else text.to_numpy(dtype=str)
    bad = np.flatnonzero(pd.Series(ids).duplicated().to_numpy())
    if bad.size:
        fail(table, column, int(bad[0]), "an identifier that no line above has")
    return ids


def too_much_text(path: Path, name: str) -> str:
    """The message about identifiers that are too long for their number."""
    return f"{path}: the identifiers of {name} must fit into {MAX_TEXT_BYTES // MIB} MiB; number them"


def categories(table: Table, column: str, names: Sequence[str]) -> np.ndarray:
    """Index in ``names`` of every entry, else an error with file and line."""
    index = pd.Index(names).get_indexer(pd.Index(table[column]))
    bad = np.flatnonzero(index < 0)
    if bad.size:
        fail(table, column, int(bad[0]), f"one of {', '.join(names)}")
    return index


def fail(table: Table, column: str, row: int, rule: str) -> NoReturn:
    """Raise the error for one bad cell, with its line."""
    value = table[column].iloc[row]
    raise InputError(f"{table.path} {table.place(row)}: {column} must be {rule}, got {shown(value)}")


def shown(value: object) -> str:
    """A value of a file for a message: as Python writes it, and not longer than a line takes.

    Examples
    --------
    >>> shown("x" * 1000)[-12:]
    'xxxxxxxxx...'
    """
    text = repr(value[: 2 * LONGEST_VALUE] if isinstance(value, str | bytes) else value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
