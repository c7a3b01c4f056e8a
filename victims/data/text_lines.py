"""The line of a file where a record begins; records may hold line ends between quotes."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from victims.data.streams import TextStream


@dataclass(frozen=True)
class TextFormat:
    """Layout of a delimited text file."""

    separator: str  # field separator; two characters are allowed (``::``), a blank means any white space
    # column names in order for files without header; None when the first line names them
    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    skip_lines: int = 0  # lines before the header or the first row
    quoted: bool = False  # fields may be quoted, as in CSV


def lines_of(text: str) -> Iterator[str]:
    """Cut a text into lines with their ends."""
    yield from (line.group() for line in re.finditer(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text))


def line_of(path: Path, layout: TextFormat, quotes: bool, record: int) -> int:
    """Find the line where a record begins; read again only where quotes may hide line ends."""
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
        *whole, rest = [*lines_of(rest + piece)] or [""]
        yield from whole
    if rest:
        yield rest
