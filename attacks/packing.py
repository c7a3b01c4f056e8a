"""A view as padded arrays, one row per item and client, the rounds stacked.

The soft decoder works on all rounds of a client at once, so a rating must lie in the same slot in every
round. Batches take few shapes, because each new shape is compiled once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.view import ATTRIBUTE, ITEM, Uploads, View

CELL_BUDGET = 3_000_000  # gradients x factors x rounds of one batch


class Rows(NamedTuple):
    """Uploads of some clients, rounds aligned.

    item (users, slots): row in ``Public.items`` of each slot, 0 on padding; valid (users, slots);
    items (users, rounds, slots, K): uploaded rows, scale and regularisation removed; items_sent: which of
    them were sent; attributes, attributes_sent: the same, one slot per attribute; live (users,): 0 for
    clients that only fill the batch.
    """

    item: Int[np.ndarray, "users slots"]
    valid: Bool[np.ndarray, "users slots"]
    items: Float[np.ndarray, "users rounds slots K"]
    items_sent: Bool[np.ndarray, "users rounds slots"]
    attributes: Float[np.ndarray, "users rounds attributes K"]
    attributes_sent: Bool[np.ndarray, "users rounds attributes"]
    live: Float[np.ndarray, " users"]


class Public(NamedTuple):
    """Broadcast factors of every round: items (rounds, items, K), attributes (rounds, attributes, K)."""

    items: Float[np.ndarray, "rounds items K"]
    attributes: Float[np.ndarray, "rounds attributes K"]


@dataclass(frozen=True)
class Packing:
    """How a view is cut into batches.

    Attributes
    ----------
    item_ids : ascending
        Items that were broadcast in any round.
    public : Public
    members : tuple of arrays
        Positions in ``view.users`` of each batch, padded to the batch's size by repeating the last.
    sizes : tuple of int
        Clients of each batch without the padding.
    widths : tuple of int
        Slots of each batch.
    """

    item_ids: Int[np.ndarray, " items"]
    public: Public
    members: tuple[np.ndarray, ...]
    sizes: tuple[int, ...]
    widths: tuple[int, ...]


def plan(view: View, cells: int = CELL_BUDGET) -> Packing:
    """Cut the clients of a view into batches of few shapes."""
    manifest, layout = view.manifest, view.layout
    length = layout.length.max(axis=0)
    order = layout.order
    weight = manifest.factors * max(layout.rounds.size, 1)
    members, sizes, widths = [], [], []
    start = 0
    while start < order.size:
        width = _width(int(length[order[-1]]))
        if order.size * width * weight > cells:
            # powers of two: padding at most doubles the work
            width = _width(int(length[order[start]]))
        end = int(np.searchsorted(length[order], width, side="right"))
        count = max(1, cells // (width * weight))
        size = min(count, end - start)
        full = min(count, 1 << int(np.ceil(np.log2(size))))
        chosen = order[start : start + size]
        members.append(np.concatenate([chosen, np.full(max(full - size, 0), chosen[-1])]))
        sizes.append(size)
        widths.append(width)
        start += size
    ids = [broadcast.item_ids for broadcast in view.broadcasts.values()]
    item_ids = np.unique(np.concatenate(ids)) if ids else np.zeros(0, np.int32)
    return Packing(item_ids, _public(view, item_ids), tuple(members), tuple(sizes), tuple(widths))


def _width(length: int) -> int:
    return max(32, 1 << int(np.ceil(np.log2(max(length, 1)))))


def _public(view: View, item_ids: np.ndarray) -> Public:
    manifest = view.manifest
    attribute_ids = np.arange(manifest.n_attributes)
    tables: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for number in view.rounds:
        broadcast = view.broadcasts[int(number)]
        for kind, ids, out in ((ITEM, item_ids, tables[0]), (ATTRIBUTE, attribute_ids, tables[1])):
            position = broadcast.positions(np.full(ids.size, kind), ids)
            known = np.where(position >= 0, position, 0)
            found = broadcast.factors[known] if broadcast.factors.size else np.zeros((0, manifest.factors))
            out.append(np.where((position >= 0)[:, None], found, 0.0))
    return Public(np.stack(tables[0]).astype(np.float64), np.stack(tables[1]).astype(np.float64))


def batches(view: View, packing: Packing) -> Iterator[Rows]:
    """The uploads of each batch of a plan."""
    for members, size, width in zip(packing.members, packing.sizes, packing.widths, strict=True):
        yield pack(view, packing, members, size, width)


def pack(view: View, packing: Packing, members: np.ndarray, size: int, width: int) -> Rows:
    """Align the rounds of some clients in ``width`` slots."""
    manifest = view.manifest
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
    shape = n_users, n_rounds, width
    rows, sent = np.zeros((*shape, k)), np.zeros(shape, bool)
    n_attributes = manifest.n_attributes
    others = np.zeros((n_users, n_rounds, n_attributes, k))
    others_sent = np.zeros((n_users, n_rounds, n_attributes), bool)
    upload = manifest.upload
    for number, (user, _, gradient) in enumerate(found):
        slot = slot_of[np.searchsorted(everything, keys[number])]
        rows[user, number, slot], sent[user, number, slot] = gradient, True
        who, column, row = _flat(batch.rounds[number], ATTRIBUTE, np.arange(n_attributes))
        others[who, number, column], others_sent[who, number, column] = row, True
    if upload.regularization != 0:
        own = packing.public.items[:, item].transpose(1, 0, 2, 3)
        rows -= upload.regularization * own * sent[..., None]
        others -= upload.regularization * packing.public.attributes * others_sent[..., None]
    rows /= upload.scale
    others /= upload.scale
    for array in (item, valid, rows, sent, others, others_sent):
        array[size:] = array[size - 1]
    live = (np.arange(n_users) < size).astype(np.float64)
    return Rows(item, valid, rows, sent, others, others_sent, live)


def _flat(uploads: Uploads, kind: int, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Client, position of the index in ``ids`` and gradient of every row of one kind."""
    shape = uploads.gradients.shape[:2]
    wanted = np.broadcast_to(uploads.valid & (uploads.kind == kind), shape)
    user, column = np.nonzero(wanted)
    index = np.broadcast_to(uploads.index, shape)[user, column]
    return user, np.searchsorted(ids, index), uploads.gradients[user, column].astype(np.float64)
