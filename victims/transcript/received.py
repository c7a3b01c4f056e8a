"""Rows as a party receives them: along which edges, times what, once each, about what it has a factor of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.transcript.changes import positions
from victims.transcript.kinds import ATTRIBUTE, ITEM
from victims.transcript.messages import OPTIONAL, UNTOLD, Broadcast, Messages, Sums, Told


@dataclass(frozen=True)
class Links:
    """Edges that an adversary knows, (n_edges,) each."""

    sender: Int[np.ndarray, " edges"]
    receiver: Int[np.ndarray, " edges"]
    weight: Float[np.ndarray, " edges"]
    first: Int[np.ndarray, " edges"]
    last: Int[np.ndarray, " edges"]


@dataclass(frozen=True)
class Copies:
    """Rows of others as they arrive at the members of an adversary, in an order that tells nothing."""

    round: Int[np.ndarray, " rows"]
    sender: Int[np.ndarray, " rows"]  # ``UNTOLD`` where receivers do not see who sends
    receiver: Int[np.ndarray, " rows"]
    kind: Int[np.ndarray, " rows"]
    index: Int[np.ndarray, " rows"]
    # of the edge that the row came along; NaN where the sender is not told, for it tells the edge
    weight: Float[np.ndarray, " rows"]
    # as it arrives: times the weight, and after what defenses did to the message
    gradient: Float[np.ndarray, "rows factors"]

    def where(self, keep: Bool[np.ndarray, " rows"]) -> Copies:
        """Some of them."""
        return Copies(**{name: column[keep] for name, column in vars(self).items()})

    def signed(self) -> Copies:
        """Those whose sender is told."""
        return self.where(self.sender != UNTOLD)

    def with_more(self, more: Copies) -> Copies:
        """These and others."""
        names = vars(self)
        return Copies(**{name: np.concatenate([getattr(self, name), getattr(more, name)]) for name in names})

    def dealt(self, rng: np.random.Generator) -> Copies:
        """Gradients dealt out anew among the rows of their round and kind."""
        into = np.lexsort((self.kind, self.round))
        source = np.empty_like(into)
        source[into] = np.lexsort((rng.random(self.round.size), self.kind, self.round))
        return replace(self, gradient=self.gradient[source])


@dataclass(frozen=True)
class Traffic:
    """How many rows each client sends in a round: what sealed links show of their content."""

    round: Int[np.ndarray, " n"]
    sender: Int[np.ndarray, " n"]
    rows: Int[np.ndarray, " n"]


def links_seen(deliveries: Deliveries, members: Sequence[int], *, everything: bool, weights: bool) -> Links:
    """Edges that somebody knows: those of its members, or all."""
    at_members = np.isin(deliveries.sender, members) | np.isin(deliveries.receiver, members)
    keep = np.flatnonzero(at_members | everything)
    weight = deliveries.weight[keep] if weights else np.full(keep.size, np.nan)
    ends = deliveries.sender[keep], deliveries.receiver[keep]
    return Links(*ends, weight, deliveries.first[keep], deliveries.last[keep])


def copies_at(
    messages: Messages,
    receiver: Sequence[np.ndarray],
    deliveries: Deliveries | None,
    members: Sequence[int],
    *,
    anonymous: bool,
) -> Copies:
    """Rows of others that arrive at some clients."""
    parts = [
        part for member in members for part in _arriving(messages, receiver, deliveries, member, members)
    ]
    width = messages.gradient[0].shape[1] if messages.gradient else 0
    nothing = np.zeros(0, np.int32)
    empty = Copies(nothing, nothing, nothing, nothing, nothing, np.zeros(0), np.zeros((0, width)))
    names = vars(empty)
    found = Copies(**{name: np.concatenate([getattr(p, name) for p in [empty, *parts]]) for name in names})
    if anonymous:
        untold = np.full(found.sender.size, UNTOLD, np.int32)
        found = replace(found, sender=untold, weight=np.full(untold.size, np.nan))
    content = [*found.gradient.T[::-1], found.sender, found.index, found.kind, found.receiver, found.round]
    order = np.lexsort(content)  # by content alone: neither the file's order nor the senders' shows
    return Copies(**{name: column[order] for name, column in vars(found).items()})


def _arriving(
    messages: Messages,
    receiver: Sequence[np.ndarray],
    deliveries: Deliveries | None,
    member: int,
    members: Sequence[int],
) -> Iterator[Copies]:
    for chunk, to in enumerate(receiver):
        sender, round_ = messages.sender[chunk], messages.round[chunk]
        multiple = np.where(to == member, 1.0, 0.0)
        if deliveries is not None:
            of_edge = deliveries.weights(member, sender, round_)
            along = (to == UNTOLD) & (sender != UNTOLD)
            multiple[along] = of_edge[along]
        here = np.flatnonzero((multiple != 0) & ~np.isin(sender, members))
        weight = multiple[here]
        if deliveries is not None:  # a message of its own was multiplied before it was sent
            known = of_edge[here]
            weight = np.where(known != 0, known, weight)
        assert messages.gradient is not None
        yield Copies(
            round_[here],
            sender[here],
            np.full(here.size, member, np.int32),
            messages.kind[chunk][here].astype(np.int32),
            messages.index[chunk][here],
            weight,
            messages.gradient[chunk][here] * multiple[here, None],
        )


def averaged(copies: Copies) -> Messages:
    """What the senders' rows were, as told by all copies: each divided by its weight, averaged by its square.

    Copies of a row that differ by noise alone, of one size, are used as well as can be (least squares).
    """
    keys = (copies.index, copies.kind, copies.sender, copies.round)
    order = np.lexsort(keys)
    first = np.ones(order.size, bool)
    if order.size:
        first[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    starts = np.flatnonzero(first)
    weight = copies.weight[order][:, None]
    if starts.size:
        total = np.add.reduceat(weight * copies.gradient[order], starts, axis=0)
        gradient = total / np.add.reduceat(weight**2, starts, axis=0)
    else:
        gradient = copies.gradient[order]
    index, kind, sender, round_ = (key[order][starts].astype(np.int32) for key in keys)
    return Messages((round_,), (sender,), (kind,), (index,), (gradient,))


def with_own(others: Messages, own: Messages) -> Messages:
    """Join rows of others and those that an adversary sent itself, without what only some of them have."""
    bare: dict[str, None] = {name: None for name in OPTIONAL if name != "gradient"}
    names = ("round", "sender", "kind", "index", "gradient")
    both = {name: (*getattr(others, name), *getattr(own, name)) for name in names}
    return replace(others, **bare, **both)  # type: ignore[arg-type]


def traffic_of(messages: Messages) -> Traffic:
    """Count the rows of each client and round."""
    pairs = [np.stack(pair, 1) for pair in zip(messages.round, messages.sender, strict=True)]
    found, count = np.unique(np.concatenate([np.zeros((0, 2), int), *pairs]), axis=0, return_counts=True)
    return Traffic(found[:, 0], found[:, 1], count)


@dataclass(frozen=True)
class Deliveries:
    """Edges of a graph, by receiver, sender and first round."""

    sender: Int[np.ndarray, " edges"]
    receiver: Int[np.ndarray, " edges"]
    weight: Float[np.ndarray, " edges"]  # what the sender's rows are multiplied by on the way
    first: Int[np.ndarray, " edges"]  # round in which the edge is there
    last: Int[np.ndarray, " edges"]  # round in which it is there still

    def weights(
        self, receiver: int, sender: Int[np.ndarray, " rows"], round_: Int[np.ndarray, " rows"]
    ) -> Float[np.ndarray, " rows"]:
        """Multiples at which somebody receives rows; 0 where it does not."""
        here = slice(*np.searchsorted(self.receiver, [receiver, receiver + 1]))
        if here.start == here.stop:
            return np.zeros(sender.size)
        key = _key(self.sender[here], self.first[here])
        at = np.maximum(np.searchsorted(key, _key(sender, round_), side="right") - 1, 0)
        there = (self.sender[here][at] == sender) & (self.first[here][at] <= round_)
        there &= round_ <= self.last[here][at]
        return np.where(there, self.weight[here][at], 0.0)


def _key(sender: np.ndarray, round_: np.ndarray) -> np.ndarray:
    """One number that ascends by sender, then by round."""
    return sender.astype(np.int64) << 31 | round_.astype(np.int64)


def overlapping(
    sender: Int[np.ndarray, " edges"],
    receiver: Int[np.ndarray, " edges"],
    first: Int[np.ndarray, " edges"],
    last: Int[np.ndarray, " edges"],
) -> tuple[int, int] | None:
    """Find two edges of the same parties that share a round."""
    order = np.lexsort([first, sender, receiver])
    here, then = order[:-1], order[1:]
    shared = (receiver[then] == receiver[here]) & (sender[then] == sender[here]) & (first[then] <= last[here])
    at = np.flatnonzero(shared)
    return (int(here[at[0]]), int(then[at[0]])) if at.size else None


def received_by(told: Mapping[str, Told], parties: Sequence[int]) -> dict[str, Told]:
    """What an adversary receives, or sent itself."""
    out = {}
    for name, rows in told.items():
        keep = np.isin(rows.receiver, parties) | np.isin(rows.sender, parties)
        keep |= (rows.sender < 0) & (rows.receiver == UNTOLD)  # broadcast
        if keep.any():
            out[name] = Told(**{key: column[keep] for key, column in vars(rows).items()})
    return out


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
