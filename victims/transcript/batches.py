"""The uploads of some clients as padded arrays, all rounds of a view."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.transcript.layout import Layout
from victims.transcript.messages import Broadcast, Messages


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


def gathered(
    messages: Messages,
    layout: Layout,
    broadcast: Broadcast,
    round_row: int,
    members: Int[np.ndarray, " users"],
) -> Uploads:
    """The uploads of some clients in one round.

    Parameters
    ----------
    messages : Messages
        With gradients.
    layout : Layout
        Of these messages.
    broadcast : Broadcast
        Of the round.
    round_row : int
        Position of the round in ``layout.rounds``.
    members : (n_users,) int
        Positions of the clients in ``layout.users``.
    """
    assert messages.gradient is not None
    start, length = layout.start[round_row, members], layout.length[round_row, members]
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
        is_row = slot < length[:, None]
        rows = np.where(is_row, start[:, None] + slot, 0)
        if layout.permutation is not None:
            rows = layout.permutation[rows]
        kind, index, gradients = messages.take(rows, messages.kind, messages.index, messages.gradient)
        gradients[~is_row] = 0
    valid = np.ones((1, n_rows), bool) if alike else is_row
    if alike and (index[1:] == index[0]).all() and (kind[1:] == kind[0]).all():
        kind, index = kind[:1], index[:1]
    position = np.where(valid, broadcast.positions(kind, index), 0)
    return Uploads(int(layout.rounds[round_row]), kind, index, position, valid, gradients, broadcast)
