"""What a transcript's rows are made of: broadcast factors, uploads and sums, without who may see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from victims.transcript.kinds import ATTRIBUTE
from victims.transcript.sort_keys import order_of

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
