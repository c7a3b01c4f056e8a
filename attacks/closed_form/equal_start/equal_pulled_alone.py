"""The five numbers of a client that steps after every rating from equal factors, from its rows alone.

Symbols and equations as in ``attacks.closed_form.equal_start.equal_pulled``. With a = 1 and c as given each
growth of the length leaves A and p, which are tried as pairs of levels; Newton's steps from the nearest reach
all five.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.closed_form.equal_start.equal_pulled_lengths import Grid, Lists, sloped, values_of
from attacks.closed_form.fit.affine_grid import nearest_numbers
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of

GROWN = np.exp(np.linspace(-0.4, 3.6, 201))  # lengths at the end, in units of the first: 2 % apart
FITTED, MOST_NAMED = 12, 4  # starts that are fitted, and different ratings that they may name
MOST_PAIRS = 10_000  # of levels
KEPT = (1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-11, 1e-14)  # singular values that a step counts: a few first
EXACT = 1e-9  # of a step, below which an answer is on the grid whatever the digits


def alone(some: Lists, grid: Grid, c: float) -> Float[np.ndarray, "few 5"]:
    """Numbers that put all rows of a client, or of some with one start, on the grid; those of multiples."""
    numbers = _starts(some, grid, c)
    for kept in KEPT:
        value, slope = (part[:, some.there] for part in sloped(numbers[:, None], some, grid.after))
        missing = nearest_level(value, grid.levels) - value
        usable = np.isfinite(slope).all(axis=(1, 2)) & np.isfinite(missing).all(axis=1)
        slope, missing = (part[usable] for part in (slope, missing))
        unit = np.linalg.norm(slope, axis=1, keepdims=True)
        unit = np.where(unit > 0, unit, 1.0)
        step = np.matmul(np.linalg.pinv(slope / unit, rcond=kept), missing[..., None])[..., 0]
        numbers = numbers[usable] + step / unit[:, 0]
    value = values_of(numbers[:, None], some, grid.after)[:, some.there]
    exact = grid.missed(value, np.ones(value.shape, bool)) <= grid.tolerance
    # without errors a length alone meets one level, and some lengths meet two, whatever the rows
    exact &= np.ptp(numbers[:, :1] * some.g[some.there], axis=1) > step_of(grid.levels) / 2
    numbers, named = numbers[exact], nearest_level(value[exact], grid.levels)
    _, first = np.unique(named, axis=0, return_index=True)
    if first.size > MOST_NAMED:
        return np.zeros((0, 5))
    offset = some.offset[some.there]
    every = [_multiples(numbers[place], named[place] - offset, offset, grid) for place in first]
    return np.concatenate([np.zeros((0, 5)), *every])


def _starts(some: Lists, grid: Grid, c: float) -> Float[np.ndarray, "few 5"]:
    """Numbers with c as given and a = 1 that put rows nearest to the grid, for each growth of the length."""
    total = ((some.g + c * some.h) * some.h).sum(axis=1)
    total = total[np.abs(total).argmax()]
    if total == 0 or grid.levels.size**2 > MOST_PAIRS:
        return np.zeros((0, 5))
    beta = (GROWN**2 - 1) / 2 / total
    none, all_ = np.zeros(beta.size), np.ones(beta.size)
    bare = some._replace(offset=np.zeros_like(some.offset))
    errors, both = (
        values_of(np.stack([all_, p, beta, c * all_, all_], axis=1)[:, None], bare, grid.after)[:, some.there]
        for p in (none, all_)
    )
    columns = np.stack([errors, both - errors], axis=2)
    columns = np.where(np.isfinite(columns).all(axis=(1, 2), keepdims=True), columns, 0.0)
    offset = np.broadcast_to(some.offset[some.there], errors.shape)
    pairs = nearest_numbers(columns, offset, np.ones(errors.shape, bool), grid.levels)
    value = np.matmul(pairs, columns.transpose(0, 2, 1)) + offset[:, None]
    away = distance_to_levels(value, grid.levels).mean(axis=2)
    range_ = np.ptp(nearest_level(value, grid.levels), axis=2)
    away[~(np.isfinite(away) & (range_ > 0))] = np.inf
    # small multiples of anything are near the grid, large ones in proportion to their range
    nearest = [np.argsort(part, axis=None)[:FITTED] for part in (away, away / range_)]
    trial, pair = np.unravel_index(np.unique(np.concatenate(nearest)), away.shape)
    a, b = pairs[trial, pair].T
    found = np.stack([a, a * b, beta[trial] / a**2, c + 0 * a, 1 + 0 * a], axis=1)
    return found[np.isfinite(found).all(axis=1)]


def _multiples(
    numbers: Float[np.ndarray, " 5"],
    part: Float[np.ndarray, " rows"],
    offset: Float[np.ndarray, " rows"],
    grid: Grid,
) -> Float[np.ndarray, "few 5"]:
    """The numbers, and those of multiples of the ratings, less the offset, which are on the grid, too."""
    largest = np.abs(part).argmax()
    times = (grid.levels - offset[largest]) / part[largest]
    times = times[times != 0]
    away = distance_to_levels(times[:, None] * part + offset, grid.levels).max(axis=1)
    times = times[away < EXACT * step_of(grid.levels)]
    a, p, rate, c, shrink = numbers[:, None] * np.ones_like(times)
    return np.stack([times * a, times**2 * p, rate / times**2, c, shrink], axis=1)
