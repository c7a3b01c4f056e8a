"""The tables of a recording, and of the files beside it: columns, their types, and where null may stand.

These types are written. Read are whole numbers of any width, vectors and numbers of single or double
precision, and words in place of their dictionary; columns that are not named here are nobody's business.

Columns of Arrow IPC and Parquet files, opened in bounded memory and checked before anything uses them.

Files may be hostile: every failure ends in an ``InputError`` that names the file, the row and the rule.
Uncompressed Arrow files are memory-mapped, and their columns are never copied.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Integer

from victims.common.errors import InputError
from victims.common.limits import LARGEST, scanned, without_tiny

WHOLE, NUMBER, SEALED = pa.int32(), pa.float64(), pa.large_binary()
KIND = pa.dictionary(pa.int8(), pa.string())
VECTOR = pa.list_(NUMBER)  # of K numbers, the factors of the manifest
ANY = pa.null()  # of whatever rows of other kinds have: a number, or vectors of another width


def _table(always: dict[str, pa.DataType], sometimes: dict[str, pa.DataType] | None = None) -> pa.Schema:
    """Columns that are never null, and columns that may be."""
    never = [pa.field(name, kind, nullable=False) for name, kind in always.items()]
    return pa.schema([*never, *(sometimes or {}).items()])


_ROW = {"round": WHOLE, "kind": KIND, "index": WHOLE}
_ENDS = {"sender": WHOLE, "receiver": WHOLE}
_STATE = {"factor": VECTOR, "ciphertext": SEALED, "noise_scale": VECTOR}
_SENT = {"gradient": VECTOR, "ciphertext": SEALED, "exponent": WHOLE}

VERSION_1 = {b"version": b"1"}  # rows in every round; later, nobody may take part in one
STATE_1 = _table(_ROW, _STATE).with_metadata(VERSION_1)
MESSAGES_1 = _table(_ROW | _ENDS, _SENT).with_metadata(VERSION_1)
STATE = _table(_ROW, _STATE | {"bias": NUMBER, "holder": WHOLE, "value": ANY})
MESSAGES = _table(_ROW, _ENDS | _SENT | {"value": ANY, "sequence": WHOLE, "reference": VECTOR})
DELIVERIES = _table(_ENDS | {"weight": NUMBER, "first_round": WHOLE, "last_round": WHOLE})
TRUTH = _table({"user": WHOLE, "kind": KIND, "index": WHOLE, "value": NUMBER})
FACTORS = _table({"user": WHOLE, "round": WHOLE, "factor": VECTOR})
ANSWERS = _table({"user": WHOLE, "kind": KIND, "index": WHOLE, "value": NUMBER}, {"round": WHOLE})
TABLES = {"state": STATE, "messages": MESSAGES, "deliveries": DELIVERIES, "truth": TRUTH}
ADDED = (set(STATE.names) | set(MESSAGES.names)) - set(STATE_1.names) - set(MESSAGES_1.names)  # by version 2


def _whole(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind)


def _number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def _words(kind: pa.DataType) -> bool:
    words = kind.value_type if pa.types.is_dictionary(kind) else kind
    return words in (pa.string(), pa.large_string())


READ = {  # what a column may be that is written as a type; vectors depend on the manifest
    WHOLE: ("int32 or int64", _whole),
    NUMBER: ("float64", _number),
    KIND: ("dictionary<string>", _words),
    SEALED: ("large_binary", lambda kind: kind in (pa.large_binary(), pa.binary())),
}


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 16 << 30


DECODED_BYTES = min(8 << 30, _physical_memory() // 2)  # compressed files may not grow beyond this
UNCOMPRESSED, EXPANSION = 256 << 20, 100  # nor beyond that, and as many times their own size


@dataclass(frozen=True)
class ColumnFile:
    """An open file: one list of record batches, all with the same columns, and what these must be."""

    path: Path
    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    metadata: dict[bytes, bytes]

    @property
    def offsets(self) -> list[int]:
        """First row of each batch."""
        starts = [0]
        for batch in self.batches:
            starts.append(starts[-1] + batch.num_rows)
        return starts

    def has(self, name: str) -> bool:
        """Is there a column of that name?"""
        return bool(self.batches) and name in self.batches[0].schema.names

    def columns(self, name: str) -> list[pa.Array]:
        """The chunks of one column; the file must have it once, of its type, null where it may be."""
        if not self.batches:
            return []
        count = self.batches[0].schema.names.count(name)
        if count != 1:
            have = ", ".join(self.batches[0].schema.names[:20])
            raise InputError(f"{self.path} must have one column {name!r}, got {count} (columns: {have})")
        found = [batch.column(name) for batch in self.batches]
        if name in self.schema.names:
            field = self.schema.field(name)
            types, fits = READ.get(field.type, ("", lambda kind: True))
            if not fits(found[0].type):
                raise InputError(f"{self.path}: {name} must be {types}, got {found[0].type}")
            if not field.nullable:
                for start, array in zip(self.offsets, found, strict=False):
                    _check_no_null(self.path, name, array, start)
        return found

    def without(self, columns: Collection[str]) -> ColumnFile:
        """Leave some columns out."""
        names = self.batches[0].schema.names if self.batches else []
        keep = [place for place, name in enumerate(names) if name not in columns]
        return replace(self, batches=tuple(batch.select(keep) for batch in self.batches))

    def only(self, masks: Iterable[np.ndarray]) -> ColumnFile:
        """Some rows of each batch; batches that stay whole are not copied."""
        pairs = zip(self.batches, masks, strict=True)
        kept = (batch if mask.all() else batch.filter(pa.array(mask)) for batch, mask in pairs)
        return replace(self, batches=tuple(kept))


def find_columns(directory: Path, stem: str) -> Path:
    """``stem.arrow`` or ``stem.parquet`` in a directory."""
    for suffix in (".arrow", ".parquet"):
        if (directory / f"{stem}{suffix}").is_file():
            return directory / f"{stem}{suffix}"
    raise InputError(f"{directory} must contain {stem}.arrow or {stem}.parquet, neither is there")


def open_columns(path: Path, schema: pa.Schema) -> ColumnFile:
    """Open an Arrow IPC (Feather v2) or Parquet file, whose columns are checked when they are read."""
    try:
        size = path.stat().st_size
        most = min(DECODED_BYTES, UNCOMPRESSED + EXPANSION * size)
        with memory_limit(2 * most + size):
            if path.suffix == ".parquet":
                batches, metadata = _read_parquet(path, most)
            else:
                batches, metadata = _read_ipc(path, most)
            for batch in batches:
                batch.validate(full=True)
                _ = batch.schema.names  # decodes them: damaged names fail here, not later
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise InputError(
            f"{path} is not a readable Arrow IPC or Parquet file ({reason}); "
            "it may be truncated: record or copy it again"
        ) from None
    return ColumnFile(path, schema, tuple(batches), metadata)


def _read_ipc(path: Path, most: int) -> tuple[list[pa.RecordBatch], dict[bytes, bytes]]:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
        batches = []
        decoded = 0
        # uncompressed buffers lie inside the file, so only compressed ones can outgrow it
        most_decoded = max(most, 2 * path.stat().st_size)
        for number in range(reader.num_record_batches):
            batches.append(reader.get_batch(number))
            decoded += batches[-1].get_total_buffer_size()
            if decoded > most_decoded:
                raise _too_large(path, most)
        return batches, dict(reader.schema.metadata or {})


def _read_parquet(path: Path, most: int) -> tuple[list[pa.RecordBatch], dict[bytes, bytes]]:
    with pq.ParquetFile(path) as source:
        if source.metadata.num_rows * 4 * source.metadata.num_columns > most:
            raise _too_large(path, most)
        batches = []
        decoded = 0
        for batch in source.iter_batches(batch_size=1 << 18):
            batches.append(batch)
            decoded += batch.get_total_buffer_size()
            if decoded > most:
                raise _too_large(path, most)
        return batches, dict(source.schema_arrow.metadata or {})


def _too_large(path: Path, most: int) -> InputError:
    return InputError(
        f"{path} must decode to at most {most:,} bytes, by its size and on this machine; split it into "
        "several transcripts, or write uncompressed Arrow, which is mapped and not decoded"
    )


@contextmanager
def memory_limit(extra: int) -> Iterator[None]:
    """Let this process grow by no more than some bytes, so that a decompression bomb ends in ``MemoryError``.

    Without effect where the platform has no such limit.
    """
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        in_use = pages * resource.getpagesize()
        limit = in_use + extra
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        if soft != resource.RLIM_INFINITY:
            limit = min(limit, soft)
    except (ImportError, OSError, ValueError):
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def integer_chunks(
    file: ColumnFile, name: str, low: int, high: int, rule: str, null: int | None = None
) -> list[np.ndarray]:
    """A column as int32 chunks with every value in ``[low, high]``; zero-copy for int32."""
    chunks = []
    for start, column in zip(file.offsets, file.columns(name), strict=False):
        array = column if null is None or not column.null_count else _filled(file.path, name, column, null)
        _check_no_null(file.path, name, array, start)
        values = array.to_numpy(zero_copy_only=True)
        if not _all_within(values, low, high):
            row = int(np.flatnonzero((values < low) | (values > high))[0])
            bound = f" and at most {high}" if values[row] > high and rule.endswith(f">= {low}") else ""
            raise InputError(
                f"{file.path} row {start + row}: {name} must be {rule}{bound}, got {values[row]}"
            )
        chunks.append(values.astype(np.int32, copy=False))
    return chunks


def _all_within(values: Integer[np.ndarray, " rows"], low: int, high: int) -> bool:
    """Whether all numbers are in ``[low, high]``; one pass where 0 may be: faster than ``pc.min_max``."""
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


def words_of(column: pa.Array) -> tuple[list[str], np.ndarray]:
    """The words of a column of kinds, and the place among them of each row."""
    array = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return array.dictionary.to_pylist(), array.indices.to_numpy(zero_copy_only=True)


def kind_chunks(file: ColumnFile, codes_of: Mapping[str, int]) -> list[np.ndarray]:
    """The column ``kind`` as codes; zero-copy where the dictionary lists the names in the order of 0, 1."""
    chunks = []
    for start, column in zip(file.offsets, file.columns("kind"), strict=False):
        words, codes = words_of(column)
        table = np.array([codes_of.get(word, -1) for word in words], np.int8)
        strange = (
            np.flatnonzero(np.isin(codes, np.flatnonzero(table < 0))) if (table < 0).any() else table[:0]
        )
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
    nulls = [column.is_null().to_numpy(zero_copy_only=False) for column in file.columns(name)]
    if not file.has("ciphertext"):
        return [np.zeros(null.size, bool) for null in nulls]
    for start, null, column in zip(file.offsets, nulls, file.columns("ciphertext"), strict=False):
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
        _check_no_null(file.path, name, array, start)
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
            raise InputError(f"{path}: {name} must have {_so_many(name, width)} a row, got {kind.list_size}")
    else:
        lengths = np.diff(array.offsets.to_numpy())
        wrong = np.flatnonzero(lengths != width)
        if wrong.size:
            row = int(wrong[0])
            raise InputError(
                f"{path} row {start + row}: {name} must have {_so_many(name, width)}, got {lengths[row]}"
            )
    flat = array.flatten()
    if flat.null_count:
        row = int(np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))[0]) // width
        raise InputError(f"{path} row {start + row}: {name} must not contain null")
    return flat.to_numpy(zero_copy_only=True).reshape(-1, width)


def _so_many(name: str, width: int) -> str:
    return (
        f"{width} (width of the kind) numbers"
        if name == "value"
        else f"K = {width} (factors of the manifest) numbers"
    )


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


def finite_chunks(file: ColumnFile, name: str, *, null: bool = False) -> list[np.ndarray]:
    """A column of finite numbers as float64 chunks, NaN where null may stand; none is beyond ``LARGEST``."""
    chunks = []
    for start, column in zip(file.offsets, file.columns(name), strict=False):
        array = pc.fill_null(column, 0) if null and column.null_count else column
        _check_no_null(file.path, name, array, start)
        values = array.to_numpy(zero_copy_only=True).astype(np.float64, copy=False)
        _scanned(file.path, name, values[:, None], start)
        hidden = array is not column
        chunks.append(np.where(column.is_null(), np.nan, values) if hidden else values)
    return chunks


def _check_no_null(path: Path, name: str, array: pa.Array, start: int) -> None:
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"{path} row {start + row}: {name} must not be null")
