"""What one adversary sees of a recording, laid out so that all clients are solved together.

Of ``victims``, attacks import this, the manifest, errors and seeds, nothing else. A view holds the public
manifest, what was broadcast, and the uploads that the adversary receives: no ratings, no victim, no other
party's rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest

KINDS = ("item", "attribute", "item-sum", "attribute-sum")
ITEM, ATTRIBUTE = 0, 1
BLOCK_ROWS = 1 << 20  # of a check of all rows: few calls, yet little memory
BATCH_BYTES = 12 << 20  # gradients of one batch and round: few calls, yet near the processor


@dataclass(frozen=True)
class Broadcast:
    """Factors sent to the clients before the uploads of one round.

    Attributes
    ----------
    item_ids, attribute_ids : ascending int32
    factors : (n_item_ids + n_attribute_ids, factors) float64
        Item factors Q, then attribute factors U.
    noise_scale : (n_item_ids + n_attribute_ids, factors) float64, or None
        Standard deviation of Gaussian noise in every upload about a row, where the protocol tells it.
    """

    item_ids: Int[np.ndarray, " items"]
    attribute_ids: Int[np.ndarray, " attributes"]
    factors: Float[np.ndarray, "rows factors"]
    noise_scale: Float[np.ndarray, "rows factors"] | None = None

    def positions(self, kind: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Row in ``factors`` of each (kind, index); a pair that was not broadcast gives -1."""
        position = _lookup(self.item_ids, index)
        is_attribute = kind == ATTRIBUTE
        if is_attribute.any():
            attribute = _lookup(self.attribute_ids, index)
            attribute = np.where(attribute < 0, -1, attribute + self.item_ids.size)
            position = np.where(is_attribute, attribute, position)
        return position


def _lookup(ids: np.ndarray, index: np.ndarray) -> np.ndarray:
    if ids.size == 0:
        return np.full(index.shape, -1)
    if ids[0] == 0 and ids[-1] == ids.size - 1:  # ids are ascending and distinct: the identity
        return np.where((index >= 0) & (index < ids.size), index, -1)
    found = np.minimum(np.searchsorted(ids, index), ids.size - 1)
    return np.where(ids[found] == index, found, -1)


@dataclass(frozen=True)
class Sums:
    """Decrypted sums over all clients of the rows of one round.

    Attributes
    ----------
    kind : (n_sums,) int8
        ``ITEM`` or ``ATTRIBUTE``.
    index : (n_sums,) int32
    values : (n_sums, factors) float64
    error : (n_sums,) float64, or None
        Bound of the error of each row of ``values``, as a length; None where they are exact but for their
        last digits.
    """

    kind: Int[np.ndarray, " sums"]
    index: Int[np.ndarray, " sums"]
    values: Float[np.ndarray, "sums factors"]
    error: Float[np.ndarray, " sums"] | None = None


@dataclass(frozen=True)
class Messages:
    """Uploaded rows, in chunks that may be memory-mapped.

    Attributes
    ----------
    round, sender, index : chunks of int32
    kind : chunks of int8 or int32
        Position in ``KINDS``.
    gradient : chunks of (rows, factors) float32 or float64, or None when uploads are encrypted.
    exponent : chunks of int32, or None
        What an encoding published beside encrypted rows.
    """

    round: Sequence[np.ndarray]
    sender: Sequence[np.ndarray]
    kind: Sequence[np.ndarray]
    index: Sequence[np.ndarray]
    gradient: Sequence[np.ndarray] | None
    exponent: Sequence[np.ndarray] | None = None

    @cached_property
    def offsets(self) -> np.ndarray:
        """First row of each chunk, and the number of rows."""
        return np.concatenate([[0], np.cumsum([chunk.size for chunk in self.sender])]).astype(int)

    @property
    def n_rows(self) -> int:
        """Number of uploaded rows."""
        return int(self.offsets[-1])

    def between(self, column: Sequence[np.ndarray], start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of a column: a view inside one chunk, else a copy."""
        first = int(np.searchsorted(self.offsets, start, side="right")) - 1
        base = self.offsets[first]
        if stop <= self.offsets[first + 1]:
            return column[first][start - base : stop - base]
        parts = []
        for chunk in range(first, len(column)):
            low, high = self.offsets[chunk], self.offsets[chunk + 1]
            if low >= stop:
                break
            parts.append(column[chunk][max(start - low, 0) : min(stop, high) - low])
        return np.concatenate(parts)

    def take(self, rows: np.ndarray, *columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The given rows of some columns, as copies."""
        if self.offsets.size == 2:
            return [column[0][rows] for column in columns]
        out = [np.empty(rows.shape + column[0].shape[1:], column[0].dtype) for column in columns]
        chunk_of = np.searchsorted(self.offsets, rows.ravel(), side="right") - 1
        for chunk in np.flatnonzero(np.bincount(chunk_of)).tolist():
            here = np.flatnonzero(chunk_of == chunk)
            local = rows.ravel()[here] - self.offsets[chunk]
            for column, part in zip(columns, out, strict=True):
                part.reshape(-1, *part.shape[rows.ndim :])[here] = column[chunk][local]
        return out

    def rows(self, keep: Sequence[np.ndarray]) -> Messages:
        """The rows that a mask per chunk keeps; chunks that stay whole are not copied."""
        whole = [bool(mask.all()) for mask in keep]

        def kept(column: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
            parts = zip(column, keep, whole, strict=True)
            return tuple(chunk if all_of_it else chunk[mask] for chunk, mask, all_of_it in parts)

        return Messages(
            kept(self.round),
            kept(self.sender),
            kept(self.kind),
            kept(self.index),
            None if self.gradient is None else kept(self.gradient),
            None if self.exponent is None else kept(self.exponent),
        )

    def in_order(self) -> Int[np.ndarray, " rows"]:
        """Row numbers by round, sender, kind and index: the order that attacks see, whatever the file's."""
        columns = [np.concatenate(column) for column in (self.round, self.sender, self.kind, self.index)]
        least = [int(column.min(initial=0)) for column in columns]
        spans = [int(column.max(initial=0)) - low + 1 for column, low in zip(columns, least, strict=True)]
        if math.prod(spans) >= 1 << 63:
            return np.lexsort(columns[::-1])
        key = np.zeros(self.n_rows, np.int64)  # one number for all four: sorted several times as fast
        for column, low, span in zip(columns, least, spans, strict=True):
            key *= span
            key += column
            key -= low
        return np.argsort(key, kind="stable")


@dataclass(frozen=True)
class Uploads:
    """The rows that some clients uploaded in one round, padded to one length.

    Attributes
    ----------
    round : int
    kind, index : (1 or n_users, n_rows)
        One row when all clients sent the same list.
    position : (1 or n_users, n_rows)
        Row in ``broadcast.factors``; 0 on padding.
    valid : (1 or n_users, n_rows) bool
        False on padding, whose gradients are 0.
    gradients : (n_users, n_rows, factors)
    broadcast : Broadcast
    """

    round: int
    kind: Int[np.ndarray, "a rows"]
    index: Int[np.ndarray, "b rows"]
    position: Int[np.ndarray, "c rows"]
    valid: Bool[np.ndarray, "d rows"]
    gradients: Float[np.ndarray, "users rows factors"]
    broadcast: Broadcast

    @property
    def shared(self) -> bool:
        """All clients of the batch sent the same list of items and attributes."""
        return self.position.shape[0] == 1

    def same_list(self, other: Uploads) -> Bool[np.ndarray, " users"]:
        """Which clients sent the same items and attributes in two rounds of one batch."""
        width = min(self.gradients.shape[1], other.gradients.shape[1])
        here, there = self.valid[:, :width], other.valid[:, :width]
        same = (self.index[:, :width] == other.index[:, :width]) & (
            self.kind[:, :width] == other.kind[:, :width]
        )
        alike = ((same & here & there) | ~(here | there)).all(axis=1)
        alike = alike & ~self.valid[:, width:].any(axis=1) & ~other.valid[:, width:].any(axis=1)
        return np.broadcast_to(alike, (self.gradients.shape[0],))


@dataclass(frozen=True)
class UserBatch:
    """Some clients with their uploads of every round of the view, clients in the same order."""

    users: Int[np.ndarray, " users"]
    rounds: tuple[Uploads, ...]


@dataclass(frozen=True)
class View:
    """What one adversary sees.

    Rows come in any order, and no answer depends on it: ``batches``, ``batch`` and ``shuffled`` show each
    client's rows of a round by kind and index. Whoever reads ``messages`` itself must not mind the order.

    Attributes
    ----------
    adversary : str
    manifest : Manifest
    broadcasts : mapping of round to Broadcast
        Empty where the factors are encrypted and the adversary has no key.
    messages : Messages
    sums : mapping of round to Sums
        Rounds whose decrypted sums the adversary sees; no uploads are among them.
    item_server : mapping of round to Sums
        What the item server sends the server about each item, where the adversary is one of them or reads
        the wire.
    """

    adversary: str
    manifest: Manifest
    broadcasts: Mapping[int, Broadcast]
    messages: Messages
    sums: Mapping[int, Sums] = field(default_factory=dict)
    item_server: Mapping[int, Sums] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line: who sees how much."""
        return (
            f"View({self.adversary!r}, rounds={len(self.broadcasts)}, uploaded rows={self.messages.n_rows}, "
            f"rounds with sums={len(self.sums)})"
        )

    @cached_property
    def layout(self) -> Layout:
        """Where each client's rows lie; computed once."""
        return lay_out(self.messages)

    @property
    def users(self) -> Int[np.ndarray, " users"]:
        """Clients with at least one row, ascending."""
        return self.layout.users

    @property
    def rounds(self) -> Int[np.ndarray, " rounds"]:
        """Rounds with at least one row, ascending."""
        return self.layout.rounds

    def select(self, users: np.ndarray) -> View:
        """The same view restricted to some clients (rows are copied)."""
        keep = [
            np.flatnonzero(np.isin(sender, users)) + start
            for sender, start in zip(self.messages.sender, self.messages.offsets, strict=False)
        ]
        return replace(self, messages=_taken(self.messages, np.concatenate(keep)))

    def during(self, rounds: Sequence[int] | np.ndarray) -> View:
        """The same view restricted to some rounds (rows are copied).

        Raises
        ------
        InputError
            If a round is not in the view.
        """
        wanted = np.unique(np.asarray(rounds))
        known = np.union1d(self.rounds, list(self.broadcasts)).astype(int)
        unknown = np.setdiff1d(wanted, known)
        if unknown.size:
            raise InputError(
                f"round {unknown[0]} is not in the view, which holds {', '.join(map(str, known))}"
            )
        keep = [
            np.flatnonzero(np.isin(number, wanted)) + start
            for number, start in zip(self.messages.round, self.messages.offsets, strict=False)
        ]
        manifest = self.manifest.model_copy(update={"rounds": wanted.tolist()})
        chosen = wanted.tolist()
        broadcasts = {number: self.broadcasts[number] for number in chosen if number in self.broadcasts}
        sums = {number: self.sums[number] for number in chosen if number in self.sums}
        sent = {number: self.item_server[number] for number in chosen if number in self.item_server}
        messages = _taken(self.messages, np.concatenate(keep))
        return View(self.adversary, manifest, broadcasts, messages, sums, sent)

    def shuffled(self, seed: int) -> View | None:
        """The null: gradients, and sums, are dealt out anew among the rows of their round and kind.

        Lists of items and attributes, sizes of gradients and the broadcast stay as they are; the
        tie between a row and its client, item and rating is cut. Rows come back in the order of
        ``Messages.in_order``. None where the view has neither.
        """
        messages = self.messages
        if messages.gradient is None and not self.sums:
            return None
        rng = generator(seed, Purpose.SHUFFLED_VIEW)
        sums = {number: _dealt(seen, rng) for number, seen in self.sums.items()}
        if messages.gradient is None:
            return replace(self, sums=sums)
        whole = _taken(messages, messages.in_order())
        rounds, kinds = whole.round[0], whole.kind[0]
        deal = np.lexsort((rng.random(rounds.size), kinds, rounds))
        place = np.lexsort((kinds, rounds))
        source = np.empty_like(deal)
        source[place] = deal
        assert whole.gradient is not None
        return replace(self, messages=replace(whole, gradient=(whole.gradient[0][source],)), sums=sums)

    def batches(self, max_bytes: int = BATCH_BYTES) -> Iterator[UserBatch]:
        """Clients in batches of similar length, each with its uploads of all rounds.

        The gradients of a batch and round take about ``max_bytes``. Batches are views of the
        memory-mapped file where clients with equal lists lie one after the other. There is none where
        uploads or factors are encrypted and the adversary has no key.
        """
        if self.messages.gradient is None or not self.broadcasts:
            return
        for start, stop in self.layout.slices(self.manifest.factors, max_bytes):
            yield self.batch(self.layout.order[start:stop])

    def batch(self, members: np.ndarray) -> UserBatch:
        """The uploads of the clients ``users[members]``."""
        uploads = tuple(_gather(self, number, members) for number in range(self.layout.rounds.size))
        return UserBatch(self.layout.users[members], uploads)


@dataclass(frozen=True)
class Layout:
    """Where each client's rows of each round lie.

    Attributes
    ----------
    users, rounds : ascending
    start, length : (n_rounds, n_users)
        In row numbers of the messages, or of ``permutation``.
    permutation : ``Messages.in_order``, or None
        None where each client's rows of a round lie together and ascend by kind and index.
    order : (n_users,)
        Clients by the number of their rows, stable.
    """

    users: np.ndarray
    rounds: np.ndarray
    start: np.ndarray
    length: np.ndarray
    permutation: np.ndarray | None
    order: np.ndarray

    def slices(self, factors: int, max_bytes: int) -> list[tuple[int, int]]:
        """Cut ``order`` so that padding at most doubles a batch and a batch stays in its budget.

        How the file is cut into chunks changes nothing: the last bits of a product of matrices depend on
        who is in a batch.
        """
        if self.order.size == 0:
            return []
        longest = self.length.max(axis=0)[self.order]
        cuts = []
        start = 0
        while start < longest.size:
            # lengths ascend: the last client of a slice sets its padded size
            limit = np.searchsorted(longest, 2 * max(longest[start], 8), side="right")
            size = np.arange(1, limit - start + 1) * longest[start:limit] * factors * 8
            count = max(1, int(np.searchsorted(size, max_bytes, side="right")))
            cuts.append((start, start + count))
            start += count
        return cuts


def lay_out(messages: Messages) -> Layout:
    """Find the runs of rows of one client and round; sort only where they are not as attacks see them."""
    start, round_, sender = _runs(messages)
    users, user = np.unique(sender, return_inverse=True)
    all_rounds, number = np.unique(round_, return_inverse=True)
    run = number * users.size + user
    permutation = None
    if np.unique(run).size < run.size or not _ascend_in_runs(messages):
        permutation = messages.in_order()
        whole = messages.take(permutation, messages.round, messages.sender)
        change = (whole[0][1:] != whole[0][:-1]) | (whole[1][1:] != whole[1][:-1])
        start = np.concatenate([[0], np.flatnonzero(change) + 1])
        run = np.searchsorted(all_rounds, whole[0][start]) * users.size
        run += np.searchsorted(users, whole[1][start])
    shape = all_rounds.size, users.size
    first, length = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    first.flat[run] = start
    length.flat[run] = np.diff(np.append(start, messages.n_rows))
    order = np.argsort(length.max(axis=0, initial=0), kind="stable")
    return Layout(users, all_rounds, first, length, permutation, order)


def _runs(messages: Messages) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First row, round and sender of each run of rows of one round and sender."""
    found: tuple[list[np.ndarray], ...] = ([], [], [])
    for first, round_, sender in zip(messages.offsets[:-1], messages.round, messages.sender, strict=True):
        change = (sender[1:] != sender[:-1]) | (round_[1:] != round_[:-1])
        begin = np.concatenate([[0], np.flatnonzero(change) + 1])[: sender.size]
        for out, part in zip(found, (begin + first, round_[begin], sender[begin]), strict=True):
            out.append(part)
    nothing = np.zeros(0, np.int32)
    start, round_, sender = (np.concatenate([nothing, *parts]) for parts in found)
    joint = np.ones(start.size, bool)
    joint[1:] = (sender[1:] != sender[:-1]) | (round_[1:] != round_[:-1])
    return start[joint], round_[joint], sender[joint]


def _ascend_in_runs(messages: Messages) -> bool:
    """Kind, then index, ascend from row to row of one round and sender."""
    before: list[np.ndarray] = []
    for chunk in range(len(messages.sender)):
        columns = [
            column[chunk] for column in (messages.index, messages.kind, messages.sender, messages.round)
        ]
        for low in range(0, columns[0].size, BLOCK_ROWS):
            part = [column[low : low + BLOCK_ROWS] for column in columns]
            joined = list(map(np.concatenate, zip(before, part, strict=True))) if before else part
            index, kind, sender, round_ = joined
            # few rows are suspect, and only those are looked at closely
            at = np.flatnonzero((index[1:] <= index[:-1]) | (kind[1:] < kind[:-1]))
            same = (sender[at + 1] == sender[at]) & (round_[at + 1] == round_[at])
            if (same & (kind[at + 1] <= kind[at])).any():
                return False
            before = [column[-1:] for column in part]
    return True


def _dealt(sums: Sums, rng: np.random.Generator) -> Sums:
    """Values of sums dealt out among those of the same kind."""
    place = np.lexsort((sums.index, sums.kind))
    deal = np.lexsort((rng.random(sums.kind.size), sums.kind[place]))
    values = np.empty_like(sums.values)
    values[place] = sums.values[place][deal]
    if sums.error is None:
        return replace(sums, values=values)
    error = np.empty_like(sums.error)
    error[place] = sums.error[place][deal]
    return replace(sums, values=values, error=error)


def _taken(messages: Messages, rows: np.ndarray) -> Messages:
    columns = [messages.round, messages.sender, messages.kind, messages.index]
    more = [messages.gradient, messages.exponent]
    taken = iter(messages.take(rows, *columns, *(column for column in more if column is not None)))
    own = [(next(taken),) for _ in columns]
    return Messages(*own, *(None if column is None else (next(taken),) for column in more))


def _gather(view: View, number: int, members: np.ndarray) -> Uploads:
    layout, messages = view.layout, view.messages
    assert messages.gradient is not None
    round_ = int(layout.rounds[number])
    broadcast = view.broadcasts[round_]
    start, length = layout.start[number, members], layout.length[number, members]
    n_users, n_rows = members.size, int(length.max(initial=0))
    alike = n_rows > 0 and bool((length == n_rows).all())
    if alike and layout.permutation is None and (start[1:] == start[:-1] + n_rows).all():
        low, high = int(start[0]), int(start[-1]) + n_rows
        shape = n_users, n_rows
        kind = messages.between(messages.kind, low, high).reshape(shape)
        index = messages.between(messages.index, low, high).reshape(shape)
        gradients = messages.between(messages.gradient, low, high).reshape(*shape, -1)
    else:
        slot = np.arange(n_rows)
        there = slot < length[:, None]
        rows = np.where(there, start[:, None] + slot, 0)
        if layout.permutation is not None:
            rows = layout.permutation[rows]
        kind, index, gradients = messages.take(rows, messages.kind, messages.index, messages.gradient)
        gradients[~there] = 0
    valid = np.ones((1, n_rows), bool) if alike else there
    if alike and (index[1:] == index[0]).all() and (kind[1:] == kind[0]).all():
        kind, index = kind[:1], index[:1]
    position = np.where(valid, broadcast.positions(kind, index), 0)
    return Uploads(round_, kind, index, position, valid, gradients, broadcast)
