"""Delimited text in bounded memory, with the file, line and rule of the first bad cell.

The ratings of a file are read chunk by chunk (``chunks``); tables beside them, of users or items, are small
and read whole (``read_text_table``).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from victims.common.errors import InputError
from victims.data.streams import MAX_BYTES, MIB, TextStream
from victims.data.tables import Table
from victims.data.text_lines import TextFormat, line_of, lines_of

MAX_COLUMNS = 1000
MAX_TABLE_BYTES = 64 * MIB  # of a table beside the ratings; the film list of MovieLens 32M has 4 MiB
MAX_TABLE_CELLS = 1 << 22
CHUNK_CELLS = MIB
CHUNK_BYTES = 8 * MIB
MAX_CHUNK_BYTES = 16 * CHUNK_BYTES  # lines may be longer than the first ones, but not by that much


def read_text_table(path: Path, layout: TextFormat) -> Table:
    """Read a small file whole."""
    tables: list[Table] = []
    cells = 0
    for table in chunks(path, layout, MAX_TABLE_BYTES):
        tables.append(table)
        cells += table.frame.size
        if cells > MAX_TABLE_CELLS:
            raise InputError(
                f"{path} must have at most {MAX_TABLE_CELLS:,} fields; leave columns or rows out"
            )
    whole = pd.concat([table.frame for table in tables], ignore_index=True)
    return Table(whole, path, tables[0].locate)


def chunks(path: Path, layout: TextFormat, most: int = MAX_BYTES) -> Iterator[Table]:
    """Read all columns as text, some rows at a time; at least one table, which may be empty."""
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
            width = len(next(csv.reader(lines_of(text), delimiter=layout.separator), []))
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
            line = line_of(self._path, self._layout, self._stream.quotes, self.records)
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
        expected, record, given = map(int, fields.groups())
        line = line_of(path, layout, stream.quotes, record - 1)
        return f"{path} line {line}: must have {expected} fields as the first line, got {given}; repair it"
    quote = re.search(r"EOF inside string starting at row (\d+)", problem)
    if quote:
        line = line_of(path, layout, stream.quotes, int(quote.group(1)))
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
    return lambda row: f"line {line_of(path, layout, stream.quotes, before + row)}"
