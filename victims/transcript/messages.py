"""What a transcript's rows are made of: broadcast factors, uploads and sums, without who may see them.

Rows of one round and sender mostly lie together (``Runs``), and then nothing is sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from victims.transcript.kinds import ATTRIBUTE, INT32_MAX
from victims.transcript.sort_keys import Bounds, Column, order_of, repeated

UNTOLD = -INT32_MAX - 1  # in place of null: a sender who is not told, the receivers of the graph, everybody
OPTIONAL = ("gradient", "exponent", "sequence", "reference")  # columns of Messages that may be None


@dataclass(frozen=True)
class Broadcast:
    """Factors sent to the clients before the uploads of one round."""

    item_ids: Int[np.ndarray, " items"]
    attribute_ids: Int[np.ndarray, " attributes"]
    factors: Float[np.ndarray, "rows factors"]  # item factors Q, then attribute factors U
    # standard deviation of Gaussian noise in every upload about a row, where the protocol tells it
    noise_scale: Float[np.ndarray, "rows factors"] | None = None
    # what everybody adds to a prediction about a row (an item's bias, the mean of all ratings), in stars
    bias: Float[np.ndarray, " rows"] | None = None

    def positions(self, kind: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Row in ``factors`` of each (kind, index); a pair that was not broadcast gives -1."""
        position = lookup(self.item_ids, index)
        is_attribute = kind == ATTRIBUTE
        if is_attribute.any():
            attribute = lookup(self.attribute_ids, index)
            attribute = np.where(attribute < 0, -1, attribute + self.item_ids.size)
            position = np.where(is_attribute, attribute, position)
        return position


def joined(known: Broadcast, more: Broadcast) -> Broadcast:
    """Join factors of two sources; where both have one, that of the second counts."""
    items = np.union1d(known.item_ids, more.item_ids).astype(np.int32)
    attributes = np.union1d(known.attribute_ids, more.attribute_ids).astype(np.int32)
    kind = np.repeat([0, ATTRIBUTE], [items.size, attributes.size])
    index = np.concatenate([items, attributes])
    here, there = known.positions(kind, index), more.positions(kind, index)
    first, second = _rows_at(known.factors, here), _rows_at(more.factors, there)
    noise = None if known.noise_scale is None else _rows_at(known.noise_scale, here)
    factors = np.where(there[:, None] >= 0, second, first)
    if known.bias is None and more.bias is None:
        return Broadcast(items, attributes, factors, noise)
    first, second = (_rows_at(_biases(one)[:, None], at) for one, at in ((known, here), (more, there)))
    return Broadcast(items, attributes, factors, noise, np.where(there[:, None] >= 0, second, first)[:, 0])


def _biases(broadcast: Broadcast) -> Float[np.ndarray, " rows"]:
    return np.zeros(len(broadcast.factors)) if broadcast.bias is None else broadcast.bias


def _rows_at(
    table: Float[np.ndarray, "places factors"], position: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, "rows factors"]:
    """Rows of a table; zeros at position -1."""
    found = np.zeros((position.size, table.shape[1]))
    found[position >= 0] = table[position[position >= 0]]
    return found


def lookup(ids: Int[np.ndarray, " ids"], index: Int[np.ndarray, "*rows"]) -> Int[np.ndarray, "*rows"]:
    """Find the position in ascending, distinct ``ids`` of each index."""
    if ids.size == 0:
        return np.full(index.shape, -1)
    if ids[0] == 0 and ids[-1] == ids.size - 1:  # ids are ascending and distinct: the identity
        return np.where((index >= 0) & (index < ids.size), index, -1)
    position = np.minimum(np.searchsorted(ids, index), ids.size - 1)
    return np.where(ids[position] == index, position, -1)


@dataclass(frozen=True)
class Sums:
    """Decrypted sums over all clients of the rows of one round."""

    kind: Int[np.ndarray, " sums"]  # ``ITEM`` or ``ATTRIBUTE``
    index: Int[np.ndarray, " sums"]
    values: Float[np.ndarray, "sums factors"]
    # bound of the error of each row of ``values``, as a length; None where they are exact but for their last
    # digits
    error: Float[np.ndarray, " sums"] | None = None


@dataclass(frozen=True, eq=False)
class Messages:
    """Uploaded rows, in chunks that may be memory-mapped; two are the same if they are one object."""

    round: Sequence[np.ndarray]
    sender: Sequence[np.ndarray]
    kind: Sequence[np.ndarray]  # position in ``KINDS``
    index: Sequence[np.ndarray]
    gradient: Sequence[np.ndarray] | None
    exponent: Sequence[np.ndarray] | None = None  # what an encoding published beside encrypted rows
    # place of each row among those of its sender and round, where the adversary sees it
    sequence: Sequence[np.ndarray] | None = None
    # the factor that each row was computed at, where that is not what was broadcast
    reference: Sequence[np.ndarray] | None = None

    @property
    def offsets(self) -> Int[np.ndarray, " chunks_plus_1"]:
        """First row of each chunk, and the number of rows."""
        return np.concatenate([[0], np.cumsum([chunk.size for chunk in self.sender])]).astype(int)

    @property
    def n_rows(self) -> int:
        """Number of uploaded rows."""
        return int(self.offsets[-1])

    def between(self, column: Sequence[np.ndarray], start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of a column: a view inside one chunk, else a copy."""
        offsets = self.offsets
        first = int(np.searchsorted(offsets, start, side="right")) - 1
        base = offsets[first]
        if stop <= offsets[first + 1]:
            return column[first][start - base : stop - base]
        pieces = []
        for chunk in range(first, len(column)):
            low, high = offsets[chunk], offsets[chunk + 1]
            if low >= stop:
                break
            pieces.append(column[chunk][max(start - low, 0) : min(stop, high) - low])
        return np.concatenate(pieces)

    def take(self, rows: np.ndarray, *columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The given rows of some columns, as copies."""
        offsets = self.offsets
        if offsets.size == 2:
            return [column[0][rows] for column in columns]
        out = [np.empty(rows.shape + column[0].shape[1:], column[0].dtype) for column in columns]
        chunk_of = np.searchsorted(offsets, rows.ravel(), side="right") - 1
        for chunk in np.flatnonzero(np.bincount(chunk_of)).tolist():
            here = np.flatnonzero(chunk_of == chunk)
            local = rows.ravel()[here] - offsets[chunk]
            for column, copied in zip(columns, out, strict=True):
                copied.reshape(-1, *copied.shape[rows.ndim :])[here] = column[chunk][local]
        return out

    def rows(self, keep: Sequence[np.ndarray]) -> Messages:
        """The rows that a mask per chunk keeps; chunks that stay whole are not copied."""
        whole = [bool(mask.all()) for mask in keep]

        def kept(column: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
            chunks = zip(column, keep, whole, strict=True)
            return tuple(chunk if all_of_it else chunk[mask] for chunk, mask, all_of_it in chunks)

        always = {name: kept(getattr(self, name)) for name in ("round", "sender", "kind", "index")}
        given = {name: column for name in OPTIONAL if (column := getattr(self, name)) is not None}
        return replace(self, **always, **{name: kept(column) for name, column in given.items()})

    def in_order(self) -> Int[np.ndarray, " rows"]:
        """Row numbers by round, sender, kind and index: the order that attacks see, whatever the file's."""
        return order_of([self.round, self.sender, self.kind, self.index])


def rows_of(messages: Messages, rows: Int[np.ndarray, " rows"]) -> Messages:
    """Copy the given rows in their order into one chunk."""
    names = ["round", "sender", "kind", "index"]
    names += [name for name in OPTIONAL if getattr(messages, name) is not None]
    taken = messages.take(rows, *(getattr(messages, name) for name in names))
    return replace(messages, **{name: (column,) for name, column in zip(names, taken, strict=True)})


@dataclass(frozen=True)
class Sent:
    """Rows in the clear that are no client's upload, and who sent and received them, (n_rows, ...) each."""

    round: Int[np.ndarray, " rows"]
    sender: Int[np.ndarray, " rows"]
    receiver: Int[np.ndarray, " rows"]
    kind: Int[np.ndarray, " rows"]
    index: Int[np.ndarray, " rows"]
    gradient: Float[np.ndarray, "rows factors"]


@dataclass(frozen=True)
class Told:
    """Rows of a kind of role other that an adversary receives; what was broadcast is sent by the server."""

    round: Int[np.ndarray, " rows"]
    sender: Int[np.ndarray, " rows"]
    receiver: Int[np.ndarray, " rows"]  # ``UNTOLD`` for everybody
    index: Int[np.ndarray, " rows"]
    numbers: Float[np.ndarray, "rows width"]  # naN where a row has none

    @property
    def value(self) -> Float[np.ndarray, " rows"]:
        """The first number of each row."""
        return self.numbers[:, 0]


RUN_ROWS = 1 << 18  # looked at together: few calls, and what is made of them stays near the processor


@dataclass(frozen=True)
class Runs:
    """Rows of one round and sender that follow each other."""

    start: Int[np.ndarray, " runs"]  # first row of each
    round: Int[np.ndarray, " runs"]
    sender: Int[np.ndarray, " runs"]
    n_rows: int  # of all runs together
    apart: bool  # no round and sender has two runs

    @property
    def stop(self) -> Int[np.ndarray, " runs"]:
        """One after the last row of each."""
        return np.append(self.start[1:], self.n_rows)


def scattered(messages: Messages) -> bool:
    """Tell whether the first block shows that rows of a round and sender do not lie together.

    Then every row may be a run, and nobody needs to know where they begin.
    """
    for _, round_, sender in blocks_of(messages, (messages.round, messages.sender)):
        begin = np.flatnonzero(_begins(round_, sender))
        return repeated([[round_[begin]], [sender[begin]]])
    return False


def _begins(round_: np.ndarray, sender: np.ndarray) -> np.ndarray:
    """Which rows begin a run, the first one among them."""
    begins = np.ones(sender.size, bool)
    begins[1:] = sender[1:] != sender[:-1]
    begins[1:] |= round_[1:] != round_[:-1]
    return begins


def runs_of(messages: Messages) -> Runs:
    """Find the runs of some messages, across the chunks of a file."""
    columns: tuple[list[np.ndarray], ...] = ([], [], [])
    for first, round_, sender in blocks_of(messages, (messages.round, messages.sender)):
        begin = np.flatnonzero(_begins(round_, sender))
        for column, rows in zip(columns, (begin + first, round_[begin], sender[begin]), strict=True):
            column.append(rows)
    nothing = np.zeros(0, np.int32)
    start, round_, sender = (np.concatenate([nothing, *parts]) for parts in columns)
    begins = _begins(round_, sender)  # a run may go on in the next block
    start, round_, sender = start[begins], round_[begins], sender[begins]
    return Runs(start, round_, sender, messages.n_rows, apart=not repeated([[round_], [sender]]))


def ascend_in_runs(messages: Messages, columns: Sequence[Column]) -> bool:
    """Some columns, the first counting most, ascend from row to row of a round and sender."""
    for round_, sender, *major, minor in _overlapping(messages, (messages.round, messages.sender, *columns)):
        suspect = minor[1:] <= minor[:-1]  # few rows are, and only those are looked at closely
        for column in major:
            suspect |= column[1:] < column[:-1]
        at = np.flatnonzero(suspect)
        at = at[(sender[at + 1] == sender[at]) & (round_[at + 1] == round_[at])]
        larger = np.zeros(at.size, bool)
        equal = ~larger
        for column in (*major, minor):
            larger |= equal & (column[at + 1] > column[at])
            equal &= column[at + 1] == column[at]
        if not larger.all():
            return False
    return True


def _overlapping(messages: Messages, columns: Sequence[Column]) -> Iterator[tuple[np.ndarray, ...]]:
    """Blocks that begin with the last row of the one before; copied is only where chunks meet."""
    before: tuple[np.ndarray, ...] = ()
    for chunk in range(len(messages.sender)):
        whole = tuple(column[chunk] for column in columns)
        size = whole[0].size
        if size and before:
            yield tuple(
                np.concatenate([last, column[:1]]) for last, column in zip(before, whole, strict=True)
            )
        for low in range(0, size - 1, RUN_ROWS):
            yield tuple(column[low : low + RUN_ROWS + 1] for column in whole)
        before = tuple(column[-1:] for column in whole) if size else before


def repeat_in_runs(
    messages: Messages,
    runs: Runs | None,
    columns: Sequence[Column],
    bounds: Sequence[Bounds | None] = (),
) -> bool:
    """Whether two rows of a round and sender have the same numbers in some columns."""
    apart = runs is not None and runs.apart
    if apart and ascend_in_runs(messages, columns):
        return False
    if runs is None or not apart:
        return repeated([messages.round, messages.sender, *columns], bounds)
    stop = runs.stop
    first = 0
    while first < stop.size:  # whole runs, as many as fit into a block
        last = max(int(np.searchsorted(stop, runs.start[first] + RUN_ROWS, side="right")), first + 1)
        low, high = int(runs.start[first]), int(stop[last - 1])
        run = np.repeat(np.arange(last - first), stop[first:last] - runs.start[first:last])
        if repeated([[run], *([messages.between(column, low, high)] for column in columns)]):
            return True
        first = last
    return False


def blocks_of(messages: Messages, columns: Sequence[Column]) -> Iterator[tuple]:
    """Cut columns into blocks of at most ``RUN_ROWS`` rows; no block is empty."""
    for chunk, start in enumerate(messages.offsets[:-1].tolist()):
        for low in range(0, messages.sender[chunk].size, RUN_ROWS):
            yield start + low, *(column[chunk][low : low + RUN_ROWS] for column in columns)
