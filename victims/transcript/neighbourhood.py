"""What clients see of each other where rows go along a graph, and what others see of the graph itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.transcript.deliveries import Deliveries
from victims.transcript.messages import OPTIONAL, Messages
from victims.transcript.parties import UNTOLD


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
class Told:
    """Rows of a kind of role other that an adversary receives."""

    round: Int[np.ndarray, " rows"]
    sender: Int[np.ndarray, " rows"]
    receiver: Int[np.ndarray, " rows"]
    index: Int[np.ndarray, " rows"]
    value: Float[np.ndarray, " rows"]  # naN where a row has none


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
