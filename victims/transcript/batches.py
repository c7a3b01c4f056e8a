"""The uploads of some clients as padded arrays, all rounds of a view, cut without copying the file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.transcript.manifest import ClientRule
from victims.transcript.messages import Broadcast, Messages, ascend_in_runs, runs_of


@dataclass(frozen=True)
class Layout:
    """Where each client's rows of each round lie."""

    users: np.ndarray
    rounds: np.ndarray
    start: np.ndarray  # in row numbers of the messages, or of ``permutation``
    length: np.ndarray  # in row numbers of the messages, or of ``permutation``
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
