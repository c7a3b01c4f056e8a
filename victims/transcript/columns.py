"""Columns of an open file, checked before anything uses them.

Every failure is an ``InputError`` that names the file, the row and the rule. Uncompressed columns are never
copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Integer

from victims.common.errors import InputError
from victims.common.limits import LARGEST, scanned, without_tiny
from victims.transcript.arrow import ColumnFile


def integer_chunks(
    file: ColumnFile, name: str, low: int, high: int, rule: str, null: int | None = None
) -> list[np.ndarray]:
    """A column as int32 chunks with every value in ``[low, high]``; zero-copy for int32."""
    chunks = []
    for start, column in zip(file.offsets, file.columns(name), strict=False):
        if not pa.types.is_integer(column.type):
            raise InputError(f"{file.path}: {name} must be int32 or int64, got {column.type}")
        array = column if null is None or not column.null_count else _filled(file.path, name, column, null)
        _refuse_null(file.path, name, array, start)
        values = array.to_numpy(zero_copy_only=True)
        if not _all_within(values, low, high):
            row = int(np.flatnonzero((values < low) | (values > high))[0])
            most = f" and at most {high}" if values[row] > high and rule.endswith(f">= {low}") else ""
            raise InputError(f"{file.path} row {start + row}: {name} must be {rule}{most}, got {values[row]}")
        chunks.append(values.astype(np.int32, copy=False))
    return chunks


def _all_within(values: Integer[np.ndarray, " rows"], low: int, high: int) -> bool:
    """Whether all numbers are in ``[low, high]``; read once where the least that is allowed is 0 or less."""
    if values.size == 0:
        return True
    if low <= 0 <= high and values[0] >= 0:  # without its sign a negative number is a large one
        unsigned = values.view(f"u{values.itemsize}").max()
        if unsigned <= min(high, np.iinfo(f"i{values.itemsize}").max):
            return True
    return bool(values.min() >= low and values.max() <= high)


def _filled(path: Path, name: str, column: pa.Array, null: int) -> pa.Array:
    try:
        return pc.fill_null(column if column.type == pa.int32() else column.cast(pa.int64()), null)
    except pa.ArrowInvalid:
        raise InputError(f"{path}: {name} must fit into 64 bits with a sign") from None


def kind_chunks(file: ColumnFile, codes_of: Mapping[str, int]) -> list[np.ndarray]:
    """The column ``kind`` as codes; zero-copy where the dictionary lists the names in the order of 0, 1."""
    chunks = []
    for start, column in zip(file.offsets, file.columns("kind"), strict=False):
        plain = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        array = column.dictionary_encode() if plain else column
        if not pa.types.is_dictionary(array.type) or array.type.value_type not in (
            pa.string(),
            pa.large_string(),
        ):
            raise InputError(f"{file.path}: kind must be dictionary<string>, got {array.type}")
        _refuse_null(file.path, "kind", array, start)
        words = array.dictionary.to_pylist()
        codes = array.indices.to_numpy(zero_copy_only=True)
        table = np.array([codes_of.get(word, -1) for word in words], np.int8)
        if (table < 0).any():
            strange = np.flatnonzero(np.isin(codes, np.flatnonzero(table < 0)))
            if strange.size:
                row = int(strange[0])
                raise InputError(
                    f"{file.path} row {start + row}: kind must be one of {', '.join(codes_of)}, "
                    f"got {words[codes[row]]!r}"
                )
        identity = (table == np.arange(table.size)).all() and codes.dtype in (np.int8, np.int32)
        chunks.append(codes if identity else table[codes])
    return chunks


def hidden_chunks(file: ColumnFile, name: str) -> list[np.ndarray]:
    """Where a column is null because a ciphertext stands for it."""
    nulls = [
        column.is_null().to_numpy(zero_copy_only=False) if column.null_count else np.zeros(len(column), bool)
        for column in file.columns(name)
    ]
    if not file.has("ciphertext") or not any(null.any() for null in nulls):
        return nulls if file.has("ciphertext") else [np.zeros(null.size, bool) for null in nulls]
    for start, null, column in zip(file.offsets, nulls, file.columns("ciphertext"), strict=False):
        if column.type not in (pa.large_binary(), pa.binary()):
            raise InputError(f"{file.path}: ciphertext must be large_binary, got {column.type}")
        bad = np.flatnonzero(null & column.is_null().to_numpy(zero_copy_only=False))
        if bad.size:
            row = start + int(bad[0])
            raise InputError(f"{file.path} row {row}: needs a {name} or a ciphertext, has neither")
    return nulls


def vector_chunks(
    file: ColumnFile, name: str, width: int, keep: list[np.ndarray] | None = None
) -> list[np.ndarray]:
    """A column of finite float vectors as (rows, width) chunks; zero-copy for fixed_size_list.

    Numbers too small to matter are read as 0, which copies the chunks that have some
    (``victims.common.limits``).
    """
    chunks = []
    for chunk, (start, whole) in enumerate(zip(file.offsets, file.columns(name), strict=False)):
        some = keep is not None and not keep[chunk].all()
        array = whole.filter(pa.array(keep[chunk])) if keep is not None and some else whole
        _refuse_null(file.path, name, array, start)
        vectors = _vectors(file.path, name, array, width, start)
        tiny = _scanned(file.path, name, vectors, start)
        chunks.append(without_tiny(vectors) if tiny else vectors)
    return chunks


def _vectors(path: Path, name: str, array: pa.Array, width: int, start: int) -> np.ndarray:
    kind = array.type
    if not (
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    ) or kind.value_type not in (pa.float32(), pa.float64()):
        raise InputError(f"{path}: {name} must be fixed_size_list<float32 or float64>[{width}], got {kind}")
    if pa.types.is_fixed_size_list(kind):
        if kind.list_size != width:
            raise InputError(
                f"{path}: {name} must have K = {width} (factors of the manifest) numbers a row, "
                f"got {kind.list_size}"
            )
    else:
        lengths = np.diff(array.offsets.to_numpy())
        wrong = np.flatnonzero(lengths != width)
        if wrong.size:
            row = int(wrong[0])
            raise InputError(
                f"{path} row {start + row}: {name} must have K = {width} (factors of the "
                f"manifest) numbers, got {lengths[row]}"
            )
    flat = array.flatten()
    if flat.null_count:
        row = int(np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))[0]) // width
        raise InputError(f"{path} row {start + row}: {name} must not contain null")
    return flat.to_numpy(zero_copy_only=True).reshape(-1, width)


def _scanned(path: Path, name: str, values: np.ndarray, start: int) -> bool:
    """Whether some numbers are tiny; those that are too large are refused."""
    row, tiny = scanned(values)
    if row is None:
        return tiny
    if not np.isfinite(values[row]).all():
        got = values[row] if values.shape[1] > 1 else values[row, 0]
        raise InputError(f"{path} row {start + row}: {name} must be finite, got {got}")
    raise InputError(
        f"{path} row {start + row}: {name} must be at most {LARGEST:g} in size, got "
        f"{np.abs(values[row]).max():g}; record before the training diverges"
    )


def finite_chunks(file: ColumnFile, name: str) -> list[np.ndarray]:
    """A column of finite numbers as float64 chunks; none may be beyond ``victims.common.limits.LARGEST``."""
    chunks = []
    for start, array in zip(file.offsets, file.columns(name), strict=False):
        if not (pa.types.is_floating(array.type) or pa.types.is_integer(array.type)):
            raise InputError(f"{file.path}: {name} must be float64, got {array.type}")
        _refuse_null(file.path, name, array, start)
        values = array.to_numpy(zero_copy_only=True).astype(np.float64, copy=False)
        _scanned(file.path, name, values[:, None], start)
        chunks.append(values)
    return chunks


def _refuse_null(path: Path, name: str, array: pa.Array, start: int) -> None:
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"{path} row {start + row}: {name} must not be null")
