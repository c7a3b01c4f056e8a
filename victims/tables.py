"""Delimited text, Parquet and gzip read with the file, line and rule of the first bad row."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from victims.errors import InputError

MAX_BYTES = 2 << 30  # after decompression; twenty times MovieLens 1M


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


def read_bytes(path: Path) -> bytes:
    """Read a file, decompressing ``.gz``; refuse more than 2 GiB and damaged archives."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            content = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}; check or download it again") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{path} must hold at most {MAX_BYTES >> 30} GiB; split or subsample it")
    return content


def read_text_table(path: Path, layout: TextFormat) -> pd.DataFrame:
    """Read all columns as text. Row ``k`` of the result is line ``frame.attrs['first_line'] + k``.

    Raises
    ------
    InputError
        If the file cannot be decoded or a line has another number of fields.
    """
    content = read_bytes(path)
    separator = layout.separator
    if len(separator) > 1:  # the fast parser takes one character; none of these files has \x01
        content = content.replace(separator.encode(), b"\x01")
        separator = "\x01"
    try:
        text = content.decode(layout.encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path} line {line}: must be {layout.encoding} text, got byte "
            f"0x{content[error.start]:02x}; convert the file"
        ) from None
    text = text.rstrip()
    first_line = layout.skip_lines + (2 if layout.columns is None else 1)
    try:
        frame = pd.read_csv(
            io.StringIO(text),
            sep=r"\s+" if separator == " " else separator,
            header=None,  # so that the first line, header or not, fixes the number of fields
            skiprows=layout.skip_lines,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            quoting=0 if layout.quoted else 3,
            index_col=False,
            engine="c",
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        raise InputError(f"{path}: {error}; repair that line or the separator") from None
    if layout.columns is None:
        names = [str(name).strip() for name in frame.iloc[0]]
        frame = frame.iloc[1:].reset_index(drop=True)
        frame.columns = pd.Index(names)
    elif frame.shape[1] < len(layout.columns):
        raise InputError(
            f"{path} line {first_line}: must have {len(layout.columns)} fields "
            f"({', '.join(layout.columns)}), got {frame.shape[1]}"
        )
    else:
        frame = frame.iloc[:, : len(layout.columns)]
        frame.columns = pd.Index(layout.columns)
    frame.attrs["first_line"] = first_line
    return frame


def integers(frame: pd.DataFrame, column: str, path: Path, *, low: int, high: int) -> np.ndarray:
    """The column as int64, every value in ``[low, high]``; else an error with file and line."""
    numbers = numeric(frame, column, path)
    bad = np.flatnonzero((numbers != np.rint(numbers)) | (numbers < low) | (numbers > high))
    if bad.size:
        fail(frame, column, path, int(bad[0]), f"an integer between {low} and {high}")
    return numbers.astype(np.int64)


def numeric(frame: pd.DataFrame, column: str, path: Path) -> np.ndarray:
    """The column as finite float64, else an error with file and line."""
    numbers = pd.to_numeric(frame[column], errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        fail(frame, column, path, int(bad[0]), "a finite number")
    return numbers


def identifiers(frame: pd.DataFrame, column: str, path: Path) -> np.ndarray:
    """The column as int64 where every identifier is an integer, else as text; never empty."""
    values = frame[column]
    if pd.api.types.is_integer_dtype(values):
        return values.to_numpy(np.int64)
    text = values.astype(str).str.strip()
    bad = np.flatnonzero((text == "").to_numpy() | values.isna().to_numpy())
    if bad.size:
        fail(frame, column, path, int(bad[0]), "a non-empty identifier")
    if text.str.fullmatch(r"-?\d{1,18}").all():
        return text.astype(np.int64).to_numpy()
    return text.to_numpy(dtype=str)


def categories(frame: pd.DataFrame, column: str, path: Path, names: Sequence[str]) -> np.ndarray:
    """Index in ``names`` of every entry, else an error with file and line."""
    index = pd.Index(names).get_indexer(pd.Index(frame[column]))
    bad = np.flatnonzero(index < 0)
    if bad.size:
        fail(frame, column, path, int(bad[0]), f"one of {', '.join(names)}")
    return index


def fail(frame: pd.DataFrame, column: str, path: Path, row: int, rule: str) -> None:
    """Raise the error for one bad cell, with its line where the file has lines."""
    first_line = frame.attrs.get("first_line")
    where = f"row {row}" if first_line is None else f"line {first_line + row}"
    value = frame[column].iloc[row]
    raise InputError(f"{path} {where}: {column} must be {rule}, got {value!r}")


def read_parquet_table(path: Path) -> pd.DataFrame:
    """Read a Parquet file whose decoded size is within the limit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as source:
            rows, columns = source.metadata.num_rows, source.metadata.num_columns
            if rows * columns * 8 > MAX_BYTES:
                raise InputError(f"{path} must hold at most {MAX_BYTES >> 30} GiB, got {rows} rows")
            wanted = [name for name in source.schema_arrow.names if name.isidentifier()]
            return source.read(columns=wanted).to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable Parquet file: {error}") from None
