"""Files of the transcript format, written as a stream: a file appears under its name when it is complete."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from victims.common.errors import InputError
from victims.common.files import (
    PRIVATE,
    PUBLIC,
    make_private,
    output,
    partial_name,
    remove,
    unfinished,
    write_text,
)
from victims.transcript.beside import (
    clients_path,
    truth_path,
)
from victims.transcript.given_columns import (
    Numbers,
    array_of,
    ids_of,
    kind_array,
    numbers_of,
    payload,
    rows_of_numbers,
    same_length,
    vector_array,
)
from victims.transcript.kinds import ATTRIBUTE, INT32_MAX, ITEM, KINDS, OF_IMPLICIT, RECORDED
from victims.transcript.manifest import Manifest, file_of


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


SERVER = -1


class TranscriptWriter:
    """Stream one transcript to disk; it appears under its name only when it is complete.

    Use as a context manager. An error or Ctrl-C removes the unfinished files and leaves whatever
    was at ``path`` before.

    What is written is checked against the manifest, so that the files can be read: whole numbers of any
    width that fit (floats and flags are refused), finite numbers, shapes, and rows for every round.
    Lists are as good as arrays. The first call fixes whether vectors have float32 or float64: narrower
    ones are widened, wider ones are refused, for they would lose digits.
    """

    def __init__(self, path: Path | str, manifest: Manifest) -> None:
        path = Path(path)
        if path.exists():
            raise InputError(f"{path} exists; choose another name or remove it first")
        self.path = path
        self.manifest = manifest
        self._partial = partial_name(path)
        self._unfinished = ExitStack()
        self._files: dict[str, ArrowOutput] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._declared_rounds = frozenset(manifest.rounds)
        self._rounds: dict[str, set[int]] = {"state": set(), "messages": set()}
        self._others = [name for name, kind in manifest.kinds.items() if kind.role == "other"]
        implicit = {name: kind.implicit for name, kind in manifest.kinds.items() if kind.implicit}
        self._implicit = list(implicit)
        places = {OF_IMPLICIT[role]: self._names.index(name) for name, role in implicit.items()}
        self._places = {code: code for code in range(len(KINDS))} | places

    @property
    def _names(self) -> list[str]:
        """Kinds in the dictionary of ``messages.arrow``."""
        return [*KINDS, *self._others]

    def _kinds(self, kind: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
        """Places in that dictionary of some codes."""
        table = np.full(max(self._places) + 1, -1, np.int8)
        table[list(self._places)] = list(self._places.values())
        return table[kind]

    def __enter__(self) -> TranscriptWriter:
        with output(self.path):
            self._partial.mkdir(parents=True)
        self._unfinished.enter_context(unfinished(self._partial))
        write_text(self._partial / "manifest.json", json.dumps(file_of(self.manifest), indent=1) + "\n")
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
            missing = sorted(self._declared_rounds - written)
            if missing:
                raise InputError(
                    f"{name} must have rows for every round of the manifest, got none for round {missing[0]}"
                )

    def state(
        self,
        round_: int | np.integer,
        items: Numbers,
        attributes: Numbers,
        ciphertext: Sequence[bytes] | None = None,
        noise_scale: Numbers | None = None,
        bias: Numbers | None = None,
        holders: bool = False,
    ) -> None:
        """Write what was broadcast before the uploads of a round: the factors, or their ciphertexts."""
        number, width = self._checked_round(round_), self.manifest.factors
        if number in self._rounds["state"]:
            raise InputError(f"the state of a round must be written once, got round {number} again")
        tables, sizes = [], []
        for name, given, most in (
            ("items", items, self.manifest.n_items),
            ("attributes", attributes, self.manifest.n_attributes),
        ):
            table = array_of(name, given)
            if len(table) > most:
                raise InputError(f"{name} must have at most {most} rows (manifest), got {len(table)}")
            hidden = None if ciphertext is None else np.ones(len(table), bool)
            tables.append(rows_of_numbers(name, table, width, hidden))
            sizes.append(len(table))
        if ciphertext is not None:
            same_length(factors=range(sum(sizes)), ciphertext=ciphertext)
        factors = np.concatenate([table for table in tables if table.size] or tables)
        columns = {
            "round": pa.array(np.full(sum(sizes), number, np.int32)),
            "kind": kind_array(np.repeat([ITEM, ATTRIBUTE], sizes), [*KINDS, *self._implicit]),
            "index": pa.array(np.concatenate([np.arange(n, dtype=np.int32) for n in sizes])),
            **payload("factor", factors, ciphertext),
        }
        if noise_scale is not None:
            spread = rows_of_numbers("noise_scale", noise_scale, width)
            same_length(factors=range(sum(sizes)), noise_scale=spread)
            if spread.min(initial=0) < 0:
                raise InputError(f"noise_scale must be >= 0, got {spread.min():g}")
            columns["noise_scale"] = vector_array(spread)
        if bias is not None:
            added = numbers_of("bias", bias)
            same_length(factors=range(sum(sizes)), bias=added)
            columns["bias"] = pa.array(added)
        if holders:
            columns["holder"] = pa.nulls(sum(sizes), pa.int32())
        self._write("state", number, columns)

    def holding(
        self,
        round_: int | np.integer,
        holder: int | np.integer | None,
        items: Numbers,
        factors: Numbers,
        kind: int = ITEM,
    ) -> None:
        """Write item factors that one client alone knows before the rows of a round, after its ``state``."""
        number = self._checked_round(round_)
        index = ids_of("items", items, 0, self.manifest.n_items - 1, "an item of the manifest")
        rows = rows_of_numbers("factors", factors, self.manifest.factors)
        same_length(items=index, factors=rows)
        columns = {
            "round": pa.array(np.full(index.size, number, np.int32)),
            "kind": kind_array(self._of_state(kind, index.size), [*KINDS, *self._implicit]),
            "index": pa.array(index),
            **payload("factor", rows, None),
            "holder": pa.nulls(index.size, pa.int32())
            if holder is None
            else pa.array(np.full(index.size, self._parties("holder", [holder])[0], np.int32)),
        }
        self._write("state", number, columns)

    def _of_state(self, kind: int, size: int) -> Int[np.ndarray, " rows"]:
        """Place in the dictionary of ``state.arrow``, as often as there are rows."""
        if kind not in self._places:
            raise InputError(f"kind must be one that the manifest declares, got {kind}")
        return np.full(size, [*KINDS, *self._implicit].index(self._names[self._places[kind]]))

    def deliveries(
        self,
        sender: Numbers,
        receiver: Numbers,
        weight: Numbers,
        first_round: int = 0,
        last_round: int = INT32_MAX,
    ) -> None:
        """Write the edges along which rows without a receiver go; once, or once for each graph."""
        if not 0 <= first_round <= last_round <= INT32_MAX:
            raise InputError(
                f"first_round must be between 0 and last_round = {last_round}, got {first_round}"
            )
        ends = {
            name: self._parties(name, given) for name, given in (("sender", sender), ("receiver", receiver))
        }
        weights = numbers_of("weight", weight)
        same_length(**ends, weight=weights)
        columns = {name: pa.array(column) for name, column in ends.items()}
        columns["weight"] = pa.array(weights)
        columns["first_round"] = pa.array(np.full(weights.size, first_round, np.int32))
        columns["last_round"] = pa.array(np.full(weights.size, last_round, np.int32))
        self._write("deliveries", 0, columns)

    def set_up(
        self,
        round_: int | np.integer,
        kind: str,
        sender: Numbers,
        receiver: int | np.integer,
        index: Numbers,
        value: Numbers | None,
    ) -> None:
        """Write messages of a declared kind of role other, after the uploads of a round."""
        number = self._checked_round(round_)
        if kind not in self._others:
            raise InputError(f"kind must be a declared one of role other, got {kind!r:.80}")
        schema = self._schemas.get("messages")
        if schema is None:
            raise InputError("set_up must come after messages, which fix the columns; write those first")
        index = ids_of("index", index, 0, INT32_MAX, ">= 0 and fit into 32 bits")
        sender = self._parties("sender", sender)
        same_length(sender=sender, index=index)
        names = self._names
        columns = {field.name: pa.nulls(index.size, field.type) for field in schema}
        columns["round"] = pa.array(np.full(index.size, number, np.int32))
        columns["sender"] = pa.array(sender)
        columns["receiver"] = pa.array(
            np.full(index.size, self._parties("receiver", [receiver])[0], np.int32)
        )
        columns["kind"] = kind_array(np.full(index.size, names.index(kind)), names)
        columns["index"] = pa.array(index)
        if value is not None:
            numbers = numbers_of("value", value)
            same_length(index=index, value=numbers)
            columns["value"] = pa.array(numbers)
        self._write("messages", number, columns)

    def messages(
        self,
        round_: int | np.integer,
        sender: Numbers,
        kind: Numbers,
        index: Numbers,
        gradient: Numbers,
        receiver: int | np.integer | None = SERVER,
        ciphertext: Sequence[bytes | None] | None = None,
        exponent: Numbers | None = None,
        sequence: Numbers | None = None,
        reference: Numbers | None = None,
    ) -> None:
        """Append uploaded rows; those of one client should follow each other, or reading has to sort them."""
        number, manifest = self._checked_round(round_), self.manifest
        kind = ids_of("kind", kind, 0, max(self._places), f"a place in {', '.join(KINDS)}")
        places = self._kinds(kind)
        if (places < 0).any():
            raise InputError(f"kind must be a place in {', '.join(KINDS)}, got {kind[places.argmin()]}")
        index = ids_of("index", index, 0, INT32_MAX, ">= 0 and fit into 32 bits")
        sender = self._parties("sender", sender)
        gradient = array_of("gradient", gradient)
        hidden = None
        if ciphertext is not None:
            hidden = np.array([sealed is not None for sealed in ciphertext], bool)
        same_length(sender=sender, kind=kind, index=index, gradient=gradient, ciphertext=hidden)
        gradient = rows_of_numbers("gradient", gradient, manifest.factors, hidden)
        limit = np.where(kind % 2 == ATTRIBUTE, np.int32(manifest.n_attributes), np.int32(manifest.n_items))
        if (index >= limit).any():
            row = int((index >= limit).argmax())
            raise InputError(
                f"index of kind {self._names[places[row]]} must be below {limit[row]} (manifest), "
                f"got {index[row]} in row {row}"
            )
        columns = {
            "round": pa.array(np.full(sender.size, number, np.int32)),
            "sender": pa.array(sender),
            "receiver": pa.nulls(sender.size, pa.int32())
            if receiver is None
            else pa.array(np.full(sender.size, self._parties("receiver", [receiver])[0], np.int32)),
            "kind": kind_array(places, self._names),
            "index": pa.array(index),
            **payload("gradient", gradient, ciphertext),
        }
        if self._others:
            columns["value"] = pa.nulls(sender.size, pa.float64())
        if exponent is not None:
            whole = ids_of("exponent", exponent, -INT32_MAX, INT32_MAX, "an integer of 32 bits")
            same_length(sender=sender, exponent=whole)
            columns["exponent"] = pa.array(whole)
        if sequence is not None:
            places = ids_of("sequence", sequence, 0, INT32_MAX, ">= 0 and fit into 32 bits")
            same_length(sender=sender, sequence=places)
            columns["sequence"] = pa.array(places)
        if reference is not None:
            met = rows_of_numbers("reference", reference, manifest.factors)
            same_length(sender=sender, reference=met)
            columns["reference"] = vector_array(met)
        self._write("messages", number, columns)

    def _checked_round(self, round_: Any) -> int:
        if isinstance(round_, bool) or not isinstance(round_, int | np.integer):
            raise InputError(f"round must be a whole number, got {round_!r:.80}")
        if int(round_) not in self._declared_rounds:
            raise InputError(f"round must be one of the manifest's rounds, got {round_}")
        return int(round_)

    def _parties(self, name: str, values: Numbers) -> Int[np.ndarray, " rows"]:
        """Clients of the manifest, or its other parties."""
        parties = [SERVER, *self.manifest.parties.values()]
        rule = f"a client below n_users = {self.manifest.n_users} or a party of the manifest"
        ids = ids_of(name, values, min(parties), self.manifest.n_users - 1, rule)
        if ids.min(initial=0) < 0:
            strange = np.flatnonzero((ids < 0) & ~np.isin(ids, parties))
            if strange.size:
                raise InputError(f"{name} must be {rule}, got {ids[strange[0]]} in row {strange[0]}")
        return ids

    def _write(self, name: str, round_: int, columns: dict[str, pa.Array]) -> None:
        batch = pa.RecordBatch.from_pydict(columns)
        if batch.num_rows and name in self._rounds:
            self._rounds[name].add(round_)
        with output(self.path):
            if name not in self._files:
                self._files[name] = ArrowOutput(self._partial / f"{name}.arrow", batch.schema)
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


class RecordedFiles:
    """A transcript, and what lies beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = partial_name(path)
        self._spools: dict[str, Spool] = {}
        self._open = ExitStack()
        self._stage = "not begun"
        self._refuse_existing()

    @property
    def state(self) -> Spool:
        """``state.arrow``."""
        return self._spool("state")

    @property
    def messages(self) -> Spool:
        """``messages.arrow``."""
        return self._spool("messages")

    @property
    def deliveries(self) -> Spool:
        """``deliveries.arrow``."""
        return self._spool("deliveries")

    @property
    def truth(self) -> Spool:
        """``NAME.truth.arrow``."""
        return self._spool("truth")

    def begin(self) -> None:
        """Make the hidden folder."""
        if self._stage != "not begun":
            raise InputError(
                f"a Recorder writes one recording, this one of {self.path} is {self._stage}; make another"
            )
        made = [above for above in self.path.parents if not above.exists()]
        self._open.callback(_remove_empty, made)
        with output(self.path), self._open.pop_all() as opening:
            self.folder.mkdir(parents=True)
            opening.enter_context(unfinished(self.folder))
            self._open = opening.pop_all()
        nullable = {"state": ("holder",), "messages": ("sender", "receiver")}
        self._spools = {
            name: Spool(self.folder / f"{name}.arrow", nullable.get(name, ()))
            for name in ("state", "messages", "deliveries")
        }
        self._spools["truth"] = Spool(self.folder / "truth.arrow", mode=PRIVATE)
        self._stage = "open"

    @contextmanager
    def ending(self, error: type | None) -> Iterator[None]:
        """Whatever happens inside, nothing unfinished is left; after an error, nothing at all."""
        with self._open, output(self.path):
            try:
                yield
            finally:
                self._stage = "over"
                for spool in self._spools.values():
                    with suppress(OSError):  # the first error is what counts
                        spool.abandon()

    def end(self) -> None:
        """Write what waits."""
        for spool in self._spools.values():
            spool.close()

    def appear(self, manifest: Manifest, clients: Mapping[Hashable, int]) -> None:
        """Give the files their names, all or none of them."""
        write_text(self.folder / "manifest.json", json.dumps(file_of(manifest), indent=1) + "\n")
        names = {str(number): repr(key) for key, number in clients.items()}
        write_text(self.folder / "clients.json", json.dumps(names, indent=1) + "\n", PRIVATE)
        beside = {self.folder / "clients.json": clients_path(self.path)}
        truth = self.folder / "truth.arrow"
        if truth.exists():
            beside[truth] = truth_path(self.path)
        self._refuse_existing()  # somebody else may have made them meanwhile
        with ExitStack() as moved:
            for source, target in beside.items():
                moved.callback(remove, target)
                source.rename(target)
            self.folder.rename(self.path)
            moved.pop_all()

    def _spool(self, name: str) -> Spool:
        if self._stage != "open":
            raise InputError(
                f"a Recorder must be called inside its context, this one of {self.path} is {self._stage}; "
                "write with Recorder(...) as recorder: and call it there"
            )
        return self._spools[name]

    def _refuse_existing(self) -> None:
        for there in (self.path, truth_path(self.path), clients_path(self.path)):
            if there.exists():
                raise InputError(f"{there} exists; choose another name or remove it first")


def _remove_empty(folders: list[Path]) -> None:
    """Folders that were made for a recording that came to nothing, the deepest first."""
    for folder in folders:
        with suppress(OSError):  # others use it, or it holds the recording
            folder.rmdir()
