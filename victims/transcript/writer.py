"""Files of the transcript format, written as a stream: they appear all at once when complete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from victims.common.errors import InputError
from victims.common.files import PRIVATE, PUBLIC, make_private, output, partial_name, remove, unfinished
from victims.transcript.columns import KIND, TABLES, VECTOR
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
from victims.transcript.messages import UNTOLD

ROWS, BYTES = 1 << 16, 32 << 20  # of a batch: few calls, yet little memory
SERVER = -1


class Table:
    """A file of one set of columns, of unknown length, written in little memory.

    Rows that come as arrays wait in a buffer for each column. The file follows the widest numbers, and has
    the dictionary of all kinds that occur.
    """

    def __init__(self, path: Path, columns: pa.Schema, mode: int = PUBLIC, most: int = BYTES) -> None:
        self.path = path
        self._columns = columns
        self.n_rows = 0
        self.schema: pa.Schema | None = None
        self._mode, self._most = mode, most
        self._buffers: dict[str, np.ndarray] = {}
        self._filled = self._capacity = 0
        self._sink: pa.NativeFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._kinds: tuple[str, ...] = KINDS
        self._written_kinds: tuple[str, ...] = KINDS

    def add(self, size: int, columns: Mapping[str, np.ndarray | int]) -> None:
        """Append rows; what is given is copied. ``UNTOLD`` stands for null."""
        if not self._buffers:
            self._begin(columns)
        kind = columns.get("kind", 0)
        if (kind.max(initial=0) if isinstance(kind, np.ndarray) else kind) >= len(KINDS):
            self._kinds = RECORDED
        arrays = {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
        for name, column in arrays.items():
            if (
                column.itemsize > self._buffers[name].itemsize
            ):  # float32 becomes float64, not the other way round
                self._flush()
                self._buffers[name] = np.empty(self._buffers[name].shape, column.dtype)
        done, left = 0, self._capacity - self._filled
        while size - done >= left:
            parts = {name: column[done : done + left] for name, column in arrays.items()}
            self._fill(left, {**columns, **parts})
            self._flush()
            done, left = done + left, self._capacity
        if done:
            columns = {**columns, **{name: column[done:] for name, column in arrays.items()}}
        self._fill(size - done, columns)
        self.n_rows += size

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch as it is; its kinds have one dictionary in every call."""
        with output(self.path):
            if self.schema is None:
                self._open(batch.schema)
            elif batch.schema != self.schema or self._kinds != self._written_kinds:
                batch = self._widened(batch)
            assert self._writer is not None
            self._writer.write_batch(batch)

    def close(self) -> None:
        """Write what waits, and end the file, if there are rows."""
        self._flush()
        with output(self.path):
            self.abandon()
        self._buffers = {}

    def abandon(self) -> None:
        """Close the file, whatever is in it.

        Its handle is given back even where its end cannot be written, or a full disk would stay full: a file
        that is removed keeps its place for as long as it is open.
        """
        if self._sink is None or self._sink.closed:
            return
        assert self._writer is not None
        try:
            self._writer.close()
        finally:
            self._sink.close()

    def _begin(self, columns: Mapping[str, np.ndarray | int]) -> None:
        nothing = np.zeros(0, np.int32)
        arrays = {n: column if isinstance(column, np.ndarray) else nothing for n, column in columns.items()}
        width = sum(array.itemsize * int(np.prod(array.shape[1:])) for array in arrays.values())
        self._capacity = min(ROWS, max(self._most // width, 1))
        self._buffers = {n: np.empty((self._capacity, *a.shape[1:]), a.dtype) for n, a in arrays.items()}

    def _fill(self, size: int, columns: Mapping[str, np.ndarray | int]) -> None:
        """Put rows behind those that wait; they fit."""
        here = slice(self._filled, self._filled + size)
        for name, column in columns.items():
            self._buffers[name][here] = column
        self._filled += size

    def _flush(self) -> None:
        if self._filled:
            waiting = {name: buffer[: self._filled] for name, buffer in self._buffers.items()}
            self.write(batch_of(self._columns, self._filled, waiting, self._kinds))
            self._filled = 0

    def _open(self, schema: pa.Schema) -> None:
        self.schema, self._written_kinds = schema, self._kinds
        if self._mode == PRIVATE:
            make_private(self.path)
        self._sink = pa.OSFile(str(self.path), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)

    def _widened(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch with the columns of the file, which is written again where the batch is wider."""
        assert self.schema is not None
        if batch.schema.names != self.schema.names:
            apart = sorted(set(batch.schema.names) ^ set(self.schema.names))
            raise InputError(
                f"{self.path.stem} must have the same columns in every call, got {', '.join(apart)} in some "
                "of them only"
            )
        pairs = zip(self.schema, batch.schema, strict=True)
        schema = pa.schema([max(pair, key=_is_wide) for pair in pairs])
        if schema != self.schema or self._kinds != self._written_kinds:
            self._rewrite(schema)
        return batch.cast(schema)

    def _rewrite(self, schema: pa.Schema) -> None:
        """Write the file again, with wider numbers, or more kinds."""
        self.abandon()
        before = self.path.with_suffix(".narrow")
        self.path.rename(before)
        self._open(schema)
        assert self._writer is not None
        with pa.memory_map(str(before)) as source, pa.ipc.open_file(source) as file:
            for number in range(file.num_record_batches):
                batch = file.get_batch(number).cast(schema)
                if "kind" in schema.names:
                    kind = kind_array(batch.column("kind").indices.to_numpy(), self._kinds)
                    batch = batch.set_column(schema.names.index("kind"), "kind", kind)
                self._writer.write_batch(batch)
        before.unlink()


def _is_wide(field: pa.Field) -> bool:
    return pa.types.is_fixed_size_list(field.type) and field.type.value_type == pa.float64()


def _opened(path: Path, until: ExitStack) -> pa.ipc.RecordBatchFileReader:
    return until.enter_context(pa.ipc.open_file(until.enter_context(pa.memory_map(str(path)))))


def _batches(file: pa.ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    return map(file.get_batch, range(file.num_record_batches))


def _write_joined(
    path: Path,
    kinds: Sequence[str],
    main: pa.ipc.RecordBatchFileReader,
    parts: Sequence[tuple[int, pa.ipc.RecordBatchFileReader]],
    moved: Int[np.ndarray, " rows"] | None,
) -> None:
    """Rows, null where only others have a column; ``value`` holds lists, for the parts differ in width."""
    fields = [pa.field(field.name, KIND) if field.name == "kind" else field for field in main.schema]
    if parts:
        widest = max(
            (file.schema.field("value").type.value_type for _, file in parts), key=lambda kind: kind.bit_width
        )
        fields.append(pa.field("value", pa.list_(widest)))
    schema, start = pa.schema(fields), 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
        for batch in _batches(main):
            kind = batch.column("kind").indices.to_numpy()
            if moved is not None:
                here = moved[start : start + kind.size]
                kind = np.where(here < 0, kind, here)
            start += kind.size
            file.write_batch(_filled(batch, schema, kind, kinds))
        for place, part in parts:
            for batch in _batches(part):
                file.write_batch(_filled(batch, schema, np.full(batch.num_rows, place), kinds))


def _filled(
    batch: pa.RecordBatch, schema: pa.Schema, kind: np.ndarray, kinds: Sequence[str]
) -> pa.RecordBatch:
    columns = {
        field.name: batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
        if field.name != "kind"
    }
    columns["kind"] = kind_array(kind, kinds)
    return pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)


def batch_of(
    schema: pa.Schema,
    size: int,
    columns: Mapping[str, np.ndarray | pa.Array | int | None],
    kinds: Sequence[str],
) -> pa.RecordBatch:
    """Rows of a table, of arrays, or of what all rows share; kinds are places in a list, None is null."""
    return pa.RecordBatch.from_pydict(
        {name: _column(schema.field(name), size, column, kinds) for name, column in columns.items()}
    )


def _column(
    field: pa.Field, size: int, given: np.ndarray | pa.Array | int | None, kinds: Sequence[str]
) -> pa.Array:
    if isinstance(given, pa.Array):
        return given
    if given is None:
        return pa.nulls(size, field.type)
    values = given if isinstance(given, np.ndarray) else np.full(size, given, np.int32)
    if field.type == KIND:
        return kind_array(values, kinds)
    if field.type == VECTOR or values.ndim == 2:
        return vector_array(values)
    hidden = field.nullable and values.dtype == np.int32 and (values == UNTOLD)
    return pa.array(values, mask=hidden if np.any(hidden) else None)


class TranscriptWriter:
    """Stream one transcript to disk; it appears under its name only when it is complete.

    Use as a context manager. An error or Ctrl-C removes the unfinished files and leaves whatever
    was at ``path`` before.

    What is written is checked against the manifest, so that the files can be read: whole numbers of any
    width that fit (floats and flags are refused), finite numbers, shapes, and rows for every round.
    Lists are as good as arrays. Narrow numbers are widened where wider ones come.

    Whoever knows the manifest only at the end, and checks rows by itself (``Recorder``), calls ``begin``,
    adds to each ``table`` and lets the files ``appear``. ``beside`` are names in the hidden folder of files
    that appear elsewhere.
    """

    def __init__(
        self, path: Path | str, manifest: Manifest | None = None, beside: Mapping[str, Path] | None = None
    ) -> None:
        self.path = Path(path)
        self.folder = partial_name(self.path)
        self._beside = dict(beside or {})
        self._tables: dict[str, Table] = {}
        self._unfinished = ExitStack()
        self._check_free()
        if manifest is not None:
            self._expect(manifest)

    def _expect(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._declared_rounds = frozenset(manifest.rounds)
        self._rounds: dict[str, set[int]] = {"state": set(), "messages": set()}
        self._others = [name for name, kind in manifest.kinds.items() if kind.role == "other"]
        self._names = [*KINDS, *self._others]  # the dictionary of ``messages.arrow``
        implicit = {name: kind.implicit for name, kind in manifest.kinds.items() if kind.implicit}
        self._state_names = [*KINDS, *implicit]
        places = {OF_IMPLICIT[role]: self._names.index(name) for name, role in implicit.items()}
        self._places = {code: code for code in range(len(KINDS))} | places

    def __enter__(self) -> TranscriptWriter:
        self.begin()
        return self

    def __exit__(self, error_type: type | None, *_: object) -> None:
        with self.ending():
            if error_type is None:
                self.close()
                self._check_rounds()
                self.appear(self.manifest)

    def begin(self) -> None:
        """Make the hidden folder."""
        made = [above for above in self.path.parents if not above.exists()]
        with output(self.path), ExitStack() as opening:
            opening.callback(_remove_empty, made)
            self.folder.mkdir(parents=True)
            opening.enter_context(unfinished(self.folder))
            self._unfinished = opening.pop_all()

    def table(self, name: str) -> Table:
        """The file of a name; that of the truth is private."""
        if name not in self._tables:
            mode = PRIVATE if name == "truth" else PUBLIC
            whole, _, part = name.partition(".")
            most = BYTES // 16 if part else BYTES  # of parts there may be many
            self._tables[name] = Table(self.folder / f"{name}.arrow", TABLES[whole], mode, most)
        return self._tables[name]

    def join(
        self,
        name: str,
        kinds: Sequence[str],
        places: Mapping[str, int],
        moved: Int[np.ndarray, " rows"] | None = None,
    ) -> None:
        """Write a closed table again with the rows of ``name.PART`` behind it, each part of another kind.

        ``moved`` are the kinds of rows that get another one, -1 where they stay.
        """
        parts = {one: self.folder / f"{name}.{one}.arrow" for one in places}
        parts = {one: path for one, path in parts.items() if path.exists()}
        if parts or moved is not None:
            path = self.folder / f"{name}.arrow"
            before = path.rename(path.with_suffix(".alone"))
            with ExitStack() as opened:
                main, *rest = (_opened(one, opened) for one in (before, *parts.values()))
                _write_joined(
                    path, kinds, main, list(zip([places[one] for one in parts], rest, strict=True)), moved
                )
            before.unlink()
        for left in self.folder.glob(f"{name}.*.arrow"):
            left.unlink()

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Whatever happens inside, nothing unfinished is left."""
        with self._unfinished, output(self.path):
            try:
                yield
            finally:
                for table in self._tables.values():
                    with suppress(OSError):  # the first error is what counts
                        table.abandon()

    def close(self) -> None:
        """Write what waits."""
        for table in self._tables.values():
            table.close()

    def appear(self, manifest: Manifest) -> None:
        """Give the files their names, all or none of them."""
        (self.folder / "manifest.json").write_text(
            json.dumps(file_of(manifest), indent=1) + "\n", encoding="utf-8"
        )
        self._check_free()  # somebody else may have made them meanwhile
        with ExitStack() as moved:
            for name, target in self._beside.items():
                if (self.folder / name).exists():
                    moved.callback(remove, target)
                    (self.folder / name).rename(target)
            self.folder.rename(self.path)
            moved.pop_all()

    def _check_free(self) -> None:
        for there in (self.path, *self._beside.values()):
            if there.exists():
                raise InputError(f"{there} exists; choose another name or remove it first")

    def _check_rounds(self) -> None:
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
        columns: dict[str, Any] = {
            "round": number,
            "kind": np.repeat([ITEM, ATTRIBUTE], sizes),
            "index": np.concatenate([np.arange(n, dtype=np.int32) for n in sizes]),
            **payload("factor", factors, ciphertext),
        }
        if noise_scale is not None:
            columns["noise_scale"] = spread = rows_of_numbers("noise_scale", noise_scale, width)
            same_length(factors=range(sum(sizes)), noise_scale=spread)
            if spread.min(initial=0) < 0:
                raise InputError(f"noise_scale must be >= 0, got {spread.min():g}")
        if bias is not None:
            columns["bias"] = added = numbers_of("bias", bias)
            same_length(factors=range(sum(sizes)), bias=added)
        if holders:
            columns["holder"] = None
        self._write("state", number, sum(sizes), columns, self._state_names)

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
        if kind not in self._places:
            raise InputError(f"kind must be one that the manifest declares, got {kind}")
        columns = {
            "round": number,
            "kind": np.full(index.size, self._state_names.index(self._names[self._places[kind]])),
            "index": index,
            "factor": rows,
            "holder": self._party("holder", holder),
        }
        self._write("state", number, index.size, columns, self._state_names)

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
        columns: dict[str, Any] = {
            "sender": self._parties("sender", sender),
            "receiver": self._parties("receiver", receiver),
            "weight": numbers_of("weight", weight),
        }
        same_length(**columns)
        columns |= {"first_round": first_round, "last_round": last_round}
        self._write("deliveries", 0, len(columns["weight"]), columns)

    def set_up(
        self,
        round_: int | np.integer,
        kind: str,
        sender: Numbers,
        receiver: int | np.integer | None,
        index: Numbers,
        value: Numbers | None,
    ) -> None:
        """Write messages of a declared kind of role other, after the uploads of a round.

        ``value`` has a number for each row, or a row of ``factors`` numbers where the kind has no width.
        """
        number = self._checked_round(round_)
        if kind not in self._others:
            raise InputError(f"kind must be a declared one of role other, got {kind!r:.80}")
        schema = self.table("messages").schema
        if schema is None:
            raise InputError("set_up must come after messages, which fix the columns; write those first")
        index = ids_of("index", index, 0, INT32_MAX, ">= 0 and fit into 32 bits")
        columns: dict[str, Any] = {field.name: pa.nulls(index.size, field.type) for field in schema}
        columns |= {
            "round": number,
            "sender": self._parties("sender", sender),
            "receiver": self._party("receiver", receiver),
            "kind": np.full(index.size, self._names.index(kind)),
            "index": index,
        }
        same_length(sender=columns["sender"], index=index)
        if value is not None:
            if np.ndim(value) == 2:
                columns["gradient"] = rows_of_numbers(
                    "value", array_of("value", value), self.manifest.factors
                )
            else:
                columns["value"] = numbers_of("value", value)
            same_length(index=index, value=value)
        self._write("messages", number, index.size, columns)

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
        table = np.full(max(self._places) + 1, -1, np.int8)
        table[list(self._places)] = list(self._places.values())
        places = table[kind]
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
        columns: dict[str, Any] = {
            "round": number,
            "sender": sender,
            "receiver": self._party("receiver", receiver),
            "kind": places,
            "index": index,
            **payload("gradient", gradient, ciphertext),
        }
        if self._others:
            columns["value"] = pa.nulls(sender.size, pa.float64())
        if exponent is not None:
            columns["exponent"] = ids_of("exponent", exponent, -INT32_MAX, INT32_MAX, "an integer of 32 bits")
        if sequence is not None:
            columns["sequence"] = ids_of("sequence", sequence, 0, INT32_MAX, ">= 0 and fit into 32 bits")
        if reference is not None:
            columns["reference"] = rows_of_numbers("reference", reference, manifest.factors)
        optional = {name: columns.get(name) for name in ("exponent", "sequence", "reference")}
        same_length(sender=sender, **optional)
        self._write("messages", number, sender.size, columns)

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

    def _party(self, name: str, value: int | np.integer | None) -> int | None:
        return None if value is None else int(self._parties(name, [value])[0])

    def _write(
        self, name: str, round_: int, size: int, columns: Mapping[str, Any], kinds: Sequence[str] = ()
    ) -> None:
        if size and name in self._rounds:
            self._rounds[name].add(round_)
        self.table(name).write(batch_of(TABLES[name], size, columns, kinds or self._names))


def _remove_empty(folders: list[Path]) -> None:
    """Folders that were made for a recording that came to nothing, the deepest first."""
    for folder in folders:
        with suppress(OSError):  # others use it, or it holds the recording
            folder.rmdir()
