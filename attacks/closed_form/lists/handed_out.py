"""Parallel rows that tell one user of a client, or what the server handed out to it.

Rows of one direction are those of one user of a client (``attacks.closed_form.rows.parallel_groups``). Under
SCAFFOLD all rows hold the mean of all clients' rows of the round before, and rows of items that one other
client alone rated are parallel, too: that client's ratings. It sends rows about all of them, then, as every
client does by and by; a client with users of its own has rows that no single other one sends. Of a client
that is alone in a recording nothing tells the two apart. Who takes steps over minibatches has no other rows
than parallel ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import Estimates, Reconstruction
from attacks.closed_form.fit.contradicted import silent_about
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.moving_factor import grouped
from attacks.closed_form.uploads.readings import Rows
from victims.transcript.view import ITEM, View

HANDED_OUT = (
    "its parallel rows may be of another client, who sends rows about all of these items as well, or is not "
    "recorded: what a server hands out of others' rows (SCAFFOLD's control variate) looks like that"
)


class _Groups(NamedTuple):
    """Whose they are, and the items of each."""

    user: Int[np.ndarray, " groups"]
    items: Bool[np.ndarray, "groups items"]


def unless_handed_out(found: Reconstruction, view: View, pull: float) -> Reconstruction:
    """Take back what is read of parallel rows alone where another client sends rows about all those items."""
    answered = ~np.isin(found.users, list(found.abstained))
    asked = found.users[answered & (found.diagnostics["steps"] == 0)]
    if not asked.size:
        return found
    groups = _groups(view.select(asked), pull)
    covered = _covered(groups, view, pull)
    open_ = {user: groups.items[covered & (groups.user == user)].any(axis=0) for user in asked.tolist()}
    blocks = tuple(_without(block, open_) for block in found.blocks)
    left = {user for block in blocks for user in block.users[np.isfinite(block.value).any(axis=1)].tolist()}
    return silent_about(
        replace(found, blocks=blocks),
        np.isin(found.users, [one for one in open_ if one not in left]),
        HANDED_OUT,
    )


def _sent(rows: Rows) -> Bool[np.ndarray, "users rows"]:
    """Which rows are not zero."""
    return rows.item & (rows.rows != 0).any(axis=2)


def _groups(view: View, pull: float) -> _Groups:
    """Parallel rows of clients who send others as well, two or more, of every round."""
    user, items = [np.zeros(0, int)], [np.zeros((0, view.manifest.n_items), bool)]
    for batch in view.batches(BATCH_BYTES):
        for one in batch.rounds:
            rows = rows_of(view.manifest, one, None, 0.0, pull)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                label = grouped(rows.rows, rows.factors, rows.item, rows.precision).label
            index = np.broadcast_to(one.index, label.shape)
            for client, own in enumerate(label):
                size = np.bincount(own[own >= 0])
                for head in np.flatnonzero(size > 1) if (size == 1).any() else ():
                    user.append(batch.users[client : client + 1])
                    items.append(np.isin(np.arange(view.manifest.n_items), index[client, own == head])[None])
    return _Groups(np.concatenate(user), np.concatenate(items))


def _covered(groups: _Groups, view: View, pull: float) -> Bool[np.ndarray, " groups"]:
    """About whose items another client sends rows, all of them, in one round or another."""
    out = np.full(groups.user.size, view.users.size == 1)
    size = groups.items.sum(axis=1)[:, None]
    for batch in view.batches(BATCH_BYTES):
        sent = np.zeros((batch.users.size, groups.items.shape[1]), np.float32)
        for one in batch.rounds:
            there = _sent(rows_of(view.manifest, one, None, 0.0, pull))
            user, row = np.nonzero(there)
            sent[user, np.broadcast_to(one.index, there.shape)[user, row]] = 1
        whole: Float[np.ndarray, "groups users"] = groups.items.astype(np.float32) @ sent.T
        out |= ((whole >= size) & (groups.user[:, None] != batch.users)).any(axis=1)
    return out


def _without(block: Estimates, open_: dict[int, Bool[np.ndarray, " items"]]) -> Estimates:
    """The block with nothing said about some items of some clients."""
    value = block.value.copy()
    items = np.broadcast_to(block.index, value.shape)
    rated = np.broadcast_to(block.kind == ITEM, value.shape)
    for at, user in enumerate(block.users.tolist()):
        if user in open_:
            value[at, rated[at] & open_[user][items[at]]] = np.nan
    return replace(block, value=value)
