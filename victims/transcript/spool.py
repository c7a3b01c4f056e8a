"""Rows appended to an Arrow file of unknown length in little memory; the file follows the widest numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from victims.common.errors import InputError
from victims.common.files import output
from victims.transcript.given_columns import kind_array, vector_array

ROWS, BYTES = 1 << 16, 32 << 20  # of a batch: few calls, yet little memory
NULL = -(2**31)  # stands for null in columns that may be


class Spool:
    """A file of one set of columns; rows are written when enough have come.

    Parameters
    ----------
    path : Path
    nullable : tuple of str
        Columns of whole numbers in which ``NULL`` is written as null.
    """

    def __init__(self, path: Path, nullable: tuple[str, ...] = ()) -> None:
        self.path = path
        self.n_rows = 0
        self._nullable = nullable
        self._waiting: list[dict[str, np.ndarray]] = []
        self._rows = self._bytes = 0
        self._writer: pa.RecordBatchFileWriter | None = None
        self._schema: pa.Schema | None = None

    def add(self, columns: dict[str, np.ndarray]) -> None:
        """Append rows: (n_rows, ...) arrays of one length, the same names in every call."""
        self._waiting.append(columns)
        rows = len(next(iter(columns.values())))
        self.n_rows += rows
        self._rows += rows
        self._bytes += sum(column.nbytes for column in columns.values())
        if self._rows >= ROWS or self._bytes >= BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if not self._waiting:
            return
        names = list(self._waiting[0])
        for given in self._waiting:
            self._refuse_other_columns(list(given), names)
        joined = {name: np.concatenate([given[name] for given in self._waiting]) for name in names}
        batch = pa.RecordBatch.from_pydict(
            {name: self._array(name, column) for name, column in joined.items()}
        )
        self._waiting, self._rows, self._bytes = [], 0, 0
        with output(self.path):
            self._fit(batch.schema)
            assert self._writer is not None
            self._writer.write_batch(batch.cast(self._schema))

    def close(self) -> None:
        """Write what waits, and end the file, if there are rows."""
        self.flush()
        if self._writer is not None:
            with output(self.path):
                self._writer.close()

    def abandon(self) -> None:
        """Close the file, whatever is in it."""
        if self._writer is not None:
            self._writer.close()

    def _array(self, name: str, column: np.ndarray) -> pa.Array:
        if name == "kind":
            return kind_array(column)
        if column.ndim == 2:
            return vector_array(column)
        return pa.array(column, mask=column == NULL) if name in self._nullable else pa.array(column)

    def _fit(self, schema: pa.Schema) -> None:
        """Begin the file, or write it anew where numbers are wider than before."""
        if self._schema is None:
            self._begin(schema)
            return
        self._refuse_other_columns(schema.names, self._schema.names)
        wider = [_wider(old, new) for old, new in zip(self._schema, schema, strict=True)]
        if pa.schema(wider) == self._schema:
            return
        assert self._writer is not None
        self._writer.close()
        before = self.path.with_suffix(".narrow")
        self.path.rename(before)
        self._begin(pa.schema(wider))
        with pa.memory_map(str(before)) as source, pa.ipc.open_file(source) as file:
            for number in range(file.num_record_batches):
                self._writer.write_batch(file.get_batch(number).cast(self._schema))
        before.unlink()

    def _refuse_other_columns(self, given: list[str], wanted: list[str]) -> None:
        apart = sorted(set(given) ^ set(wanted))
        if apart:
            raise InputError(
                f"{self.path.stem} must have the same columns in every call, got {', '.join(apart)} in some "
                "of them only; give it always or never"
            )

    def _begin(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = pa.ipc.new_file(str(self.path), schema)


def _wider(old: pa.Field, new: pa.Field) -> pa.Field:
    """float32 becomes float64, not the other way round."""
    if pa.types.is_fixed_size_list(new.type) and new.type.value_type == pa.float64():
        return new
    return old
