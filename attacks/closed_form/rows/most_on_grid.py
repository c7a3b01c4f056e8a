"""The two numbers that put most of a client's rows on the rating grid, where others are of something else.

Of rows in one direction, with g along it and h their factors, a rating is A g + B h. Two rows of which the
levels are named tell A and B; where both are of ratings and the levels are right, all rows of ratings are on
the grid, to their digits, and others are there by accident only.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import binom

from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.readings import Rows, some_of

ACCIDENT = 1e-4  # probability that as many rows are on the grid under some of all numbers tried
USUAL = 16.0  # times the usual distance from the grid, within which a row is on it
AT_ONCE = 1 << 22  # numbers of a table of trials


class MostOnGrid(NamedTuple):
    """One client's rows, under the numbers that put most of them on the grid."""

    at: Int[np.ndarray, " n"]  # places of the rows
    scalar: Float[np.ndarray, " n"]  # A g and B h, stars
    along: Float[np.ndarray, " n"]  # A g and B h, stars
    off: Bool[np.ndarray, " n"]  # which are off the grid
    near: float  # distance from the grid within which a row is on it, stars


def in_one_direction(rows: Rows) -> Bool[np.ndarray, " users"]:
    """Whose rows are parallel to the last digit."""
    with np.errstate(all="ignore"):
        return one_step(rows).across <= PARALLEL * rows.precision


def most_on_grid(
    rows: Rows, user: int, levels: Float[np.ndarray, " levels"], *, named: int, least: int
) -> MostOnGrid | None:
    """Find the numbers that put most of one client's rows on the grid."""
    at = np.flatnonzero(rows.item[user])
    near = rows.precision**BARS.half * step_of(levels)
    best, most = np.zeros(2), 0
    with np.errstate(all="ignore"):
        numbers = one_step(some_of(rows, np.array([user])))
        g, h = numbers.scalar[0, at], numbers.along[0, at]
        tried = _tried(g, h, levels, named)
        for some in np.array_split(tried, max(1, -(-tried.size * at.size // AT_ONCE))):
            whole = (distance_to_levels(some[:, :1] * g + some[:, 1:] * h, levels) <= near).sum(axis=1)
            if whole.max(initial=0) > most:
                best, most = some[int(whole.argmax())], int(whole.max())
        columns = np.stack([g, h], axis=1)
        # numbers that cancel each other have no digits
        on = distance_to_levels(columns @ best, levels) <= near
        if min(most, on.sum()) < least:
            return None
        found = _fitted(at, columns, best, on, levels, near, rows.precision)
    by_chance = binom.logsf((~found.off).sum() - 3, at.size - 2, min(1.0, 2 * found.near / step_of(levels)))
    return found if np.log(max(len(tried), 1)) + by_chance < np.log(ACCIDENT) else None


def _fitted(
    at: Int[np.ndarray, " n"],
    columns: Float[np.ndarray, "n 2"],
    numbers: Float[np.ndarray, " 2"],
    on: Bool[np.ndarray, " n"],
    levels: Float[np.ndarray, " levels"],
    near: float,
    precision: float,
) -> MostOnGrid:
    """Numbers by all rows that they put on the grid, with the distance within which these usually are."""
    numbers, *_ = np.linalg.lstsq(columns[on], nearest_level(columns[on] @ numbers, levels), rcond=None)
    away = distance_to_levels(columns @ numbers, levels)
    near = min(near, USUAL * max(float(np.median(away[on])), precision * step_of(levels)))
    scalar, along = (columns * numbers).T
    return MostOnGrid(at, scalar, along, away > near, near)


def _tried(
    g: Float[np.ndarray, " n"], h: Float[np.ndarray, " n"], levels: Float[np.ndarray, " levels"], named: int
) -> Float[np.ndarray, "trials 2"]:
    """A and B of all levels of pairs of a few rows."""
    few = np.unique(np.linspace(0, g.size - 1, named).astype(int))
    pairs = np.array(list(combinations(few.tolist(), 2)), int).reshape(-1, 2)
    table = np.stack([g[pairs], h[pairs]], axis=2)
    table = table[np.abs(np.linalg.det(table)) > 0]
    both = np.stack(np.meshgrid(levels, levels), axis=-1).reshape(-1, 2)
    tried = np.matmul(np.linalg.inv(table), both.T).transpose(0, 2, 1).reshape(-1, 2)
    return tried[np.isfinite(tried).all(axis=1) & (tried != 0).all(axis=1)]
