"""What the five numbers of one client say of all that step after every rating from equal factors.

Symbols and equations as in ``attacks.closed_form.equal_start.equal_pulled``. Four of the numbers are lent to
every client and fitted together with each A; then it is asked whether anything else could be meant: ratings
less a number, or multiples of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.equal_start.equal_pulled_alone import KEPT
from attacks.closed_form.equal_start.equal_pulled_lengths import Grid, Lists, sloped, values_of
from attacks.closed_form.fit.credible import one_multiple
from attacks.closed_form.fit.decoding import nearest_level
from attacks.closed_form.fit.goodness_of_fit import accidental, step_of

LEAST_ROWS = 7  # that tell all five numbers, and two ratings more
MOST = 0.75  # share of the clients with ``LEAST_ROWS`` ratings that have to be read
DIGITS = 64.0  # times the last digit of the highest level, that an answer may be off the grid
LOOSE = 0.05  # of a step, that lent numbers may leave before they are fitted
CLEARLY = 30.0  # times as far off as the best, that others must be
PART, SURE = 0.1, 6.0  # of a step, that ratings may be less by, with so many standard errors
ALIKE = 1e-5  # relative, within which starts are one
FEWEST = 3  # clients that tell a start
SAME_SCALE = 1e-3  # relative, within which a scale is the declared one


class Together(NamedTuple):
    """Numbers (users, 5), ratings in the order sent, whom they explain, and whether that is unequivocal."""

    numbers: Float[np.ndarray, "users 5"]
    value: Float[np.ndarray, "users rows"]
    told: Bool[np.ndarray, " users"]
    clear: bool


def together(numbers: Float[np.ndarray, " 5"], lists: Lists, grid: Grid, scale_known: bool) -> list[Together]:
    """What the numbers of one client say of all; nothing where they explain nobody."""
    shared = numbers[1:]
    own, near, _ = _lent(shared, lists, grid)
    for _ in range(2):
        if not near.any():
            return []
        shared = _fitted_together(own[near], lists.of(near), grid)
        own, near, rivals = _lent(shared, lists, grid)
    size = lists.there.sum(axis=1)
    value = values_of(own, lists, grid.after)
    missed, step = grid.missed(value, lists.there), step_of(grid.levels)
    chance = accidental(size - 1, 2 * grid.levels.size) * step / 4
    told = (missed <= np.minimum(grid.tolerance, chance)) & (rivals > CLEARLY * missed + grid.tolerance)
    told &= size > 0
    first = np.median(own[told, 0]) if told.any() else np.nan
    if (np.abs(own[told, 0] / first - 1) <= ALIKE).sum() >= max(FEWEST, MOST * told.sum()):
        own[size < LEAST_ROWS, 0] = first
        value = values_of(own, lists, grid.after)
        few = (size > 0) & (size < LEAST_ROWS)
        told = np.where(few, grid.missed(value, lists.there) <= grid.tolerance, told)
    if not told.any():
        return []
    n_left = np.array([size[told].sum() - told.sum() - 4])
    chance = accidental(n_left, grid.levels.size**5) * step / 4
    clear = bool(grid.missed(value, lists.there)[told].max() <= chance[0])
    clear &= _nothing_off(own[told], lists.of(told), grid)
    named = nearest_level(value, grid.levels) - lists.offset
    here = lists.there & told[:, None]
    declared = scale_known and abs(shared[0] - 1) <= SAME_SCALE
    clear &= declared or one_multiple(named[here], lists.offset[here], grid.levels)
    return [Together(own, value, told, clear)]


def _lent(
    shared: Float[np.ndarray, " 4"], lists: Lists, grid: Grid
) -> tuple[Float[np.ndarray, "users 5"], Bool[np.ndarray, " users"], Float[np.ndarray, " users"]]:
    """Every client's numbers with four from another one, whose are near the grid, and how far off others are.

    Each level of the first row leaves two A.
    """
    p, _rate, c, _shrink = shared
    freed, h, offset = (lists.g + c * lists.h)[:, :1], lists.h[:, :1], lists.offset[:, :1]
    level = np.tile(grid.levels, 2) - offset
    half = 0.5 * (level + np.sqrt(level**2 - 4 * freed * h * p))
    first = np.where(np.arange(level.shape[1]) < grid.levels.size, half / freed, p * h / half)
    trials = np.concatenate([first[..., None], np.broadcast_to(shared, (*first.shape, 4))], axis=2)
    every = Lists(*(part[:, None] for part in lists))
    start = every.of((..., slice(0, 1)))
    for _ in range(4):  # where a row is about the later length, A is a root of degree four
        value, slope = sloped(trials, start, grid.after, only_first=True)
        trials[..., 0] += (level + offset - value[..., 0]) / slope[..., 0, 0]
    value = values_of(trials, every, grid.after)
    missed = grid.missed(value, every.there)
    best = missed.argmin(axis=1)[:, None]
    named = nearest_level(value, grid.levels) * every.there
    mine = np.take_along_axis(named, best[..., None], axis=1)
    rivals = np.where((named != mine).any(axis=2), missed, np.inf).min(axis=1)
    own = np.take_along_axis(trials, best[..., None], axis=1)[:, 0]
    near = np.isfinite(own).all(axis=1) & (missed.min(axis=1) < LOOSE * step_of(grid.levels))
    own = np.where(np.isfinite(own), own, 1.0)
    for _ in range(3):
        value, slope = sloped(own, lists, grid.after, only_first=True)
        slope = np.where(lists.there & np.isfinite(slope[..., 0]), slope[..., 0], 0.0)
        missing = np.nan_to_num(nearest_level(value, grid.levels) - value, posinf=0.0, neginf=0.0)
        square = (slope**2).sum(axis=1)
        own[:, 0] += np.where(near, (slope * missing).sum(axis=1) / np.where(square > 0, square, 1.0), 0.0)
    return own, near, rivals


def _fitted_together(own: Float[np.ndarray, "users 5"], lists: Lists, grid: Grid) -> Float[np.ndarray, " 4"]:
    """The four numbers that clients share, from the levels that every client's numbers name."""
    own = own.copy()
    for _ in range(4):
        missing, first, others = _left_of(own, lists, grid)
        unit = np.linalg.norm(others.reshape(-1, 4), axis=0)
        unit = np.where(unit > 0, unit, 1.0)
        apart = _beside(others, first)
        step = np.linalg.lstsq((apart / unit).reshape(-1, 4), missing.ravel(), rcond=KEPT[-1])[0] / unit
        rest = missing - others @ step
        square = (first**2).sum(axis=1)
        own[:, 0] += (first * rest).sum(axis=1) / np.where(square > 0, square, 1.0)
        own[:, 1:] += step
    return own[0, 1:]


def _left_of(
    own: Float[np.ndarray, "users 5"], lists: Lists, grid: Grid
) -> tuple[
    Float[np.ndarray, "users rows"], Float[np.ndarray, "users rows"], Float[np.ndarray, "users rows 4"]
]:
    """What ratings miss the grid by, and what they change by with A and with the other numbers."""
    value, slope = sloped(own, lists, grid.after)
    there = lists.there & np.isfinite(slope).all(axis=2) & np.isfinite(value)
    missing = np.where(there, nearest_level(value, grid.levels) - value, 0.0)
    slope = np.where(there[..., None], slope, 0.0)
    return missing, slope[..., 0], slope[..., 1:]


def _beside(others: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Columns (users, rows, n) without what each client's own number explains of them."""
    square = (first**2).sum(axis=1)
    share = np.einsum("ur,urn->un", first, others) / np.where(square > 0, square, 1.0)[:, None]
    return others - first[..., None] * share[:, None]


def _nothing_off(own: Float[np.ndarray, "users 5"], lists: Lists, grid: Grid) -> bool:
    """Whether rows say that nothing is taken off ratings: a column of ones beside the other five."""
    missing, first, others = _left_of(own, lists, grid)
    ones = _beside(np.where(lists.there, 1.0, 0.0)[..., None], first).ravel()
    table = _beside(others, first).reshape(-1, 4)
    unit = np.linalg.norm(table, axis=0)
    axes, _ = np.linalg.qr(table / np.where(unit > 0, unit, 1.0))
    left = ones - axes @ (axes.T @ ones)
    length = np.linalg.norm(left)
    count = int(lists.there.sum())
    digits = grid.tolerance / DIGITS
    noise = max(np.sqrt((missing**2).sum() / count), digits)
    off = float(left @ missing.ravel()) / length**2
    return bool(abs(off) + SURE * noise / length <= PART * step_of(grid.levels))
