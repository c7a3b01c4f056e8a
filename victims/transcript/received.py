"""Uploads as one party receives them: multiplied on the way, once each, about what it knows a factor of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from victims.transcript.changes import positions
from victims.transcript.deliveries import Deliveries
from victims.transcript.kinds import ATTRIBUTE, ITEM
from victims.transcript.messages import Broadcast, Messages, Sums


def weighted(
    messages: Messages, along: Sequence[np.ndarray], deliveries: Deliveries, receiver: int
) -> Messages:
    """Rows of others times the multiples at which somebody receives them."""
    if messages.gradient is None:
        return messages
    out = []
    columns = zip(messages.gradient, messages.sender, messages.round, along, strict=True)
    for gradient, sender, round_, of_graph in columns:
        multiple = deliveries.weights(receiver, sender, round_)
        multiple[(multiple == 0) | (sender == receiver) | ~of_graph] = 1
        plain = bool((multiple == 1).all())
        out.append(gradient if plain else gradient * multiple[:, None].astype(gradient.dtype))
    return replace(messages, gradient=tuple(out))


def once(messages: Messages) -> Messages:
    """Keep the first of the rows of each round, sender, kind and index."""
    columns = [
        np.concatenate(column) for column in (messages.index, messages.kind, messages.sender, messages.round)
    ]
    order = np.lexsort(columns)
    first = np.ones(order.size, bool)
    if order.size:
        again = np.ones(order.size - 1, bool)
        for column in columns:
            again &= column[order][1:] == column[order][:-1]
        first[order[1:]] = ~again
    return messages.rows(np.split(first, messages.offsets[1:-1]))


def with_indices_of(messages: Messages, broadcasts: Mapping[int, Broadcast]) -> dict[int, Broadcast]:
    """Broadcasts that list every index used; what was not broadcast is NaN there."""
    out = dict(broadcasts)
    for round_ in np.unique(np.concatenate(messages.round)).tolist() if messages.n_rows else []:
        known = out[round_]
        kind, index = (
            np.concatenate([c[r == round_] for c, r in zip(column, messages.round, strict=True)])
            for column in (messages.kind, messages.index)
        )
        missing = known.positions(kind, index) < 0
        if missing.any():
            items, attributes = (np.unique(index[missing & (kind == code)]) for code in (ITEM, ATTRIBUTE))
            out[round_] = _with_unknown(known, items, attributes, messages)
    return out


def _with_unknown(
    known: Broadcast, items: np.ndarray, attributes: np.ndarray, messages: Messages
) -> Broadcast:
    assert messages.reference is not None
    width = messages.reference[0].shape[1]
    all_items = np.union1d(known.item_ids, items).astype(np.int32)
    all_attributes = np.union1d(known.attribute_ids, attributes).astype(np.int32)
    kind = np.repeat([ITEM, ATTRIBUTE], [all_items.size, all_attributes.size])
    at = known.positions(kind, np.concatenate([all_items, all_attributes]))
    factors = np.full((at.size, width), np.nan)
    factors[at >= 0] = known.factors[at[at >= 0]]
    bias = None
    if known.bias is not None:
        bias = np.zeros(at.size)
        bias[at >= 0] = known.bias[at[at >= 0]]
    return Broadcast(all_items, all_attributes, factors, bias=bias)


def placed(messages: Messages, broadcasts: Mapping[int, Broadcast]) -> Messages:
    """Keep the rows about what the party knows a factor of."""
    keep = [position >= 0 for position in positions(messages, broadcasts)]
    return messages if all(mask.all() for mask in keep) else messages.rows(keep)


def placed_sums(sums: Mapping[int, Sums], broadcasts: Mapping[int, Broadcast]) -> dict[int, Sums]:
    """Keep the sums about what the party knows a factor of; rounds without any are left out."""
    out = {}
    for round_, rows in sums.items():
        known = broadcasts[round_]
        position = known.positions(rows.kind, rows.index)
        keep = position >= 0
        keep[keep] = np.isfinite(known.factors[position[keep]]).all(axis=1)
        if keep.any():
            out[round_] = Sums(rows.kind[keep], rows.index[keep], rows.values[keep])
    return out
