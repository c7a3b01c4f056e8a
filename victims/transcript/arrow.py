"""Arrow IPC and Parquet files, opened in bounded memory.

Files may be hostile: every failure ends in an ``InputError`` that names the file. Uncompressed Arrow files
are memory-mapped and never copied.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from victims.common.errors import InputError


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 16 << 30


DECODED_BYTES = min(8 << 30, _physical_memory() // 2)  # compressed files may not grow beyond this
UNCOMPRESSED, EXPANSION = 256 << 20, 100  # nor beyond that, and as many times their own size
INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class ColumnFile:
    """An open file: one list of record batches, all with the same columns."""

    path: Path
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
        """The chunks of one column; the file must have it once."""
        if not self.batches:
            return []
        count = self.batches[0].schema.names.count(name)
        if count != 1:
            have = ", ".join(self.batches[0].schema.names[:20])
            raise InputError(f"{self.path} must have one column {name!r}, got {count} (columns: {have})")
        return [batch.column(name) for batch in self.batches]


def find_columns(directory: Path, stem: str) -> Path:
    """``stem.arrow`` or ``stem.parquet`` in a directory."""
    for suffix in (".arrow", ".parquet"):
        if (directory / f"{stem}{suffix}").is_file():
            return directory / f"{stem}{suffix}"
    raise InputError(f"{directory} must contain {stem}.arrow or {stem}.parquet, neither is there")


def open_columns(path: Path) -> ColumnFile:
    """Open an Arrow IPC (Feather v2) or Parquet file."""
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
    return ColumnFile(path, tuple(batches), metadata)


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
