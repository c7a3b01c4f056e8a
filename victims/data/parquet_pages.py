"""What the pages of a Parquet file decode to: their own headers say it, whatever the footer says.

Arrow decompresses a page into as many bytes as its header declares, and fails where these do not suffice. So
the headers bound the memory, and they can be read without decompressing anything.

References
----------
Apache Parquet format, ``PageHeader`` in parquet.thrift; Thrift compact protocol.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow.parquet as pq

from victims.common.errors import InputError
from victims.data.streams import MIB, check_ratio

MAX_PAGE = 64 * MIB  # decoded; writers make pages of about one
HEADER = 1 << 16  # bytes that a header may take: its statistics hold two values
DEEPEST = 16
INT32, BYTE, DOUBLE, BINARY, STRUCT = 5, 3, 7, 8, 12  # types of the compact protocol


class Page(NamedTuple):
    """A page's declared sizes, and the length of its header, in bytes."""

    decoded: int
    stored: int
    header: int


def check_pages(path: Path, metadata: pq.FileMetaData, wanted: list[str], most: int) -> None:
    """Refuse a file whose pages decode to more than they may."""
    total = 0
    with path.open("rb") as file:
        size = file.seek(0, 2)
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                if column.path_in_schema not in wanted:
                    continue
                start = column.data_page_offset
                if column.has_dictionary_page and column.dictionary_page_offset:
                    start = min(start, column.dictionary_page_offset)
                total += _decoded(path, file, start, min(start + column.total_compressed_size, size))
                if total > most:
                    raise InputError(
                        f"{path} must hold at most {most // MIB:,} MiB after decompression, and its pages "
                        "declare more; subsample it"
                    )
    check_ratio(path, total, size)


def _decoded(path: Path, file: BinaryIO, start: int, stop: int) -> int:
    """Bytes of the pages of one column chunk."""
    total = 0
    while start < stop:
        file.seek(start)
        try:
            page = page_header(file.read(HEADER))
        except (IndexError, ValueError):
            raise InputError(f"{path} is not a readable Parquet file: a page header is damaged") from None
        if page.decoded > MAX_PAGE:
            raise InputError(
                f"{path} must have pages of at most {MAX_PAGE // MIB} MiB after decompression, got "
                f"{page.decoded / MIB:,.0f}; write it with smaller pages"
            )
        total += page.decoded
        start += page.header + page.stored
    return total


def page_header(data: bytes) -> Page:
    """Parse the header that some bytes begin with.

    Examples
    --------
    >>> page_header(bytes([0x15, 0x00, 0x15, 0x14, 0x15, 0x08, 0x00]))
    Page(decoded=10, stored=4, header=7)
    """
    sizes: dict[int, int] = {}
    field, at = 0, 0
    while True:
        kind, field, at = _field(data, field, at)
        if kind == 0:
            break
        if kind == INT32:
            sizes[field], at = _zigzag(data, at)
        else:
            at = _skipped(data, kind, at, 0)
    if sizes.get(2, -1) < 0 or sizes.get(3, -1) < 0:
        raise ValueError("a page must declare both of its sizes")
    return Page(sizes[2], sizes[3], at)


def _field(data: bytes, before: int, at: int) -> tuple[int, int, int]:
    """Type and number of a field, and where its value begins; type 0 ends a struct."""
    first = data[at]
    if first == 0:
        return 0, before, at + 1
    if first >> 4:
        return first & 15, before + (first >> 4), at + 1
    number, after = _zigzag(data, at + 1)
    return first & 15, number, after


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _skipped(data: bytes, kind: int, at: int, depth: int) -> int:
    """Where a value ends that is not looked at."""
    if depth > DEEPEST:
        raise ValueError("a header is nested too deeply")
    if kind in (1, 2):  # true and false are in the type
        return at
    if kind == BYTE:
        return at + 1
    if kind in (4, INT32, 6):
        return _varint(data, at)[1]
    if kind == DOUBLE:
        return at + 8
    if kind == BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind == STRUCT:
        field = 0
        while True:
            inner, field, at = _field(data, field, at)
            if inner == 0:
                return at
            at = _skipped(data, inner, at, depth + 1)
    raise ValueError("a page header holds no lists or maps")
