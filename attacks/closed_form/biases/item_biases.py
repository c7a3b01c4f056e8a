"""Ratings less a number of each item that nobody told: what clients who rated the same items say together.

A program may learn r_uj - b_j, b_j the mean of item j, or a bias of it that is never broadcast. A row then
reads x_uj = r_uj - b_j = A_u g_uj + B_u h_uj (``attacks.closed_form.fit.affine_grid``), and what two clients
say of one item differs by whole steps, whatever b_j is:

    A_u g_uj + B_u h_uj - A_v g_vj - B_v h_vj = r_uj - r_vj.

With N ratings of U clients on M items there are N equations and 2 U + M real unknowns. Two clients with n
items in common have n equations in four numbers: their differences are the shortest integers in the span of
the four columns (``attacks.closed_form.numbers.integer_relation``), from six items on in double precision.
Once two are read, b_j is known up to whole steps where they rated, and a third client has two numbers left,
which put x_uj + b_j on whole steps (``attacks.closed_form.fit.affine_grid``); so all clients follow who share
some items.

What stays open is a shift of each item by whole levels: an item whose raters have both ends of the grid tells
it, and no other is answered. And one bit for all, as for any untold number
(``attacks.closed_form.centres.centred``): 6 - r, with 6 - b and -p, makes the same rows.

What it assumes: an even grid, b_j one number for all clients and for most items no multiple of half a step
(or a client's sign is open, too), rows exact or in single precision.
It judges itself: clients have to agree about items, each by many more ratings than it has numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.affine_grid import best_numbers
from attacks.closed_form.gaps.gap_spans import LIMITS
from attacks.closed_form.numbers.integer_relation import integers_in_columns

SEEDS, PAIRS = 40, 12  # clients with most ratings among whom two are looked for, and pairs that are tried
LONGEST = 48  # items that two clients share, that are used
SHARED = 6  # items that a client shares with those who are read
NEAR = 0.02  # of a step, within which all its ratings of these must be whole
FINEST, EVIDENCE = 1e-9, 20.0  # of a step, that digits tell; nats against whole ratings by accident
FEWEST, MOSTLY = 4, 0.5  # clients that must be read, and the share of those who could be
AT_ONCE = 256  # clients
ROUNDS = 20  # of reading clients by those who were read


class Columns(NamedTuple):
    """What clients' rows say up to two numbers each, rating by rating, clients one after the other."""

    owner: Int[np.ndarray, " n"]  # clients by number, ascending, and items
    item: Int[np.ndarray, " n"]  # clients by number, ascending, and items
    g: Float[np.ndarray, " n"]  # rows along the client's direction, and factors of items along it
    h: Float[np.ndarray, " n"]  # rows along the client's direction, and factors of items along it

    @property
    def table(self) -> Float[np.ndarray, "n 2"]:
        """Both columns."""
        return np.stack([self.g, self.h], axis=1)


class Levels(NamedTuple):
    """Ratings in steps above the lowest level, or below the highest."""

    above: Int[np.ndarray, " n"]  # -1 where a rating is not told
    read: Bool[np.ndarray, " clients"]  # who is read; of whom not all ratings need be told
    numbers: Float[np.ndarray, "clients 2"]  # A and B, in steps; NaN where not read


def levels_of(known: Columns, n_levels: int, digits: float) -> Levels | None:
    """Read clients together."""
    n_rated = np.bincount(known.owner)
    able = n_rated >= SHARED
    for first in _seeds(known, n_levels, digits):
        numbers = _all_numbers(known, first, n_levels)
        read = np.isfinite(numbers[:, 0])
        if (read & able).sum() < max(FEWEST, MOSTLY * able.sum()):
            continue
        above = _placed(known, numbers, n_levels)
        if above is not None:
            return Levels(above, read, numbers)
    return None


def _seeds(known: Columns, n_levels: int, digits: float) -> Iterator[Float[np.ndarray, "clients 2"]]:
    """Numbers (clients, 2) of two clients each, who share many items."""
    n_rated = np.bincount(known.owner)
    most = np.argsort(-n_rated, kind="stable")[:SEEDS]
    own = {user: np.flatnonzero(known.owner == user) for user in most.tolist()}
    pairs = []
    for u, v in combinations(own, 2):
        _, here, there = np.intersect1d(
            known.item[own[u]], known.item[own[v]], assume_unique=True, return_indices=True
        )
        pairs.append((here.size, u, v, own[u][here], own[v][there]))
    pairs.sort(key=lambda pair: -pair[0])
    for size, u, v, here, there in pairs[:PAIRS]:
        if size < SHARED:
            return
        both = np.concatenate([known.table[here], -known.table[there]], axis=1)[:LONGEST]
        limits = (digits, *(one for one in LIMITS if one > digits))
        tried = (integers_in_columns(both, n_levels - 1, one) for one in limits)
        found = next((one for one in tried if one is not None), None)
        if found is None or np.count_nonzero(found) < SHARED / 2:
            continue
        four, *_ = np.linalg.lstsq(both, found, rcond=None)
        numbers = np.full((n_rated.size, 2), np.nan)
        numbers[u], numbers[v] = four[:2], four[2:]
        if one_way_round(_parts_of_a_step(known, numbers)[known.item[here]]).sum() >= SHARED / 2:
            yield numbers


def one_way_round(part: Float[np.ndarray, "*shape"]) -> Bool[np.ndarray, "*shape"]:
    """Tell items of which x and -x do not both lie on whole steps: others say nothing of a client's sign.

    Examples
    --------
    >>> one_way_round(np.array([0.0, 0.3, 0.5, 0.999])).tolist()
    [False, True, False, False]
    """
    return np.abs(2 * part - np.rint(2 * part)) > 2 * NEAR


def _all_numbers(
    known: Columns, numbers: Float[np.ndarray, "clients 2"], n_levels: int
) -> Float[np.ndarray, "clients 2"]:
    """Numbers of all clients who share items with those who are read, and so on."""
    numbers = numbers.copy()
    for _ in range(ROUNDS):
        part = _parts_of_a_step(known, numbers)
        useful = np.isfinite(part[known.item])
        share = np.bincount(known.owner[useful], minlength=len(numbers))
        open_ = np.flatnonzero((share >= SHARED) & np.isnan(numbers[:, 0]))
        before = np.isfinite(numbers[:, 0]).sum()
        for first in range(0, open_.size, AT_ONCE):
            some = open_[first : first + AT_ONCE]
            numbers[some] = _numbers_of(known, some, useful, part, n_levels)
        if np.isfinite(numbers[:, 0]).sum() == before:
            break
    return numbers


def _parts_of_a_step(known: Columns, numbers: Float[np.ndarray, "clients 2"]) -> Float[np.ndarray, " items"]:
    """What is to be added to x for whole steps, 0 to 1; NaN for items that nobody read rated."""
    x = (known.table * numbers[known.owner]).sum(axis=1)
    here = np.isfinite(x)
    turn = np.exp(-2j * np.pi * x[here])
    n_items = int(known.item.max()) + 1
    total = np.bincount(known.item[here], turn.real, n_items) + 1j * np.bincount(
        known.item[here], turn.imag, n_items
    )
    rated = np.bincount(known.item[here], minlength=n_items) > 0
    return np.where(rated, np.angle(total) / (2 * np.pi) % 1, np.nan)


def _numbers_of(
    known: Columns,
    some: Int[np.ndarray, " some"],
    useful: Bool[np.ndarray, " n"],
    part: Float[np.ndarray, " items"],
    n_levels: int,
) -> Float[np.ndarray, "some 2"]:
    """Numbers of some clients that put all their ratings of known items on whole steps; NaN where none do."""
    here = np.flatnonzero(useful & np.isin(known.owner, some))
    client = np.searchsorted(some, known.owner[here])
    count = np.bincount(client, minlength=some.size)
    place = np.arange(here.size) - np.repeat(np.cumsum(count) - count, count)
    shape = (some.size, int(count.max()))
    columns, offset, there = np.zeros((*shape, 2)), np.zeros(shape), np.zeros(shape, bool)
    columns[client, place] = known.table[here]
    offset[client, place] = part[known.item[here]]
    there[client, place] = True
    whole = np.arange(1 - n_levels, n_levels + 1.0)
    found = best_numbers(columns, offset, there, whole)
    x = (columns * found.numbers[:, None]).sum(axis=2) + offset
    off = np.where(there, np.abs(x - np.rint(x)), 0.0).max(axis=1)
    sided = (there & one_way_round(offset)).sum(axis=1) >= SHARED / 2
    # whole by accident: each rating beyond two, for as many pairs of numbers as two ratings may name
    nats = (count - 2) * -np.log(2 * np.maximum(off, FINEST)) - 2 * np.log(2 * n_levels)
    told = found.told & sided & (off < NEAR) & (nats >= EVIDENCE) & (found.numbers != 0).all(axis=1)
    return np.where(told[:, None], found.numbers, np.nan)


def _placed(
    known: Columns, numbers: Float[np.ndarray, "clients 2"], n_levels: int
) -> Int[np.ndarray, " n"] | None:
    """Steps above the lowest rating of each item of which both ends of the grid are seen, else -1.

    None where an item has ratings that are farther apart than the grid is wide.
    """
    x = (known.table * numbers[known.owner]).sum(axis=1) + _parts_of_a_step(known, numbers)[known.item]
    here = np.isfinite(x) & (np.abs(x - np.rint(x)) < NEAR)
    steps = np.rint(np.where(here, x, 0.0)).astype(int)
    n_items = int(known.item.max()) + 1
    high, low = np.full(n_items, -(10**9)), np.full(n_items, 10**9)
    np.maximum.at(high, known.item[here], steps[here])
    np.minimum.at(low, known.item[here], steps[here])
    if (high - low >= n_levels).any():
        return None
    told = here & (high - low == n_levels - 1)[known.item]
    return np.where(told, steps - low[known.item], -1)
