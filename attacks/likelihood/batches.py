"""A view as padded arrays, one row per item and client, the rounds stacked.

The decoder works on all rounds of a client at once, so a rating must lie in the same slot in every
round. Batches take few shapes, because each new shape is compiled once; slots come last, because loops
over them are the ones that a processor runs fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import DTypeLike

from attacks.likelihood.noise_laws import LAPLACE, Law
from victims.common.seeds import Purpose, generator
from victims.transcript.view import ATTRIBUTE, ITEM, Uploads, View

CELL_BUDGET = 3_000_000  # gradients x factors x rounds of one batch
NARROWEST = 32  # slots


class Rows(NamedTuple):
    """Uploads of some clients, rounds aligned."""

    item: Int[np.ndarray, "users slots"]  # row in ``Packing.items`` of each slot, 0 on padding
    valid: Bool[np.ndarray, "users slots"]
    # uploaded rows, scale and regularisation removed, 0 where none came
    items: Float[np.ndarray, "rounds users K slots"]
    factors: Float[np.ndarray, "rounds users K slots"]  # factors broadcast for these items, 0 on padding
    middle: Float[np.ndarray, "users K slots"]  # their mean over rounds
    sent: Bool[np.ndarray, "rounds users slots"]  # which rows were sent
    attributes: Float[np.ndarray, "rounds users K attributes"]  # the same, one slot per attribute
    attributes_sent: Bool[np.ndarray, "rounds users attributes"]  # the same, one slot per attribute
    blank: Float[np.ndarray, " users"]  # sum of the law's loss of all coordinates, were there no row
    live: Float[np.ndarray, " users"]  # 0 for clients that only fill the batch

    def during(self, rounds: Int[np.ndarray, " some"]) -> Rows:
        """Only these places of the rounds' axis; ``blank`` and ``middle`` stay."""
        parts = "items", "factors", "sent", "attributes", "attributes_sent"
        if np.array_equal(rounds, np.arange(len(self.items))):
            return self
        return self._replace(**{field: np.asarray(getattr(self, field))[rounds] for field in parts})


@dataclass(frozen=True)
class Packing:
    """How a view is cut into batches."""

    item_ids: Int[np.ndarray, " items"]  # items that were broadcast in any round
    items: Float[np.ndarray, "rounds items K"]  # their broadcast factors, 0 in rounds without them
    attribute_factors: Float[np.ndarray, "rounds K attributes"]  # broadcast factors of the attributes
    # positions in ``view.users`` of each batch, padded to the batch's size by repeating the last
    members: tuple[np.ndarray, ...]
    sizes: tuple[int, ...]  # clients of each batch without the padding
    widths: tuple[int, ...]  # slots of each batch


def plan(view: View, shape_cost: float = 1e6, cells: int = CELL_BUDGET) -> Packing:
    """Cut the clients of a view into batches of few shapes."""
    length = _slots(view)
    order = np.argsort(length, kind="stable")
    weight = view.manifest.factors * max(view.layout.rounds.size, 1)
    members, sizes, widths = [], [], []
    width_of = _widths(length[order], shape_cost / max(view.layout.rounds.size, 1))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(width_of)) + 1, [order.size]])
    for low, high in pairwise(starts):
        if low == high:
            continue
        width = int(width_of[low])
        n_parts = -(-(high - low) // max(1, cells // (width * weight)))
        full = -(-(high - low) // n_parts)
        for chosen in np.array_split(order[low:high], n_parts):
            members.append(np.concatenate([chosen, np.full(full - chosen.size, chosen[-1])]))
            sizes.append(int(chosen.size))
            widths.append(width)
    ids = [broadcast.item_ids for broadcast in view.broadcasts.values()]
    item_ids = np.unique(np.concatenate(ids)) if ids else np.zeros(0, np.int32)
    items, own = _public(view, item_ids)
    return Packing(item_ids, items, own.swapaxes(1, 2), tuple(members), tuple(sizes), tuple(widths))


def _slots(view: View) -> Int[np.ndarray, " users"]:
    """Slots that each client needs: its rows, or its items of all rounds where they differ by round."""
    layout, messages, manifest = view.layout, view.messages, view.manifest
    length = layout.length.max(axis=0, initial=0)
    if layout.rounds.size < 2:
        return length
    # a sum of random numbers, one per item, is the same in two rounds for the same list only
    name = generator(0, Purpose.LIST_CHECKSUMS).integers(1, 1 << 31, manifest.n_items + 1).astype(np.float64)
    n_users, total = layout.users.size, np.zeros(layout.rounds.size * layout.users.size)
    for round_, sender, kind, index in zip(
        messages.round, messages.sender, messages.kind, messages.index, strict=True
    ):
        run = np.searchsorted(layout.rounds, round_) * n_users + np.searchsorted(layout.users, sender)
        weight = np.where(kind == ITEM, name[np.minimum(index, manifest.n_items)], 0.0)
        total += np.bincount(run, weight, minlength=total.size)
    by_round = total.reshape(layout.rounds.size, n_users)
    changing = layout.users[(by_round != by_round[0]).any(axis=0)]
    if not changing.size:
        return length
    pairs = [
        np.searchsorted(layout.users, sender[keep]).astype(np.int64) * manifest.n_items + index[keep]
        for sender, kind, index in zip(messages.sender, messages.kind, messages.index, strict=True)
        for keep in [(kind == ITEM) & np.isin(sender, changing)]
    ]
    distinct = np.unique(np.concatenate(pairs)) // manifest.n_items
    return np.maximum(length, np.bincount(distinct, minlength=n_users))


def _widths(length: Int[np.ndarray, " users"], cost_of_width: float) -> Int[np.ndarray, " users"]:
    """Width of every client's batch, from ascending lengths: least padding plus ``cost_of_width`` each.

    Exact over widths that are multiples of 8, an eighth apart, by dynamic programming.
    """
    candidates = [NARROWEST]
    while candidates[-1] < length.max(initial=0):
        candidates.append(-(-candidates[-1] * 9 // 64) * 8)
    below = np.searchsorted(length, candidates, side="right")
    cost, choice = [0.0], [0]
    for position, width in enumerate(candidates):
        total = [
            cost[start] + (below[position] - (below[start - 1] if start else 0)) * width + cost_of_width
            for start in range(position + 1)
        ]
        choice.append(int(np.argmin(total)))
        cost.append(min(total))
    out, position = np.zeros(length.size, int), len(candidates)
    while position > 0:
        start = choice[position]
        out[(below[start - 1] if start else 0) : below[position - 1]] = candidates[position - 1]
        position = start
    return out


def _public(view: View, item_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Broadcast factors of items and of attributes, (rounds, rows, K)."""
    manifest = view.manifest
    attribute_ids = np.arange(manifest.n_attributes)
    tables: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for round_ in view.rounds:
        broadcast = view.broadcasts[int(round_)]
        for kind, ids, out in ((ITEM, item_ids, tables[0]), (ATTRIBUTE, attribute_ids, tables[1])):
            position = broadcast.positions(np.full(ids.size, kind), ids)
            known = np.where(position >= 0, position, 0)
            found = broadcast.factors[known] if broadcast.factors.size else np.zeros((0, manifest.factors))
            out.append(np.where((position >= 0)[:, None], found, 0.0))
    return np.stack(tables[0]).astype(np.float64), np.stack(tables[1]).astype(np.float64)


def pack(view: View, packing: Packing, round_: int, kind: DTypeLike = np.float64, law: Law = LAPLACE) -> Rows:
    """Align the rounds of one batch's clients in padded arrays."""
    manifest, upload = view.manifest, view.manifest.upload
    members, size, width = packing.members[round_], packing.sizes[round_], packing.widths[round_]
    batch = view.batch(members[:size])
    n_users, n_rounds, k = members.size, len(batch.rounds), manifest.factors
    found = [_flat(uploads, ITEM, packing.item_ids) for uploads in batch.rounds]
    base = max(packing.item_ids.size, 1)
    keys = [user * base + item for user, item, _ in found]
    distinct = keys[:1] if all(np.array_equal(key, keys[0]) for key in keys) else keys
    everything = np.unique(np.concatenate(distinct))
    owner, item_of = everything // base, everything % base
    slot_of = np.arange(everything.size) - np.searchsorted(owner, np.arange(size))[owner]
    item = np.zeros((n_users, width), np.int32)
    valid = np.zeros((n_users, width), bool)
    item[owner, slot_of], valid[owner, slot_of] = item_of, True
    n_attributes = manifest.n_attributes
    rows = np.zeros((n_rounds, n_users, k, width), kind)
    factors, sent = np.zeros_like(rows), np.zeros((n_rounds, n_users, width), bool)
    others = np.zeros((n_rounds, n_users, k, n_attributes), kind)
    others_sent = np.zeros((n_rounds, n_users, n_attributes), bool)
    blank, middle = np.zeros(n_users), np.zeros((n_users, k, width))
    for t, (user, position, gradient) in enumerate(found):
        slot = slot_of[np.searchsorted(everything, keys[t])]
        own = upload.regularization * packing.items[t, position]
        clean = (gradient - own) / upload.scale
        _place(rows[t], sent[t], (user, slot), clean)
        blank += np.bincount(user, law.loss(clean).sum(axis=1), minlength=n_users)
        public = packing.items[t][item].swapaxes(1, 2) * sent[t][:, None]  # (8) knows rows of this round
        factors[t] = public
        middle += public / n_rounds
        who, column, own_rows = _flat(batch.rounds[t], ATTRIBUTE, np.arange(n_attributes))
        own_rows = (own_rows - upload.regularization * packing.attribute_factors[t].T[column]) / upload.scale
        _place(others[t], others_sent[t], (who, column), own_rows)
        blank += np.bincount(who, law.loss(own_rows).sum(axis=1), minlength=n_users)
    live = (np.arange(n_users) < size).astype(np.float64)
    padded = item, valid, *(a.swapaxes(0, 1) for a in (rows, factors, sent, others, others_sent))
    for array in (*padded, blank, middle):
        array[size:] = array[size - 1]
    return Rows(item, valid, rows, factors, middle.astype(kind), sent, others, others_sent, blank, live)


def _place(
    table: Shaped[np.ndarray, "users K slots"],
    sent: Bool[np.ndarray, "users slots"],
    where: tuple[np.ndarray, np.ndarray],
    gradient: Float[np.ndarray, "rows K"],
) -> None:
    """Put the rows of one round where they belong."""
    user, slot = where
    table[user, :, slot] = gradient
    sent[user, slot] = True


def _flat(uploads: Uploads, kind: int, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Client, position of the index in ``ids`` and gradient of every row of one kind."""
    shape = uploads.gradients.shape[:2]
    wanted = np.broadcast_to(uploads.valid & (uploads.kind == kind), shape)
    user, column = np.nonzero(wanted)
    index = np.broadcast_to(uploads.index, shape)[user, column]
    return user, np.searchsorted(ids, index), uploads.gradients[user, column].astype(np.float64)
