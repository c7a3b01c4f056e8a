"""One round of PDMFRec as arrays; symbols as in ``pdmfrec``.

Nothing dense over clients, items and factors exists. A client rates an item once, so its pass meets each of
its V_i once, as it was before the round. And what neighbours send about an item that u did not rate moves
V_j^u by the same weights in every round: V_j^u = V_j^0 - gamma sum_w W_wu (sum over rounds of grad_j^w) /
|N_u^j|. So it is enough to carry U, the V of rated items, and for each rating the sum of the rows that it
sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.data.ratings import Ratings


class ByItem(NamedTuple):
    """Ratings in the order of their items."""

    entry: Int[np.ndarray, " ratings"]  # numbers of ratings, by item, then client
    indptr: Int[np.ndarray, " items_plus_1"]
    user: Int[np.ndarray, " ratings"]  # client of each of ``entry``

    def raters(self) -> Iterator[tuple[int, slice]]:
        """Items that somebody rated, and where their ratings lie."""
        for item in np.flatnonzero(np.diff(self.indptr)).tolist():
            yield item, slice(self.indptr[item], self.indptr[item + 1])


def by_item(ratings: Ratings) -> ByItem:
    """Sort ratings by item."""
    entry = np.argsort(ratings.items, kind="stable")
    counts = np.bincount(ratings.items, minlength=ratings.n_items)
    return ByItem(entry, np.concatenate([[0], np.cumsum(counts)]), ratings.users[entry])


def delivered(
    sent: Float[np.ndarray, "ratings K"],
    index: ByItem,
    weight: Float[np.ndarray, "users users"],
    twice: bool,
) -> Float[np.ndarray, "ratings K"]:
    """Line 11 for rated items: the mean of what neighbours send about the item of each rating."""
    out = np.zeros_like(sent)
    for _, here in index.raters():
        users, entry = index.user[here], index.entry[here]
        out[entry] = mean_at(users, users, sent[entry], weight, twice)
    return out


def mean_at(
    receivers: Int[np.ndarray, " m"],
    senders: Int[np.ndarray, " n"],
    rows: Float[np.ndarray, "n K"],
    weight: Float[np.ndarray, "users users"],
    twice: bool,
    one_by_one: bool = False,
) -> Float[np.ndarray, "m K"]:
    """Mean over the neighbours of each receiver among the senders; zeros where it has none."""
    of_edge = weight[receivers[:, None], senders]
    total = (of_edge**2 if twice else of_edge) @ rows
    return total if one_by_one else total / np.maximum(np.count_nonzero(of_edge, axis=1), 1)[:, None]


Start = Callable[[np.ndarray, np.ndarray], np.ndarray]  # users and items of pairs -> V^0 of each


def item_factors_at(
    ratings: Ratings,
    index: ByItem,
    weight: Float[np.ndarray, "users users"],
    twice: bool,
    rate: float,
    rated: Float[np.ndarray, "ratings K"],
    sent_so_far: Float[np.ndarray, "ratings K"],
    start: Start,
    users: Int[np.ndarray, " pairs"],
    items: Int[np.ndarray, " pairs"],
    one_by_one: bool = False,
) -> Float[np.ndarray, "pairs K"]:
    """V_j^u of any pairs of a client and an item."""
    out = start(users, items).astype(np.float64, copy=True)
    order = np.argsort(items, kind="stable")
    cuts = np.searchsorted(items[order], np.arange(index.indptr.size))
    for item, here in index.raters():
        pairs = order[cuts[item] : cuts[item + 1]]
        if pairs.size:
            rows = sent_so_far[index.entry[here]]
            arrived = mean_at(users[pairs], index.user[here], rows, weight, twice, one_by_one)
            out[pairs] -= rate * arrived
    entry = entry_of(ratings, users, items)
    out[entry >= 0] = rated[entry[entry >= 0]]
    return out


def entry_of(
    ratings: Ratings, users: Int[np.ndarray, " pairs"], items: Int[np.ndarray, " pairs"]
) -> Int[np.ndarray, " pairs"]:
    """Number of the rating of each pair; -1 where the client did not rate the item."""
    if ratings.n_ratings == 0:
        return np.full(users.size, -1)
    key = ratings.users.astype(np.int64) * ratings.n_items + ratings.items
    wanted = users.astype(np.int64) * ratings.n_items + items
    at = np.minimum(np.searchsorted(key, wanted), key.size - 1)
    return np.where(key[at] == wanted, at, -1)
