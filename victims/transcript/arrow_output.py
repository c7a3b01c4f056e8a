"""An Arrow IPC file that is being written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa


class ArrowOutput:
    """A file of record batches, whose handle is given back even where its end cannot be written.

    A full disk would else stay full: a file that is removed keeps its place for as long as it is open.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """End the file; once closed it stays so."""
        if self._sink.closed:
            return
        try:
            self._writer.close()
        finally:
            self._sink.close()
