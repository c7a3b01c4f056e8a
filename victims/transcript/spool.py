"""Rows appended to an Arrow file of unknown length in little memory; the file follows the widest numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from victims.common.files import PRIVATE, PUBLIC, make_private, output
from victims.transcript.arrow_output import ArrowOutput
from victims.transcript.kinds import KINDS, RECORDED
from victims.transcript.written_columns import kind_array, vector_array

ROWS, BYTES = 1 << 16, 32 << 20  # of a batch: few calls, yet little memory
NULL = -(2**31)  # stands for null in columns that may be


class Spool:
    """A file of one set of columns; rows wait in a buffer for each column."""

    def __init__(self, path: Path, nullable: tuple[str, ...] = (), mode: int = PUBLIC) -> None:
        self.path = path
        self._mode = mode
        self.n_rows = 0
        self._nullable = nullable
        self._buffers: dict[str, np.ndarray] = {}
        self._filled = self._capacity = 0
        self._writer: ArrowOutput | None = None
        self._schema: pa.Schema | None = None
        self._kinds: tuple[str, ...] = KINDS
        self._written_kinds: tuple[str, ...] = KINDS

    def add(self, size: int, columns: Mapping[str, np.ndarray | int]) -> None:
        """Append rows; what is given is copied."""
        if not self._buffers:
            self._begin(columns)
        kind = columns.get("kind", 0)
        if (kind.max(initial=0) if isinstance(kind, np.ndarray) else kind) >= len(KINDS):
            self._kinds = RECORDED
        arrays = {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
        for name, column in arrays.items():
            if column.itemsize > self._buffers[name].itemsize:
                self._widen(name, column.dtype)
        done, left = 0, self._capacity - self._filled
        while size - done >= left:
            parts = {name: column[done : done + left] for name, column in arrays.items()}
            self._fill(left, {**columns, **parts})
            self.flush()
            done, left = done + left, self._capacity
        if done:
            columns = {**columns, **{name: column[done:] for name, column in arrays.items()}}
        self._fill(size - done, columns)
        self.n_rows += size

    def _fill(self, size: int, columns: Mapping[str, np.ndarray | int]) -> None:
        """Put rows behind those that wait; they fit."""
        here = slice(self._filled, self._filled + size)
        for name, column in columns.items():
            self._buffers[name][here] = column
        self._filled += size

    def flush(self) -> None:
        """Write what waits."""
        if not self._filled:
            return
        batch = pa.RecordBatch.from_pydict(
            {name: self._array(name, buffer[: self._filled]) for name, buffer in self._buffers.items()}
        )
        with output(self.path):
            if self._schema is None:
                self._open(batch.schema)
            elif batch.schema != self._schema or self._written_kinds != self._kinds:
                self._rewrite(batch.schema)
            assert self._writer is not None
            self._writer.write_batch(batch)
        self._filled = 0

    def close(self) -> None:
        """Write what waits, and end the file, if there are rows."""
        self.flush()
        if self._writer is not None:
            with output(self.path):
                self._writer.close()
        self._buffers = {}

    def abandon(self) -> None:
        """Close the file, whatever is in it."""
        if self._writer is not None:
            self._writer.close()

    def _begin(self, columns: Mapping[str, np.ndarray | int]) -> None:
        examples = {
            name: column if isinstance(column, np.ndarray) else np.zeros(0, np.int32)
            for name, column in columns.items()
        }
        width = sum(array.itemsize * int(np.prod(array.shape[1:])) for array in examples.values())
        self._capacity = min(ROWS, max(BYTES // width, 1))
        self._buffers = {
            name: np.empty((self._capacity, *array.shape[1:]), array.dtype)
            for name, array in examples.items()
        }

    def _widen(self, name: str, wider: np.dtype) -> None:
        """float32 becomes float64, not the other way round."""
        self.flush()
        self._buffers[name] = np.empty(self._buffers[name].shape, wider)

    def _array(self, name: str, column: np.ndarray) -> pa.Array:
        if name == "kind":
            return kind_array(column, self._kinds)
        if column.ndim == 2:
            return vector_array(column)
        if name in self._nullable and (hidden := column == NULL).any():
            return pa.array(column, mask=hidden)
        return pa.array(column)

    def _open(self, schema: pa.Schema) -> None:
        self._schema, self._written_kinds = schema, self._kinds
        if self._mode == PRIVATE:
            make_private(self.path)
        self._writer = ArrowOutput(self.path, schema)

    def _rewrite(self, schema: pa.Schema) -> None:
        """Write the file anew, with wider numbers, or more kinds."""
        assert self._writer is not None
        self._writer.close()
        before = self.path.with_suffix(".narrow")
        self.path.rename(before)
        self._open(schema)
        with pa.memory_map(str(before)) as source, pa.ipc.open_file(source) as file:
            for number in range(file.num_record_batches):
                batch = file.get_batch(number).cast(schema)
                if "kind" in schema.names:
                    kind = kind_array(batch.column("kind").indices.to_numpy(), self._kinds)
                    batch = batch.set_column(schema.names.index("kind"), "kind", kind)
                self._writer.write_batch(batch)
        before.unlink()
