"""What one adversary sees of a recording, laid out so that all clients are solved together.

Of ``victims``, attacks import this, the manifest, errors and seeds, nothing else. A view holds the public
manifest, what was broadcast, and the uploads that the adversary receives: no ratings, no victim, no other
party's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.transcript.adversaries import members_of
from victims.transcript.kinds import ATTRIBUTE, ITEM, KINDS
from victims.transcript.manifest import ClientRule, Manifest
from victims.transcript.messages import (
    UNTOLD,
    Broadcast,
    Messages,
    Sums,
    Told,
    ascend_in_runs,
    rows_of,
    runs_of,
)
from victims.transcript.received import Copies, Links, Traffic


@dataclass(frozen=True)
class Layout:
    """Where each client's rows of each round lie."""

    users: np.ndarray
    rounds: np.ndarray
    start: np.ndarray  # in row numbers of the messages, or of ``permutation``
    length: np.ndarray  # in rows
    # none where each client's rows of a round lie together and ascend by kind and index
    permutation: np.ndarray | None
    order: np.ndarray  # clients by the number of their rows, stable

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


# every batch of every attack asks for it, and it takes a pass over all rows
_LAYOUTS: WeakKeyDictionary[Messages, Layout] = WeakKeyDictionary()


def layout_of(messages: Messages) -> Layout:
    """Find the layout of some messages, computed once for as long as they live."""
    if messages not in _LAYOUTS:
        _LAYOUTS[messages] = lay_out(messages)
    return _LAYOUTS[messages]


def lay_out(messages: Messages) -> Layout:
    """Find the runs of rows of one client and round; sort only where they are not as attacks see them."""
    runs = runs_of(messages)
    users, user = np.unique(runs.sender, return_inverse=True)
    all_rounds, round_row = np.unique(runs.round, return_inverse=True)
    start, run = runs.start, round_row * users.size + user
    permutation = None
    if not runs.apart or not ascend_in_runs(messages, (messages.kind, messages.index)):
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


@dataclass(frozen=True)
class Uploads:
    """The rows that some clients uploaded in one round, padded to one length."""

    round: int
    kind: Int[np.ndarray, "a rows"]  # one row when all clients sent the same list
    index: Int[np.ndarray, "b rows"]  # one row when all clients sent the same list
    position: Int[np.ndarray, "c rows"]  # row in ``broadcast.factors``; 0 on padding
    valid: Bool[np.ndarray, "d rows"]  # false on padding, whose gradients are 0
    # sums over a client's ratings: means are multiplied by the number of rows, where the manifest declares
    # them
    gradients: Float[np.ndarray, "users rows factors"]
    broadcast: Broadcast
    # the factor that each row was computed at, where that is not what was broadcast; 0 on padding
    reference: Float[np.ndarray, "users rows factors"] | None = None
    # place of each row among those that the client sent, where the adversary sees it
    sequence: Int[np.ndarray, "users rows"] | None = None

    @property
    def factors(self) -> Float[np.ndarray, "references factors"]:
        """Table of the factors that rows were computed at; ``at`` tells each row's."""
        if self.reference is None:
            return self.broadcast.factors
        return self.reference.reshape(-1, self.reference.shape[-1])

    @property
    def at(self) -> Int[np.ndarray, "c rows"]:
        """Row in ``factors`` of each uploaded row."""
        if self.reference is None:
            return self.position
        return np.arange(self.reference.shape[0] * self.reference.shape[1]).reshape(self.reference.shape[:2])

    @property
    def bias(self) -> Float[np.ndarray, "c rows"]:
        """What everybody adds to a prediction about each row, in stars; 0 where nothing is known to be."""
        known = self.broadcast.bias
        return (
            np.zeros(self.position.shape) if known is None else np.where(self.valid, known[self.position], 0)
        )

    @property
    def shared(self) -> bool:
        """All clients of the batch sent the same list, computed at the same factors."""
        return self.position.shape[0] == 1 and self.reference is None

    def rows(self, every: slice) -> Uploads:
        """Some rows of each client."""
        names = ("kind", "index", "position", "valid", "gradients", "reference", "sequence")
        columns = {name: getattr(self, name) for name in names}
        return replace(self, **{name: one[:, every] for name, one in columns.items() if one is not None})

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


def gathered(
    messages: Messages,
    layout: Layout,
    broadcast: Broadcast,
    round_row: int,
    members: Int[np.ndarray, " users"],
    rule: ClientRule,
) -> Uploads:
    """Gather the uploads of some clients in one round."""
    assert messages.gradient is not None
    start, length = layout.start[round_row, members], layout.length[round_row, members]
    n_users, n_rows = members.size, int(length.max(initial=0))
    alike = n_rows > 0 and bool((length == n_rows).all())
    names = ["kind", "index", "gradient"]
    names += [name for name in ("reference", "sequence") if getattr(messages, name) is not None]
    columns = [getattr(messages, name) for name in names]
    if alike and layout.permutation is None and (start[1:] == start[:-1] + n_rows).all():
        low, high = int(start[0]), int(start[-1]) + n_rows
        taken = [messages.between(column, low, high) for column in columns]
        taken = [column.reshape(n_users, n_rows, *column.shape[1:]) for column in taken]
        is_row = np.ones((1, n_rows), bool)
    else:
        slot = np.arange(n_rows)
        is_row = slot < length[:, None]
        rows = np.where(is_row, start[:, None] + slot, 0)
        if layout.permutation is not None:
            rows = layout.permutation[rows]
        taken = messages.take(rows, *columns)
        for column in taken[2:]:
            column[~is_row] = 0
    row = dict(zip(names, taken, strict=True))
    kind, index = row["kind"], row["index"]
    valid = np.ones((1, n_rows), bool) if alike else is_row
    if alike and (index[1:] == index[0]).all() and (kind[1:] == kind[0]).all():
        kind, index = kind[:1], index[:1]
    position = np.where(valid, broadcast.positions(kind, index), 0)
    gradients, reference = row["gradient"], row.get("reference")
    if rule.reduction == "mean" and rule.batch_size == "all":
        gradients = gradients * length[:, None, None].astype(gradients.dtype)
    round_ = int(layout.rounds[round_row])
    return Uploads(round_, kind, index, position, valid, gradients, broadcast, reference, row.get("sequence"))


__all__ = [
    "ATTRIBUTE",
    "BATCH_BYTES",
    "ITEM",
    "KINDS",
    "UNTOLD",
    "Broadcast",
    "Copies",
    "Layout",
    "Links",
    "Messages",
    "Sums",
    "Told",
    "Traffic",
    "Uploads",
    "UserBatch",
    "View",
    "rows_of",
]


BATCH_BYTES = 12 << 20  # gradients of one batch and round: few calls, yet near the processor


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
        Weights are changes of what was broadcast, and rows that carry nothing are left out
        (``victims.transcript.changes``).
    sums : mapping of round to Sums
        Rounds whose decrypted sums the adversary sees; no uploads are among them.
    item_server : mapping of round to Sums
        What the item server sends the server about each item, where the adversary is one of them or reads
        the wire.
    anonymous_rows : int
        Uploads that the adversary receives without their sender; they are not among ``messages``.
    unplaced_rows : int
        Uploads that it receives about factors that others alone hold; they are not among ``messages``.
    copies : Copies, or None
        Where clients are the adversary: rows of others as they arrive, one for each that receives it. Those
        with a sender are among ``messages``, too: for ``neighbour:N`` and ``neighbours:N,M`` there as their
        senders had them before the weights, of several copies their best average.
    links : Links, or None
        Edges of the graph that the adversary knows.
    told : mapping of kind to Told
        Rows of kinds of role other that it receives.
    traffic : Traffic, or None
        Where it sees that rows are sent, and not what they are.
    holdings : mapping of client to mapping of round to Broadcast
        What each member of the adversary alone knows; ``broadcasts`` has the first one's in it.
    sums_of_members : mapping of client to mapping of round to Sums
        Where clients are the adversary: the sums that each sees; ``sums`` has the first one's of each item.
    implicit : View, or None
        The same party's view of the rows about a second table of item factors, that of implicit feedback,
        as if they were a recording of their own.
    """

    adversary: str
    manifest: Manifest
    broadcasts: Mapping[int, Broadcast]
    messages: Messages
    sums: Mapping[int, Sums] = field(default_factory=dict)
    item_server: Mapping[int, Sums] = field(default_factory=dict)
    anonymous_rows: int = 0
    unplaced_rows: int = 0
    copies: Copies | None = None
    links: Links | None = None
    told: Mapping[str, Told] = field(default_factory=dict)
    traffic: Traffic | None = None
    holdings: Mapping[int, Mapping[int, Broadcast]] = field(default_factory=dict)
    sums_of_members: Mapping[int, Mapping[int, Sums]] = field(default_factory=dict)
    implicit: View | None = None

    def __repr__(self) -> str:
        """One line: who sees how much."""
        return (
            f"View({self.adversary!r}, rounds={len(self.broadcasts)}, uploaded rows={self.messages.n_rows}, "
            f"rounds with sums={len(self.sums)})"
        )

    @property
    def members(self) -> tuple[int, ...]:
        """Clients who are the adversary, ascending."""
        return members_of(self.adversary)

    @property
    def layout(self) -> Layout:
        """Where each client's rows lie."""
        return layout_of(self.messages)

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
        copies = self.copies
        if copies is not None:
            copies = copies.where(np.isin(copies.sender, [*users, UNTOLD]))
        implicit = None if self.implicit is None else self.implicit.select(users)
        messages = rows_of(self.messages, np.concatenate(keep))
        return replace(self, messages=messages, copies=copies, implicit=implicit)

    def declared(self, **changes: Any) -> View:
        """The same view as if some fields of its manifest said something else (messages are shared)."""
        return replace(self, manifest=self.manifest.model_copy(update=changes))

    def during(self, rounds: Sequence[int] | np.ndarray) -> View:
        """The same view restricted to some rounds (rows are copied).

        Raises
        ------
        InputError
            If a round is not in the view.
        """
        wanted = np.unique(np.asarray(rounds))
        recorded = np.union1d(self.rounds, list(self.broadcasts)).astype(int)
        missing = np.setdiff1d(wanted, recorded)
        if missing.size:
            raise InputError(
                f"round {missing[0]} is not in the view, which holds {', '.join(map(str, recorded))}"
            )
        keep = [
            np.flatnonzero(np.isin(round_, wanted)) + start
            for round_, start in zip(self.messages.round, self.messages.offsets, strict=False)
        ]
        chosen = wanted.tolist()
        return replace(
            self,
            manifest=self.manifest.model_copy(update={"rounds": chosen}),
            broadcasts={round_: self.broadcasts[round_] for round_ in chosen if round_ in self.broadcasts},
            messages=rows_of(self.messages, np.concatenate(keep)),
            sums={round_: self.sums[round_] for round_ in chosen if round_ in self.sums},
            item_server={round_: self.item_server[round_] for round_ in chosen if round_ in self.item_server},
            copies=None if self.copies is None else self.copies.where(np.isin(self.copies.round, wanted)),
            holdings={
                member: {round_: held[round_] for round_ in chosen if round_ in held}
                for member, held in self.holdings.items()
            },
            sums_of_members={
                member: {round_: own[round_] for round_ in chosen if round_ in own}
                for member, own in self.sums_of_members.items()
            },
            implicit=None if self.implicit is None else self.implicit.during(chosen),
        )

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
        sums = {round_: _dealt(seen, rng) for round_, seen in self.sums.items()}
        implicit = None if self.implicit is None else self.implicit.shuffled(seed)
        if messages.gradient is None:
            return replace(self, sums=sums, implicit=implicit)
        copies = None
        if self.copies is not None:
            copies = self.copies.dealt(generator(seed, Purpose.SHUFFLED_VIEW, 1))
        whole = rows_of(messages, messages.in_order())
        rounds, kinds = whole.round[0], whole.kind[0]
        deal = np.lexsort((rng.random(rounds.size), kinds, rounds))
        in_kind_order = np.lexsort((kinds, rounds))
        source = np.empty_like(deal)
        source[in_kind_order] = deal
        assert whole.gradient is not None
        dealt = replace(whole, gradient=(whole.gradient[0][source],))
        return replace(self, messages=dealt, sums=sums, copies=copies, implicit=implicit)

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
        layout = self.layout
        uploads = tuple(
            gathered(self.messages, layout, self.broadcasts[round_], row, members, self.manifest.rule)
            for row, round_ in enumerate(layout.rounds.tolist())
        )
        return UserBatch(layout.users[members], uploads)


def _dealt(sums: Sums, rng: np.random.Generator) -> Sums:
    """Values of sums dealt out among those of the same kind."""
    order = np.lexsort((sums.index, sums.kind))
    deal = np.lexsort((rng.random(sums.kind.size), sums.kind[order]))
    values = np.empty_like(sums.values)
    values[order] = sums.values[order][deal]
    if sums.error is None:
        return replace(sums, values=values)
    error = np.empty_like(sums.error)
    error[order] = sums.error[order][deal]
    return replace(sums, values=values, error=error)
