"""Ratings in Parquet, some rows at a time: declared sizes are held against the file before it is decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from victims.common.errors import InputError
from victims.common.given_files import existing_file
from victims.data.delimited import MAX_COLUMNS
from victims.data.encoded_rows import MAX_RATINGS, Chunk
from victims.data.parquet_pages import check_pages
from victims.data.streams import MAX_BYTES, MIB, check_ratio
from victims.data.tables import shown
from victims.data.wanted import Wanted

MAX_FOOTER = 16 * MIB
BATCH_ROWS = 1 << 16
BYTES_OF_A_RATING = 20  # two identifiers and a number, at least
KINDS = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_large_string,
)
Choose = Callable[[Sequence[str]], Mapping[str, int]]
Check = Callable[[Path, pa.Schema, Mapping[str, int]], None]
TAIL = 8  # bytes: the footer's length and PAR1


def parquet_chunks(path: Path, columns_wanted: Wanted) -> Iterator[Chunk]:
    """Read the user, item and rating columns of a Parquet file."""
    before = 0
    parts = parquet_columns(path, lambda header: columns_wanted.columns(path, list(header)), _check_types)
    for columns in parts:
        start = before
        yield columns_wanted.chunk(columns, path, lambda row, start=start: f"row {start + row}")
        before += len(next(iter(columns.values())))


def check_plain(path: Path, schema: pa.Schema, columns: Mapping[str, int]) -> None:
    """Refuse columns whose cells are no single numbers, texts, dates or flags."""
    plain = (*KINDS, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_temporal)
    for column in columns.values():
        kind = schema.field(column).type
        value = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not any(is_kind(value) for is_kind in plain):
            raise InputError(
                f"{path}: column {shown(schema.names[column])} must hold numbers or text, it holds "
                f"{shown(str(kind))}; convert it, or leave it out"
            )


def parquet_columns(path: Path, choose: Choose, check: Check = check_plain) -> Iterator[dict[str, pa.Array]]:
    """Read some columns of a Parquet file, some rows at a time."""
    _check_footer(path)
    with _refusals(path):
        source = pq.ParquetFile(path, thrift_string_size_limit=MAX_FOOTER)
    with source:
        with _refusals(path):
            metadata = source.metadata
            if metadata.num_columns > MAX_COLUMNS:
                raise InputError(
                    f"{path} must have at most {MAX_COLUMNS:,} columns, got {metadata.num_columns:,}; "
                    "keep user, item and rating"
                )
            schema = source.schema_arrow
            columns = choose(schema.names)
            check(path, schema, columns)
            _check_sizes(path, metadata, [schema.names[column] for column in columns.values()])
        yield from _batches(path, {name: schema.names[column] for name, column in columns.items()})


def _batches(path: Path, wanted: Mapping[str, str]) -> Iterator[dict[str, pa.Array]]:
    with _refusals(path):
        # long texts that repeat stay one each
        source = pq.ParquetFile(path, read_dictionary=list(wanted.values()))
    with source:
        batches = source.iter_batches(BATCH_ROWS, columns=list(wanted.values()), use_threads=False)
        while True:
            with _refusals(path):
                batch = next(batches, None)
                if batch is None:
                    return
                for name, column in wanted.items():
                    _check_content(path, name, batch.column(column))
            yield {name: batch.column(column) for name, column in wanted.items()}


def _check_footer(path: Path) -> None:
    """Refuse a description of columns that would fill the memory itself."""
    existing_file(path)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            tail = file.read(TAIL)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if len(tail) < TAIL or tail[4:] != b"PAR1":
        raise InputError(f"{path} is not a readable Parquet file: it does not end in PAR1; get it again")
    footer = int.from_bytes(tail[:4], "little")
    if footer > MAX_FOOTER:
        raise InputError(
            f"{path} must describe its columns in at most {MAX_FOOTER // MIB} MiB, got {footer / MIB:,.0f}; "
            "keep user, item and rating"
        )


def _check_types(path: Path, schema: pa.Schema, columns: Mapping[str, int]) -> None:
    for name, column in columns.items():
        kind = schema.field(column).type
        value = kind.value_type if pa.types.is_dictionary(kind) else kind
        stars = name == "rating"
        if name == "time" and (pa.types.is_temporal(value) or pa.types.is_decimal(value)):
            continue
        if not (any(is_kind(value) for is_kind in KINDS) or (stars and pa.types.is_decimal(kind))):
            what = "numbers or text" if stars else "whole numbers or text"
            raise InputError(
                f"{path}: column {shown(schema.names[column])} must hold {what}, "
                f"it holds {shown(str(kind))}; "
                "convert it"
            )


def _check_sizes(path: Path, metadata: pq.FileMetaData, wanted: Sequence[str]) -> None:
    rows = metadata.num_rows
    if not 0 <= rows <= MAX_RATINGS:
        raise InputError(f"{path} must hold at most {MAX_RATINGS:,} ratings, got {rows:,}; subsample it")
    declared = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in wanted:
                declared += max(0, column.total_uncompressed_size)
    if declared > MAX_BYTES:
        raise InputError(
            f"{path} must hold at most {MAX_BYTES // MIB:,} MiB after decompression, got "
            f"{declared / MIB:,.0f}; subsample it"
        )
    check_ratio(path, max(declared, rows * BYTES_OF_A_RATING), path.stat().st_size)
    check_pages(path, metadata, list(wanted), MAX_BYTES)


def _check_content(path: Path, name: str, column: pa.Array) -> None:
    """What Arrow leaves unchecked when it reads: codes inside their dictionary, text in UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        texts = column.dictionary if isinstance(column, pa.DictionaryArray) else column
        if pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type):
            raise InputError(
                f"{path}: column {name} must be UTF-8 text, got {shown(_not_text(texts))}; encode it anew"
            ) from None
        raise InputError(f"{path}: column {name} is damaged: {error}") from None


def _not_text(texts: pa.Array) -> bytes:
    wide = pa.types.is_large_string(texts.type)
    for value in texts.view(pa.large_binary() if wide else pa.binary()):
        content = value.as_py() or b""
        if content.decode("utf-8", "replace").encode() != content:
            return bytes(content)
    return b""


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable Parquet file: {error}; get it again") from None
