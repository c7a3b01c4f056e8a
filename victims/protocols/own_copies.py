"""Everybody's own copy of a table of factors, kept only where it has left the shared start.

A user moves the items that it sees or hears of and no others, so that the rest of its copy is the start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Copies(NamedTuple):
    """All users' copies of one table."""

    start: Float[np.ndarray, "items K"]  # what every copy is where it has not moved
    keys: Int[np.ndarray, " moved"]  # ascending: user * n_items + item
    values: Float[np.ndarray, "moved K"]  # the copies at these pairs


def copies_of(start: Float[np.ndarray, "items K"]) -> Copies:
    """Make copies of which none has moved."""
    return Copies(start, np.zeros(0, np.int64), np.zeros((0, start.shape[1])))


def key_of(
    users: Int[np.ndarray, " pairs"], items: Int[np.ndarray, " pairs"], n_items: int
) -> Int[np.ndarray, " pairs"]:
    """Number the pairs of user and item, ascending by user and then by item."""
    return users.astype(np.int64) * n_items + items


def at(copies: Copies, keys: Int[np.ndarray, " pairs"]) -> Float[np.ndarray, "pairs K"]:
    """The copies at some pairs."""
    found = copies.start[keys % len(copies.start)]
    if copies.keys.size:
        position = np.minimum(np.searchsorted(copies.keys, keys), copies.keys.size - 1)
        moved = copies.keys[position] == keys
        found[moved] = copies.values[position[moved]]
    return found


def whole(copies: Copies, users: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some items K"]:
    """The whole copies of some users; their size is n_items K each."""
    n_items = len(copies.start)
    full = np.repeat(copies.start[None], users.size, axis=0)
    low = np.searchsorted(copies.keys, users.astype(np.int64) * n_items)
    high = np.searchsorted(copies.keys, (users.astype(np.int64) + 1) * n_items)
    size = high - low
    entry = np.arange(size.sum()) + np.repeat(low - (np.cumsum(size) - size), size)
    full[np.repeat(np.arange(users.size), size), copies.keys[entry] % n_items] = copies.values[entry]
    return full


def moved_items(copies: Copies, user: int) -> Int[np.ndarray, " items"]:
    """List the items of which a user's copy has been touched."""
    n_items = len(copies.start)
    low, high = np.searchsorted(copies.keys, [user * n_items, (user + 1) * n_items])
    return copies.keys[low:high] - user * n_items


def moved(copies: Copies, keys: Int[np.ndarray, " steps"], steps: Float[np.ndarray, "steps K"]) -> Copies:
    """The copies after steps, those at one pair added up."""
    if keys.size == 0:
        return copies
    known = copies.keys
    position = np.searchsorted(known, keys)
    new = np.ones(keys.size, bool) if known.size == 0 else known[np.minimum(position, known.size - 1)] != keys
    values = copies.values
    if new.any():
        fresh = np.unique(keys[new])
        where = np.searchsorted(known, fresh)
        known = np.insert(known, where, fresh)
        values = np.insert(values, where, copies.start[fresh % len(copies.start)], axis=0)
        position = np.searchsorted(known, keys)
    total = np.empty_like(values)
    for column in range(values.shape[1]):
        total[:, column] = np.bincount(position, steps[:, column], minlength=known.size)
    return Copies(copies.start, known, values + total)
