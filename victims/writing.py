"""Files of the transcript format, written as a stream: a file appears under its name when it is complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from victims.errors import InputError
from victims.manifest import Manifest
from victims.view import ATTRIBUTE, ITEM, KINDS


def kind_array(kind: Int[np.ndarray, " rows"]) -> pa.DictionaryArray:
    """Positions in ``KINDS`` as the dictionary column of the format."""
    return pa.DictionaryArray.from_arrays(pa.array(kind.astype(np.int8)), pa.array(list(KINDS), pa.string()))


def _vector_array(values: Float[np.ndarray, "rows factors"]) -> pa.FixedSizeListArray:
    """Vectors as the format wants them."""
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _payload(
    name: str, values: Float[np.ndarray, "rows factors"], ciphertext: Sequence[bytes | None] | None
) -> dict[str, pa.Array]:
    """Vectors in the clear, or null beside the ciphertexts that stand for them."""
    if ciphertext is None:
        return {name: _vector_array(values)}
    hidden = np.array([sealed is not None for sealed in ciphertext], bool)
    flat = pa.array(np.where(hidden[:, None], 0.0, values).reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=pa.array(hidden))
    return {name: vectors, "ciphertext": pa.array(ciphertext, pa.large_binary())}


class TranscriptWriter:
    """Stream one transcript to disk; it appears under its name only when it is complete.

    Use as a context manager. An error or Ctrl-C removes the unfinished files and leaves whatever
    was at ``path`` before.

    Parameters
    ----------
    path : Path
        Directory to create; it must not exist.
    manifest : Manifest
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        if path.exists():
            raise InputError(f"{path} exists; choose another name or remove it first")
        self.path = path
        self.manifest = manifest
        self._partial = path.with_name(f"{path.name}.partial")
        self._files: dict[str, pa.RecordBatchFileWriter] = {}

    def __enter__(self) -> TranscriptWriter:
        shutil.rmtree(self._partial, ignore_errors=True)
        try:
            self._partial.mkdir(parents=True)
        except OSError as error:
            raise InputError(f"{self.path} cannot be created: {error}") from None
        text = json.dumps(self.manifest.model_dump(), indent=1)
        (self._partial / "manifest.json").write_text(text + "\n", encoding="utf-8")
        return self

    def __exit__(self, error_type: type | None, *_: object) -> None:
        for writer in self._files.values():
            writer.close()
        if error_type is None:
            self._partial.rename(self.path)
        else:
            shutil.rmtree(self._partial, ignore_errors=True)

    def state(
        self,
        round_: int,
        items: Float[np.ndarray, "items factors"],
        attributes: Float[np.ndarray, "attributes factors"],
        ciphertext: Sequence[bytes] | None = None,
        noise_scale: Float[np.ndarray, "rows factors"] | None = None,
    ) -> None:
        """Write what was broadcast before the uploads of ``round_``: the factors, or their ciphertexts.

        ``noise_scale`` is the standard deviation of Gaussian noise in every upload about a row, where the
        protocol broadcasts that.
        """
        sizes = [items.shape[0], attributes.shape[0]]
        columns = {
            "round": pa.array(np.full(sum(sizes), round_, np.int32)),
            "kind": kind_array(np.repeat([ITEM, ATTRIBUTE], sizes)),
            "index": pa.array(np.concatenate([np.arange(n, dtype=np.int32) for n in sizes])),
            **_payload("factor", np.concatenate([items, attributes]), ciphertext),
        }
        if noise_scale is not None:
            columns["noise_scale"] = _vector_array(noise_scale)
        self._write("state", columns)

    def messages(
        self,
        round_: int,
        sender: Int[np.ndarray, " rows"],
        kind: Int[np.ndarray, " rows"],
        index: Int[np.ndarray, " rows"],
        gradient: Float[np.ndarray, "rows factors"],
        receiver: int = -1,
        ciphertext: Sequence[bytes | None] | None = None,
        exponent: Int[np.ndarray, " rows"] | None = None,
    ) -> None:
        """Append uploaded rows; rows of one client should follow each other.

        With ``ciphertext``, rows that have one are written without their gradient; ``exponent`` is what an
        encoding publishes beside it. Either all calls for a transcript give them or none does.
        """
        columns = {
            "round": pa.array(np.full(sender.size, round_, np.int32)),
            "sender": pa.array(sender.astype(np.int32, copy=False)),
            "receiver": pa.array(np.full(sender.size, receiver, np.int32)),
            "kind": kind_array(kind),
            "index": pa.array(index.astype(np.int32, copy=False)),
            **_payload("gradient", gradient, ciphertext),
        }
        if exponent is not None:
            columns["exponent"] = pa.array(exponent.astype(np.int32))
        self._write("messages", columns)

    def _write(self, name: str, columns: dict[str, pa.Array]) -> None:
        batch = pa.RecordBatch.from_pydict(columns)
        if name not in self._files:
            self._files[name] = pa.ipc.new_file(str(self._partial / f"{name}.arrow"), batch.schema)
        self._files[name].write_batch(batch)


def truth_path(transcript: Path) -> Path:
    """``NAME.truth.arrow`` beside the transcript ``NAME``."""
    return transcript.with_name(f"{transcript.name}.truth.arrow")


def key_path(transcript: Path) -> Path:
    """``NAME.key.json`` beside the transcript ``NAME``: what its clients can decrypt with."""
    return transcript.with_name(f"{transcript.name}.key.json")


def write_key(path: Path, key: Mapping[str, str]) -> None:
    """Write a key, readable by its owner only."""
    partial = path.with_name(f"{path.name}.partial")
    partial.touch(mode=0o600)
    partial.write_text(json.dumps(dict(key), indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def write_columns(
    path: Path, batches: Iterable[dict[str, pa.Array]], metadata: dict[bytes, bytes] | None = None
) -> None:
    """Write an Arrow IPC file batch by batch; it appears under its name only when complete."""
    partial = path.with_name(f"{path.name}.partial")
    writer = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for columns in batches:
            batch = pa.RecordBatch.from_pydict(columns)
            if writer is None:
                schema = batch.schema.with_metadata(metadata)
                writer = pa.ipc.new_file(str(partial), schema)
            writer.write_batch(batch.replace_schema_metadata(metadata))
        if writer is None:
            raise InputError(f"{path} would hold no row")
        writer.close()
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from None
    finally:
        partial.unlink(missing_ok=True)


def write_truth(
    path: Path,
    user: Int[np.ndarray, " rows"],
    kind: Int[np.ndarray, " rows"],
    index: Int[np.ndarray, " rows"],
    value: Float[np.ndarray, " rows"],
) -> None:
    """Write what the clients kept private: ratings that exist, and all attribute columns."""
    columns = {
        "user": pa.array(user.astype(np.int32)),
        "kind": kind_array(kind),
        "index": pa.array(index.astype(np.int32)),
        "value": pa.array(value.astype(np.float64)),
    }
    write_columns(path, [columns])
