"""Line 11 of PDMFRec where every receiver's mean is its own: a table of clients, items and factors.

So it is where every message is changed anew, where those who send change from round to round, and where
copies are sent, of which a receiver takes a mean with its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.protocols.base import Rows
from victims.protocols.pdmfrec_round import ByItem, mean_at

MOST_NUMBERS = 100_000_000  # of a table of clients, items and factors


def mean_of_copies(
    copies: Callable[[int], Rows],
    weight: Float[np.ndarray, "users users"],
    twice: bool,
    ratings: Ratings,
) -> Float[np.ndarray, "users items K"]:
    """Means of what reaches each client about each item; zeros where nothing does."""
    out: np.ndarray | None = None
    for client in range(ratings.n_users):
        rows = copies(client)
        gradient = rows.gradient * weight[rows.sender, client, None] if twice else rows.gradient
        if out is None:
            out = _table(ratings, gradient.shape[1])
        counts = np.maximum(np.bincount(rows.index, minlength=ratings.n_items), 1)
        for factor, column in enumerate(gradient.T):
            out[client, :, factor] = np.bincount(rows.index, column, minlength=ratings.n_items) / counts
    return np.zeros((0, ratings.n_items, 0)) if out is None else out


def mean_of_rows(
    rows: Float[np.ndarray, "ratings K"],
    heard: Bool[np.ndarray, " ratings"],
    index: ByItem,
    weight: Float[np.ndarray, "users users"],
    twice: bool,
    ratings: Ratings,
) -> Float[np.ndarray, "users items K"]:
    """The same means where a row is one for all who receive it, of the rows of those who are heard."""
    out, everybody = _table(ratings, rows.shape[1]), np.arange(ratings.n_users)
    for item, here in index.raters():
        entry = index.entry[here][heard[index.entry[here]]]
        if entry.size:
            out[:, item] = mean_at(everybody, ratings.users[entry], rows[entry], weight, twice)
    return out


def _table(ratings: Ratings, factors: int) -> Float[np.ndarray, "users items K"]:
    size = ratings.n_users * ratings.n_items * factors
    if size > MOST_NUMBERS:
        raise InputError(
            f"noise of its own for every message, participation, dropout and upload=weights need a table of "
            f"{size:,} numbers, more than {MOST_NUMBERS:,}; use fewer clients, or none of these"
        )
    return np.zeros((ratings.n_users, ratings.n_items, factors))
