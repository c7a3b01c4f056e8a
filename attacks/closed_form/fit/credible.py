"""Which readings of rows are believed: what is near the rating grid by accident speaks against itself.

An answer that is not exact has a reason, rounding say, which is the same in all rows and for all clients. So
it counts for little where the rows themselves are exact, where clients with as many ratings are not answered,
or where the client's other ratings are much nearer to the grid.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.affine_grid import level_ratios
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.uploads.readings import Reading, Rows
from attacks.closed_form.uploads.reduction import across_direction

HALF, THIRD = 0.5, 1 / 3  # of the digits of rows, which ratings keep of one step, and of several
COMPANY, SELDOM = 3, 0.25  # clients with as many ratings, and the share of them that must be answered
FARTHER, OF_LONGEST = 10.0, 5.0  # times the usual distance from the grid: of another step, or clipped alone
LONG = 0.9  # of the longest row of a client
EXACT = 1e-3  # of a step: right ratings of rows without noise are nearer to the grid in the mean
SAME_MULTIPLE = 1e-5  # relative, within which a scale says that ratings are a multiple
ON_GRID = 1e-6  # relative, within which a multiple of ratings is on the grid
WITHIN, TELLS = (
    4.0,
    8.0,
)  # times the usual distance, within which rows may be by accident; nats that they tell
ROUNDED, FEW = 1e-4, 0.15  # misfit of rounded rows, and the share of a client's that one minibatch may be
SLACK = 10.0  # times as far from the grid, in shares of its range, as rows are from their directions


def exact_alone(best: Reading, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave out answers that are farther from the grid than rows are from their directions.

    Rounding moves ratings off the grid, and rows off the client's direction as far. Rows that are parallel to
    the last digit, with ratings that are not on the grid to theirs, come from another rule, which they fit by
    accident.
    """
    if not rows.rows.shape[1]:
        return best
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        clean = rows.rows - np.nan_to_num(best.pull)[:, None, None] * rows.factors
        _, across = across_direction(clean)
    # where there are several steps each has its own direction, to the last digit
    several = best.steps > 1
    inexact = np.where(several, rows.precision**THIRD, np.nan_to_num(across) + rows.precision**HALF)
    there = _rated(best, rows)
    away = np.where(there, distance_to_levels(np.nan_to_num(best.value), levels), 0.0).sum(axis=1)
    far = away / np.maximum(there.sum(axis=1), 1) > SLACK * inexact * max(
        levels[-1] - levels[0], step_of(levels)
    )
    # equal factors, followed from row to row, add up their rounding; they need a declared scale
    far &= ~(several & best.declared)
    return best._replace(misfit=np.where(far, np.nan, best.misfit))


def without_improbable(best: Reading, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave out answers and ratings that the other clients, or the client's other ratings, speak against."""
    return _without_outliers(_without_loners(best, rows), rows, levels)


def without_multiples(best: Reading, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave out answers that are a multiple of what the scale that clients share says.

    Numbers c A and c B put c times the ratings on the grid, with a scale that is c^2 times smaller. Where
    some of a client's numbers are no ratings (2.5 beside 2 and 2: the mean of an item that it did not rate),
    a multiple may be on the grid (5 beside 4 and 4) where they are not. A rating of the client and its
    multiple are levels both, which leaves few c; a scale that differs for another reason meets none of them.
    """
    ratios = np.array(sorted(level_ratios(levels)))
    with np.errstate(invalid="ignore", over="ignore"):
        times = np.sqrt(best.of_error * best.of_factor)
        meets = (np.abs(times[:, None] - ratios) <= SAME_MULTIPLE * ratios).any(axis=1)
    other = meets & ~best.declared & (best.steps <= 1)  # minibatches have scales of their own
    return best._replace(misfit=np.where(other, np.nan, best.misfit))


def _rated(best: Reading, rows: Rows) -> Bool[np.ndarray, "users rows"]:
    """Rows that are answered with a rating: 0 says that there is none."""
    return np.isfinite(best.value) & (best.value != 0) & rows.item


def _without_loners(best: Reading, rows: Rows) -> Reading:
    """Without inexact answers where next to none of the clients with as many ratings is answered.

    Another rule, a link for one, may be nearly what was thought for a client with few ratings; who has more
    shows the difference. Rounding would leave those answered.
    """
    n_rated = rows.item.sum(axis=1)
    inexact = best.answered & (best.misfit > rows.precision**HALF)
    lonely = np.zeros(n_rated.size, bool)
    for user in np.flatnonzero(inexact):
        others = n_rated >= n_rated[user]
        others[user] = False
        lonely[user] = others.sum() >= COMPANY and best.answered[others].mean() < SELDOM
    return best._replace(misfit=np.where(lonely, np.nan, best.misfit))


def _without_outliers(best: Reading, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Without ratings that are much farther from the grid than those of the same client.

    Rounding is alike in all rows; a row that is off by more is of another step than was thought, or, where
    it is the longest, was clipped. Where ratings are inexact such a row may be near a wrong level by
    accident, unless that is the last on either side. A row of zeros says that its error is none, or that
    its item took no part: only where the rating is exact, the former.
    """
    away = np.where(_rated(best, rows), distance_to_levels(best.value, levels), np.nan)
    with np.errstate(invalid="ignore"):
        usual = np.array(
            [np.median(own[np.isfinite(own)]) if np.isfinite(own).any() else 0.0 for own in away]
        )
        size = np.linalg.norm(rows.rows, axis=2)
        longest = size >= LONG * size.max(axis=1, initial=0)[:, None]
        times = np.where(longest, OF_LONGEST, FARTHER)
        off = away > np.maximum(times * usual[:, None], EXACT * step_of(levels))
        inner = (
            np.minimum(np.abs(best.value - levels[0]), np.abs(best.value - levels[-1])) > step_of(levels) / 2
        )
        off |= longest & inner & (best.steps > 1)[:, None] & (usual > EXACT * step_of(levels))[:, None]
        off |= (size == 0) & (away > rows.precision**HALF * step_of(levels))
    return best._replace(value=np.where(off, np.nan, best.value))


def without_open_multiples(best: Reading, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave out answers of which few rounded rows say which multiple they are.

    Those of a smaller last minibatch may have a scale of their own, and be on the grid with it by accident.
    """
    there = _rated(best, rows)
    asked = best.answered & ~best.declared & (best.misfit > ROUNDED)
    open_ = np.zeros(asked.size, bool)
    for user in np.flatnonzero(asked):
        value, offset = best.value[user, there[user]], rows.offset[user, there[user]]
        if not value.size:
            continue
        near = nearest_level(value, levels)
        usual = max(float(np.median(np.abs(value - near))), np.finfo(float).tiny)
        each = np.log(max(step_of(levels) / (2 * WITHIN * usual), 1.0))
        against = rows_against_multiples(near - offset, offset, levels)
        # of one step no minibatch is smaller, but a few rows may be nearly parallel to the others
        few = best.steps[user] > 1 or against <= 1 + FEW * value.size
        open_[user] = few and each * against < TELLS
    return best._replace(misfit=np.where(open_, np.nan, best.misfit))


def rows_against_multiples(
    ratings: Float[np.ndarray, " n"], offset: Float[np.ndarray, " rows"], levels: Float[np.ndarray, " levels"]
) -> int:
    """Count how many ratings less the offset the next best multiple leaves off the grid.

    Examples
    --------
    >>> halves = np.arange(1, 11) / 2
    >>> [rows_against_multiples(np.array(r), np.zeros(1), halves) for r in ([1.0, 2.0, 5.0], [2.0, 4.0, 3.5])]
    [0, 1]
    """
    told = ratings[ratings != 0]
    if np.ptp(offset) > 0 or not told.size:
        return int(ratings.size)
    grid = levels - offset[0]
    times = np.unique((grid[grid != 0] / np.unique(told)[:, None]).ravel())
    times = times[np.abs(times - 1) > ON_GRID]
    off = np.abs(times[:, None, None] * ratings[:, None] - grid).min(axis=2) > ON_GRID * np.abs(grid).max()
    return int(off.sum(axis=1).min(initial=ratings.size))


def one_multiple(
    ratings: Float[np.ndarray, " n"], offset: Float[np.ndarray, " rows"], levels: Float[np.ndarray, " levels"]
) -> bool:
    """Tell whether no other multiple of ratings less the offset is on the grid.

    Examples
    --------
    >>> halves = np.arange(1, 11) / 2
    >>> [one_multiple(np.array(r), np.zeros(1), halves) for r in ([1.0, 2.0, 5.0], [1.5, 4.0])]
    [False, True]
    """
    if np.ptp(offset) > 0:
        return True
    # nothing times anything is nothing
    return bool(ratings.any()) and rows_against_multiples(ratings, offset, levels) > 0
