"""Files of the transcript format, written as a stream: a file appears under its name when it is complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.common.files import PRIVATE, PUBLIC, output, partial_name, replacing, unfinished, write_text
from victims.common.limits import LARGEST, scanned
from victims.transcript.manifest import INT32_MAX, Manifest
from victims.transcript.view import ATTRIBUTE, ITEM, KINDS

Numbers = np.ndarray | Sequence[Any]  # checked where they are written


def _ids(name: str, values: Numbers, low: int, high: int, rule: str) -> Int[np.ndarray, " rows"]:
    """Whole numbers of any width in ``[low, high]`` as int32, one a row."""
    array = np.asarray(values)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"{name} must be one whole number a row, got {array.dtype} of shape {array.shape}; "
            "convert it to int32 or int64"
        )
    if array.min() < low or array.max() > high:
        row = int(np.flatnonzero((array < low) | (array > high))[0])
        raise InputError(f"{name} must be {rule}, got {array[row]} in row {row}")
    return array.astype(np.int32, copy=False)


def _rows(
    name: str, values: Numbers, width: int, hidden: np.ndarray | None = None
) -> Float[np.ndarray, "rows factors"]:
    """Finite vectors of ``width`` numbers in float32 or float64; rows that are hidden may hold anything."""
    array = np.asarray(values)
    if array.size == 0 and array.shape in ((0,), (0, width)):
        return np.zeros((0, width), array.dtype if array.dtype == np.float32 else np.float64)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise InputError(f"{name} must be float32 or float64, got {array.dtype}; convert it first")
    if array.ndim != 2 or array.shape[1] != width:
        raise InputError(f"{name} must have K = {width} numbers a row (manifest), got shape {array.shape}")
    if array.dtype not in (np.float32, np.float64):  # both hold every number of the narrower ones
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    seen = array if hidden is None or not hidden.any() else array[~hidden]
    bad, _ = scanned(seen)
    if bad is not None:
        row = bad if seen is array or hidden is None else int(np.flatnonzero(~hidden)[bad])
        rule = f"at most {LARGEST:g} in size" if np.isfinite(array[row]).all() else "finite"
        raise InputError(f"{name} must be {rule}, got {array[row]} in row {row}")
    return array


def _same_length(**columns: Sequence[Any] | np.ndarray | None) -> None:
    """Refuse columns of several lengths; None is no column."""
    sizes = {name: len(column) for name, column in columns.items() if column is not None}
    first, size = next(iter(sizes.items()))
    for name, other in sizes.items():
        if other != size:
            raise InputError(f"{name} must have as many rows as {first}, {size}, got {other}")


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

    What is written is checked against the manifest, so that the files can be read: whole numbers of any
    width that fit (floats and flags are refused), finite numbers, shapes, and rows for every round.
    Lists are as good as arrays. The first call fixes whether vectors have float32 or float64: narrower
    ones are widened, wider ones are refused, for they would lose digits.

    Parameters
    ----------
    path : Path or str
        Directory to create; it must not exist.
    manifest : Manifest

    Raises
    ------
    InputError
        Naming what was given, the rule and the value; also by the methods.
    """

    def __init__(self, path: Path | str, manifest: Manifest) -> None:
        path = Path(path)
        if path.exists():
            raise InputError(f"{path} exists; choose another name or remove it first")
        self.path = path
        self.manifest = manifest
        self._partial = partial_name(path)
        self._unfinished = ExitStack()
        self._files: dict[str, pa.RecordBatchFileWriter] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._known_rounds = frozenset(manifest.rounds)
        self._rounds: dict[str, set[int]] = {"state": set(), "messages": set()}

    def __enter__(self) -> TranscriptWriter:
        with output(self.path):
            self._partial.mkdir(parents=True)
        self._unfinished.enter_context(unfinished(self._partial))
        write_text(self._partial / "manifest.json", json.dumps(self.manifest.model_dump(), indent=1) + "\n")
        return self

    def __exit__(self, error_type: type | None, *_: object) -> None:
        with self._unfinished, output(self.path):
            for writer in self._files.values():
                with suppress(OSError) if error_type else nullcontext():  # the first error is what counts
                    writer.close()
            if error_type is None:
                self._refuse_missing_rounds()
                self._partial.rename(self.path)

    def _refuse_missing_rounds(self) -> None:
        for name, written in self._rounds.items():
            missing = sorted(self._known_rounds - written)
            if missing:
                raise InputError(
                    f"{name} must have rows for every round of the manifest, got none for round {missing[0]}"
                )

    def _round(self, name: str, round_: Any, rows: int) -> None:
        if isinstance(round_, bool) or not isinstance(round_, int | np.integer):
            raise InputError(f"round must be a whole number, got {round_!r}")
        if int(round_) not in self._known_rounds:
            raise InputError(f"round must be one of the manifest's rounds, got {round_}")
        if rows:
            self._rounds[name].add(int(round_))

    def state(
        self,
        round_: int | np.integer,
        items: Numbers,
        attributes: Numbers,
        ciphertext: Sequence[bytes] | None = None,
        noise_scale: Numbers | None = None,
    ) -> None:
        """Write what was broadcast before the uploads of ``round_``: the factors, or their ciphertexts.

        Row j of ``items`` (n_items, factors) is about item j, of ``attributes`` (n_attributes, factors) about
        attribute j. ``noise_scale`` (all rows, factors) is the standard deviation of Gaussian noise in every
        upload about a row, where the protocol broadcasts that.
        """
        manifest, hidden = self.manifest, None
        sizes = [len(items), len(attributes)]
        if ciphertext is not None:
            _same_length(factors=range(sum(sizes)), ciphertext=ciphertext)
            hidden = np.ones(sum(sizes), bool)
        hiding = [None, None] if hidden is None else np.split(hidden, sizes[:1])
        given = (("items", items, manifest.n_items), ("attributes", attributes, manifest.n_attributes))
        factors = []
        for (name, values, most), out in zip(given, hiding, strict=True):
            if len(values) > most:
                raise InputError(f"{name} must have at most {most} rows (manifest), got {len(values)}")
            factors.append(_rows(name, values, manifest.factors, out))
        if int(round_) in self._rounds["state"]:
            raise InputError(f"the state of a round must be written once, got round {round_} again")
        self._round("state", round_, sum(sizes))
        columns = {
            "round": pa.array(np.full(sum(sizes), round_, np.int32)),
            "kind": kind_array(np.repeat([ITEM, ATTRIBUTE], sizes)),
            "index": pa.array(np.concatenate([np.arange(n, dtype=np.int32) for n in sizes])),
            **_payload(
                "factor", np.concatenate([part for part in factors if part.size] or factors), ciphertext
            ),
        }
        if noise_scale is not None:
            spread = _rows("noise_scale", noise_scale, manifest.factors)
            _same_length(factors=range(sum(sizes)), noise_scale=spread)
            if spread.min(initial=0) < 0:
                raise InputError(f"noise_scale must be >= 0, got {spread.min():g}")
            columns["noise_scale"] = _vector_array(spread)
        self._write("state", columns)

    def messages(
        self,
        round_: int | np.integer,
        sender: Numbers,
        kind: Numbers,
        index: Numbers,
        gradient: Numbers,
        receiver: int | np.integer = -1,
        ciphertext: Sequence[bytes | None] | None = None,
        exponent: Numbers | None = None,
    ) -> None:
        """Append uploaded rows: one number a row, ``gradient`` (rows, factors); rows of one client should
        follow each other, by kind and index, or reading has to sort them.

        With ``ciphertext``, rows that have one are written without their gradient; ``exponent`` is what an
        encoding publishes beside it. Either all calls for a transcript give them or none does.
        """
        manifest = self.manifest
        kind = _ids("kind", kind, 0, len(KINDS) - 1, f"a place in {', '.join(KINDS)}")
        index = _ids("index", index, 0, INT32_MAX, ">= 0 and fit into 32 bits")
        sender = self._parties("sender", sender)
        hidden = None
        if ciphertext is not None:
            hidden = np.array([sealed is not None for sealed in ciphertext], bool)
        _same_length(sender=sender, kind=kind, index=index, gradient=gradient, ciphertext=hidden)
        gradient = _rows("gradient", gradient, manifest.factors, hidden)
        limit = np.where(kind % 2 == ATTRIBUTE, np.int32(manifest.n_attributes), np.int32(manifest.n_items))
        if (index >= limit).any():
            row = int((index >= limit).argmax())
            raise InputError(
                f"index of kind {KINDS[kind[row]]} must be below {limit[row]} (manifest), "
                f"got {index[row]} in row {row}"
            )
        self._round("messages", round_, sender.size)
        columns = {
            "round": pa.array(np.full(sender.size, round_, np.int32)),
            "sender": pa.array(sender),
            "receiver": pa.array(np.full(sender.size, self._parties("receiver", [receiver])[0], np.int32)),
            "kind": kind_array(kind),
            "index": pa.array(index),
            **_payload("gradient", gradient, ciphertext),
        }
        if exponent is not None:
            whole = _ids("exponent", exponent, -INT32_MAX, INT32_MAX, "an integer of 32 bits")
            _same_length(sender=sender, exponent=whole)
            columns["exponent"] = pa.array(whole)
        self._write("messages", columns)

    def _parties(self, name: str, values: Numbers) -> Int[np.ndarray, " rows"]:
        """Clients of the manifest, or its other parties."""
        parties = [-1, *self.manifest.parties.values()]
        rule = f"a client below n_users = {self.manifest.n_users} or a party of the manifest"
        found = _ids(name, values, min(parties), self.manifest.n_users - 1, rule)
        if found.min(initial=0) < 0:
            strange = np.flatnonzero((found < 0) & ~np.isin(found, parties))
            if strange.size:
                raise InputError(f"{name} must be {rule}, got {found[strange[0]]} in row {strange[0]}")
        return found

    def _write(self, name: str, columns: dict[str, pa.Array]) -> None:
        batch = pa.RecordBatch.from_pydict(columns)
        with output(self.path):
            if name not in self._files:
                self._files[name] = pa.ipc.new_file(str(self._partial / f"{name}.arrow"), batch.schema)
                self._schemas[name] = batch.schema
            self._files[name].write_batch(_fitted(name, batch, self._schemas[name]))


def _fitted(name: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns of the first one; float32 becomes float64, not the other way round."""
    if batch.schema == schema:
        return batch
    if batch.schema.names != schema.names:
        apart = sorted(set(batch.schema.names) ^ set(schema.names))
        raise InputError(
            f"{name} must have the same columns in every call, got {', '.join(apart)} in some of them only"
        )
    for given, wanted in zip(batch.schema, schema, strict=True):
        if given.type != wanted.type and wanted.type.value_type == pa.float32():
            raise InputError(
                f"{given.name} must be float32, as in the first call, got float64; "
                "write float64 from the start"
            )
    return batch.cast(schema)


def truth_path(transcript: Path | str) -> Path:
    """``NAME.truth.arrow`` beside the transcript ``NAME``."""
    transcript = Path(transcript)
    return transcript.with_name(f"{transcript.name}.truth.arrow")


def key_path(transcript: Path | str) -> Path:
    """``NAME.key.json`` beside the transcript ``NAME``: what its clients can decrypt with."""
    transcript = Path(transcript)
    return transcript.with_name(f"{transcript.name}.key.json")


def write_key(path: Path, key: Mapping[str, str]) -> None:
    """Write a key, readable by its owner only."""
    write_text(path, json.dumps(dict(key), indent=1) + "\n", PRIVATE)


def write_columns(
    path: Path,
    batches: Iterable[dict[str, pa.Array]],
    metadata: dict[bytes, bytes] | None = None,
    mode: int = PUBLIC,
) -> None:
    """Write an Arrow IPC file batch by batch; it appears under its name only when complete."""
    with replacing(path, mode) as partial, ExitStack() as opened:
        writer = None
        for columns in batches:
            batch = pa.RecordBatch.from_pydict(columns)
            if writer is None:
                schema = batch.schema.with_metadata(metadata)
                writer = opened.enter_context(pa.ipc.new_file(str(partial), schema))
            writer.write_batch(batch.replace_schema_metadata(metadata))
        if writer is None:
            raise InputError(f"{path} would hold no row")


def write_truth(path: Path | str, user: Numbers, kind: Numbers, index: Numbers, value: Numbers) -> None:
    """Write what the clients kept private: ratings that exist, and all attribute columns.

    The file is as private as a key, readable by its owner only: it holds what everything here is about.

    Parameters
    ----------
    path : Path or str
    user, kind, index : (n_rows,) whole numbers
        Clients >= 0, ``ITEM`` or ``ATTRIBUTE``, and which.
    value : (n_rows,)
        Stars, or attributes.

    Raises
    ------
    InputError
        If ids do not fit into 32 bits, a number is not finite, or lengths differ.
    """
    fits = ">= 0 and fit into 32 bits"
    columns = {
        "user": _ids("user", user, 0, INT32_MAX, fits),
        "kind": _ids("kind", kind, ITEM, ATTRIBUTE, f"{ITEM} (item) or {ATTRIBUTE} (attribute)"),
        "index": _ids("index", index, 0, INT32_MAX, fits),
        "value": _rows("value", np.asarray(value).reshape(-1, 1), 1)[:, 0].astype(np.float64),
    }
    _same_length(**columns)
    write_columns(
        Path(path),
        [{name: kind_array(part) if name == "kind" else pa.array(part) for name, part in columns.items()}],
        mode=PRIVATE,
    )
