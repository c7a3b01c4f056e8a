"""Who an anonymous sender is: the neighbour whose weight is the one that its rows tell.

Beyond Duriakova et al. 2019, whose helper tells a client N_u and its row of W, by name. It also knows its own
ratings, and which of several receivers of a coalition got a copy. A sender's rows tell W in up to three ways:

- they are about all items I_w that it rated, so W = |I_w and I_u| / sqrt(|I_w| |I_u|) (Eq. 5) follows from
  the list of the rows and the receiver's own;
- each holds W alpha v (``attacks.peers.planes``), and alpha may be public;
- the numbers that put the ratings on the grid tell W (``attacks.peers.claims``).

All of those that there are must agree with the weight of the neighbour, and no other neighbour may have
that weight. Neighbours of equal weights (all of them, where W is 1) are not told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.peers.received import Arrived
from attacks.peers.row_form import form_of, ratings_of_steps
from victims.transcript.view import ITEM, View

SAME = 1e-6  # relative difference of weights that are the same


def cosine(
    together: Int[np.ndarray, " senders"], size: Int[np.ndarray, " senders"], own: int
) -> Float[np.ndarray, " senders"]:
    """W of Eq. (5); NaN where nothing is shared.

    Examples
    --------
    >>> cosine(np.array([2, 0]), np.array([8, 5]), 2)
    array([0.5, nan])
    """
    product = np.maximum(size * own, 1)
    return np.where(together > 0, together / np.sqrt(product), np.nan)


def candidates(
    told: Float[np.ndarray, "senders ways"], weights: Float[np.ndarray, "neighbours ways"]
) -> Bool[np.ndarray, "senders neighbours"]:
    """Neighbours of whom everything is true that a sender's rows tell."""
    known = np.isfinite(told)
    away = np.abs(np.where(known, told, 0)[:, None, :] - weights)
    agrees = (away <= SAME * np.abs(weights)) | ~known[:, None, :]
    return agrees.all(axis=2) & known.any(axis=1)[:, None]


def named(possible: Bool[np.ndarray, "senders neighbours"]) -> Int[np.ndarray, " senders"]:
    """The neighbour of each sender, where it is the only one; -1 elsewhere.

    A neighbour sends under one name: two senders that could only be the same one are not named.

    Examples
    --------
    >>> named(np.array([[True, False, False], [True, True, False], [False, False, False]]))
    array([ 0,  1, -1])
    """
    left = possible.copy()
    out = np.full(len(left), -1)
    while True:
        single = np.flatnonzero((left.sum(axis=1) == 1) & (out < 0))
        if not single.size:
            return out
        choice = left[single].argmax(axis=1)
        claimed = np.bincount(choice, minlength=left.shape[1])
        clear = claimed[choice] == 1
        out[single[clear]] = choice[clear]
        left[:, choice] = False  # whoever is claimed is no other sender
        if not clear.any():
            return out


class Way(NamedTuple):
    """A number that a sender's rows tell, NaN where they do not, and what it is of each neighbour."""

    told: Float[np.ndarray, " senders"]
    of_neighbour: Float[np.ndarray, " neighbours"]


NO_WEIGHTS = (
    "senders are named by the weights of their edges, and the adversary knows no weight of a neighbour; "
    "peers reads under pseudonyms"
)


def weights_unknown(view: View) -> str:
    """Say why nobody who sends rows without a sender can be named, or nothing."""
    assert view.copies is not None
    rounds = np.unique(view.copies.round).tolist()
    return "" if any(_neighbours(view, number)[0].size for number in rounds) else NO_WEIGHTS


def names_of(
    view: View,
    one: Arrived,
    label: Int[np.ndarray, " messages"],
    pull: Float[np.ndarray, " messages"],
    scale: Float[np.ndarray, " senders"],
) -> Int[np.ndarray, " senders"]:
    """Name the senders of one round whose rows have no sender."""
    neighbours, weights = _neighbours(view, one.round)
    if not (neighbours.size and scale.size):
        return np.full(scale.size, -1)
    sums = _per_sender(label, one.length, scale.size)
    by_list = _ways_of_lists(view, one, np.where(np.isfinite(pull), label, -1), weights, scale.size)
    by_rows = list(_ways_of_rows(view, label, pull, scale, sums, weights))
    if not (by_list or by_rows):  # a member that sent no list of its own, and a scale that is not public
        return np.full(scale.size, -1)
    reached = ((sums > 0)[:, None, :] == (weights > 0)[None]).all(axis=2)
    all_of_them = _possible([*by_list, *by_rows], reached)
    # weights that are no cosine of lists, or lists with more on them than was rated
    rest = ~all_of_them.any(axis=1)
    if rest.any() and by_rows:
        all_of_them[rest] = _possible(by_rows, reached)[rest]
    place = named(all_of_them)
    return np.where(place < 0, -1, neighbours[np.maximum(place, 0)])


def _possible(
    ways: list[Way], reached: Bool[np.ndarray, "senders neighbours"]
) -> Bool[np.ndarray, "senders neighbours"]:
    told, weights = (np.stack(part, axis=1) for part in zip(*ways, strict=True))
    return candidates(told, weights) & reached


def _neighbours(
    view: View, round_: int
) -> tuple[Int[np.ndarray, " neighbours"], Float[np.ndarray, "neighbours members"]]:
    """Clients whose rows reach a member, and the weights of their edges; 0 where there is none."""
    links = view.links
    if links is None:
        return np.zeros(0, int), np.zeros((0, len(view.members)))
    there = (links.first <= round_) & (round_ <= links.last)
    there &= np.isin(links.receiver, view.members) & ~np.isin(links.sender, view.members)
    there &= np.isfinite(links.weight)
    neighbours = np.unique(links.sender[there])
    weights = np.zeros((neighbours.size, len(view.members)))
    row = np.searchsorted(neighbours, links.sender[there])
    weights[row, np.searchsorted(view.members, links.receiver[there])] = links.weight[there]
    return neighbours, weights


def _per_sender(label: np.ndarray, length: np.ndarray, n: int) -> Float[np.ndarray, "senders members"]:
    """Sums over a sender's messages of the lengths of the copies that each member got."""
    out = np.zeros((n, length.shape[1]))
    np.add.at(out, label[label >= 0], length[label >= 0])
    return out


def _ways_of_lists(view: View, one: Arrived, label: np.ndarray, weights: np.ndarray, n: int) -> list[Way]:
    """The cosine of each sender's list, where all of it is linked exactly, and each member's own."""
    linked = label >= 0
    size = np.bincount(label[linked], minlength=n)
    out = []
    for place, member in enumerate(view.members):
        own = _own_list(view, member)
        together = np.bincount(label[linked & np.isin(one.item, own)], minlength=n)
        if own.size:
            out.append(Way(cosine(together, size, own.size), weights[:, place]))
    return out


def _own_list(view: View, member: int) -> Int[np.ndarray, " items"]:
    """Items that a member sends rows about itself."""
    parts = [
        index[(sender == member) & (kind == ITEM)]
        for sender, kind, index in zip(
            view.messages.sender, view.messages.kind, view.messages.index, strict=True
        )
    ]
    return np.unique(np.concatenate([np.zeros(0, np.int32), *parts]))


def _ways_of_rows(
    view: View,
    label: np.ndarray,
    pull: np.ndarray,
    scale: np.ndarray,
    sums: np.ndarray,
    weights: np.ndarray,
) -> Iterator[Way]:
    """What the rows' own numbers tell: multiples of factors, of errors, and how copies differ."""
    form = form_of(view.manifest)
    first = (sums > 0).argmax(axis=1)  # whose copy was taken
    lead = sums[np.arange(len(sums)), first]
    count = np.bincount(label[label >= 0], minlength=scale.size).astype(float)
    told = scale / abs(form.error) * ratings_of_steps(view.manifest, count)
    if np.isfinite(told).any():
        yield from _against_all(told, first, weights)
    if np.isfinite(form.pull) and form.pull != 0:
        of_sender = np.full(scale.size, np.nan)
        linked = (label >= 0) & np.isfinite(pull)
        of_sender[label[linked]] = pull[linked]
        yield from _against_all(of_sender / form.pull, first, weights)
    for place in range(sums.shape[1] if sums.shape[1] > 1 else 0):
        ratio = np.where(lead > 0, sums[:, place] / np.where(lead > 0, lead, 1), np.nan)
        for other in range(sums.shape[1]):
            mine = np.where((first == other) & (sums[:, place] > 0), ratio, np.nan)
            with np.errstate(divide="ignore", invalid="ignore"):
                of_neighbour = np.where(weights[:, other] > 0, weights[:, place] / weights[:, other], 0)
            yield Way(mine, of_neighbour)


def _against_all(told: np.ndarray, first: np.ndarray, weights: np.ndarray) -> Iterator[Way]:
    """A number that is the weight towards the member whose copy was taken."""
    for place in range(weights.shape[1]):
        yield Way(np.where(first == place, told, np.nan), weights[:, place])
