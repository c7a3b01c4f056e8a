"""Clients whose rows are exact, and of numbers that are on no multiple of the rating grid.

Ratings less a number that nobody told are on the grid for some clients, one factor of each being open: for
many with two levels, for a few with three. Most others show that it is not ratings that are learned, if their
rows are exact: parallel, or a chain of single steps, to the last digit, which no scale and length put near
the grid. Rounding turns parallel rows by some share of themselves, and moves ratings by about as much of the
grid's range: what is off by far more is no rounding. Rows of unrated items, zeros with a weight of their own,
are on no grid and say nothing. What clients with few levels seem to say is an accident then
(``attacks.closed_form.fit.arbiter.abstain_if_off_the_grid``).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.affine_grid import best_numbers
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.grid.grid_reading import equally_long
from attacks.closed_form.rows.row_readings import LONGEST, one_step
from attacks.closed_form.rows.weighted_zeros import HALF, on_one_line
from attacks.closed_form.uploads.moving_factor import follow
from attacks.closed_form.uploads.readings import Rows
from attacks.closed_form.uploads.reduction import across_direction
from attacks.closed_form.uploads.shared_pull import without_pull

FEWEST = 4  # rows of a client that is judged: two more than numbers
DIGITS = 4.0  # times the last digit of rows, that rounding turns them by


def off_grid(
    rows: Rows, levels: Float[np.ndarray, " levels"], digit: float | None = None
) -> Bool[np.ndarray, " users"]:
    """Find the clients whose rows no two numbers put on the grid, as near as they are to what a step makes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q, p = rng.normal(size=(8, 4)), rng.normal(size=4)
    >>> r, all_ = np.array([1.0, 2, 3, 4, 5, 4, 2, 1]), np.ones((1, 8), bool)
    >>> sent = [(((r - c) - q @ p)[:, None] * p)[None] for c in (0.0, 3.53)]
    >>> [bool(off_grid(Rows(s, q[None], 0.0 * all_, all_, np.ones(1), 2.0**-52, None), np.arange(1.0, 6))[0])
    ...  for s in sent]
    [False, True]
    """
    nobody = np.zeros(len(rows.rows), bool)
    if not FEWEST <= rows.rows.shape[1] <= LONGEST:
        return nobody
    out, judged = nobody.copy(), nobody.copy()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        clean, _ = without_pull(rows.rows, rows.factors, rows.item)
        parts = [(part, _rated(part, rows)) for part in (rows.rows, clean)]
        for part, item in parts:
            chain = follow(part, rows.factors, item, rows.precision)
            alone = (chain.n_steps == 1) | (chain.n_steps == item.sum(axis=1))
            usable = _usable(part, chain.scalar, item, item & (chain.step >= 0))
            usable &= chain.whole & alone & ~judged
            away = _away(chain.scalar, chain.along, item & usable[:, None], rows, levels)
            out |= usable & np.isfinite(away) & (away > BARS.off_grid * step_of(levels))
            judged |= usable
        for part, item in parts:
            direction, across = across_direction(part)
            scalar, along = (np.einsum("urk,uk->ur", one, direction) for one in (part, rows.factors))
            usable = _usable(part, scalar, item, item) & ~judged
            usable &= across <= DIGITS * (digit or rows.precision)
            away = _away(scalar, along, item & usable[:, None], rows, levels)
            rounded = BARS.slack * across * max(levels[-1] - levels[0], step_of(levels))
            out |= usable & np.isfinite(away) & (away > np.maximum(BARS.off_grid * step_of(levels), rounded))
    return out


def _rated(part: Float[np.ndarray, "users rows K"], rows: Rows) -> Bool[np.ndarray, "users rows"]:
    """The rows that may be of rated items: not the zeros of unrated ones, with a weight of their own."""
    line = on_one_line(one_step(rows._replace(rows=part)), rows.precision**HALF)
    return rows.item & ~line.here


def _usable(
    part: Float[np.ndarray, "users rows K"],
    scalar: Float[np.ndarray, "users rows"],
    item: Bool[np.ndarray, "users rows"],
    there: Bool[np.ndarray, "users rows"],
) -> Bool[np.ndarray, " users"]:
    """Who has enough rows, all of them there, none of them zeros or, as far as they tell, clipped."""
    size, there = item.sum(axis=1), there & (part != 0).any(axis=2)
    return (there.sum(axis=1) == size) & (size >= FEWEST) & ~equally_long(scalar, there).any(axis=1)


def _away(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    there: Bool[np.ndarray, "users rows"],
    rows: Rows,
    levels: Float[np.ndarray, " levels"],
) -> Float[np.ndarray, " users"]:
    """By how much, in the mean and in stars, the best two numbers of each client miss the grid."""
    columns = np.stack([scalar, along], axis=2) * there[..., None]
    return best_numbers(columns, rows.offset, there, levels).distance
