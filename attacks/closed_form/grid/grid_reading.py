"""Rows that are told up to A and B, put on the rating grid: r = A scalar + B along + offset + C.

With the declared scale one number is left (``attacks.closed_form.grid.rating_grid``); where that puts the
rows nowhere, both are searched for, and a bias of the client where that is asked for
(``attacks.closed_form.fit.affine_grid``). Rows that were clipped tell a bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.affine_grid import best_numbers
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import accidental, misfit, step_of
from attacks.closed_form.grid.rating_grid import RowNumbers, best_length
from attacks.closed_form.uploads.kept import kept
from attacks.closed_form.uploads.readings import Numbers, Reading, Rows, reading_of
from victims.transcript.manifest import Manifest

SATURATED = 1e-6  # relative, within which two rows are equally long
KEPT = 16  # readings, of a number a row


@kept(KEPT, lambda numbers, rows, *told: (*numbers, rows.item, rows.offset, rows.scale, *told))
def read(numbers: Numbers, rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read every client with the declared scale where that fits, else with an unknown one."""
    levels = np.array(manifest.rating_levels)
    clipped = saturated(numbers)
    counted = numbers.there & ~clipped
    size = counted.sum(axis=1)
    plain = RowNumbers(numbers.scalar, numbers.along, np.ones(counted.shape, bool), counted)
    shifted = (rows.offset != 0).any(axis=1, where=rows.item)  # a grid of its own for every row
    shifted |= np.isnan(rows.scale)
    length = np.where(shifted, 0.0, best_length(manifest, plain))
    root = np.where(length > 0, length, np.nan)[:, None]
    told = _judged(numbers, (1 / root, root, np.zeros(root.shape)), rows.offset, counted, levels)
    free, most_free = with_unknown(numbers, rows, counted, levels, bias=False)
    most = np.minimum(max_misfit, accidental(size - 1, 4 * levels.size, BARS.accident_of_many))
    most_free = np.minimum(max_misfit, most_free)
    worse = (free.misfit <= most_free) & (told.misfit > BARS.closer * free.misfit + SATURATED)
    declared = (told.misfit <= most) & ~worse
    value, error = (
        np.where(declared[:, None], left, right)
        for left, right in ((told.value, free.value), (told.error, free.error))
    )
    clipped &= ~_on_the_grid(value, clipped, counted, levels)
    fit = np.where(declared, told.misfit, free.misfit)
    fit = np.where(_impossible(value, error, clipped, levels), np.nan, fit)
    value = np.where(clipped, beyond(value, error, levels), near_levels(value, levels))
    of_error, of_factor, own_bias = (
        np.where(declared, left, right) for left, right in zip(told.numbers, free.numbers, strict=True)
    )
    return reading_of(
        np.where(numbers.there, value, np.nan),
        misfit=np.where(numbers.whole, fit, np.nan),
        allowed=np.where(declared, most, most_free),
        declared=declared,
        steps=numbers.steps,
        pull=numbers.pull,
        of_error=of_error,
        of_factor=of_factor,
        own_bias=own_bias,
    )


def with_unknown(
    numbers: Numbers, rows: Rows, counted: np.ndarray, levels: np.ndarray, *, bias: bool
) -> tuple[Judged, Float[np.ndarray, " users"]]:
    """Fit an unknown scale, and an unknown bias of the client where that is asked for."""
    columns = np.stack([numbers.scalar, numbers.along, np.ones(counted.shape)][: 3 if bias else 2], axis=2)
    found = best_numbers(columns, rows.offset, counted, levels)
    known = np.where(found.told[:, None], found.numbers, np.nan)
    if not bias:
        known = np.concatenate([known, np.zeros((len(known), 1))], axis=1)
    a, b, c = (part[:, None] for part in known.T)
    judged = _judged(numbers, (a, b, c), rows.offset, counted, levels)
    n = columns.shape[2]
    return judged, accidental(counted.sum(axis=1) - n, levels.size**n, BARS.accident_of_many)


class Judged(NamedTuple):
    """Ratings under some numbers, with the sign that makes ratings positive."""

    value: Float[np.ndarray, "users rows"]  # ratings and errors, in stars
    error: Float[np.ndarray, "users rows"]  # ratings and errors, in stars
    misfit: Float[np.ndarray, " users"]  # naN where a number is not finite
    numbers: tuple[Float[np.ndarray, " users"], ...]  # A, B and C


def _judged(
    numbers: Numbers,
    found: tuple[Float[np.ndarray, "users 1"], ...],
    offset: np.ndarray,
    counted: np.ndarray,
    levels: np.ndarray,
) -> Judged:
    a, b, c = found
    error, predicted = numbers.scalar * a, numbers.along * b
    shifted = (offset + c != 0).any(axis=1)
    turned = (np.sum(error + predicted, axis=1, where=counted) < 0) & ~shifted
    sign = np.where(turned, -1.0, 1.0)[:, None]
    error, predicted = error * sign, predicted * sign + offset + c
    away, _ = misfit(error, predicted, np.ones(counted.shape, bool), counted, levels, None)
    finite = np.isfinite(error + predicted).all(axis=1, where=counted) & counted.any(axis=1)
    finite &= _tells(error + predicted, numbers.along * b, counted, levels)
    told = tuple(part[:, 0] for part in (a * sign, b * sign, c))
    return Judged(error + predicted, error, np.where(finite, away, np.nan), told)


def _tells(
    value: np.ndarray, predicted: np.ndarray, counted: np.ndarray, levels: np.ndarray
) -> Bool[np.ndarray, " users"]:
    """Whether predictions take part: errors clipped to one number lie on the grid without them."""
    n = np.maximum(counted.sum(axis=1), 1)
    away = (distance_to_levels(value, levels) * counted).sum(axis=1) / n
    middle = (predicted * counted).sum(axis=1) / n
    spread = (np.abs(predicted - middle[:, None]) * counted).sum(axis=1) / n
    return ((away <= BARS.telling * spread) & (spread > SATURATED)) | (counted.sum(axis=1) == 1)


def saturated(numbers: Numbers) -> Bool[np.ndarray, "users rows"]:
    """Find the rows that share the greatest length: clients that clip rows or errors make them so."""
    return equally_long(numbers.scalar, numbers.there)


def equally_long(
    scalar: Float[np.ndarray, "users rows"], there: Bool[np.ndarray, "users rows"]
) -> Bool[np.ndarray, "users rows"]:
    """Find the rows, two or more, that share the greatest length of a client's."""
    size = np.abs(scalar) * there
    largest = size.max(axis=1, initial=0)[:, None]
    top = there & (size >= (1 - SATURATED) * largest) & (largest > 0)
    return top & (top.sum(axis=1) > 1)[:, None]


def near_levels(value: np.ndarray, levels: np.ndarray) -> Float[np.ndarray, "users rows"]:
    """Put numbers on the rating grid, NaN where they lie between the levels."""
    return np.where(distance_to_levels(value, levels) < BARS.between * step_of(levels), value, np.nan)


def _on_the_grid(
    value: np.ndarray, some: np.ndarray, counted: np.ndarray, levels: np.ndarray
) -> Bool[np.ndarray, "users 1"]:
    """Whether some rows are as near to the levels as those that counted: equally long, but not clipped."""
    away = distance_to_levels(value, levels)
    usual = (away * counted).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)
    limit = BARS.closer * usual + SATURATED
    return (np.where(some, away, 0).max(axis=1, initial=0) <= limit)[:, None]


def _impossible(
    value: np.ndarray, error: np.ndarray, clipped: np.ndarray, levels: np.ndarray
) -> Bool[np.ndarray, " users"]:
    """Whether a clipped row asks for a rating beyond the grid: its error is larger than what is sent."""
    slack = BARS.between * step_of(levels)
    above, below = (error > 0) & (value > levels[-1] + slack), (error < 0) & (value < levels[0] - slack)
    return (clipped & (above | below)).any(axis=1)


def beyond(value: np.ndarray, error: np.ndarray, levels: np.ndarray) -> Float[np.ndarray, "users rows"]:
    """Where the error was clipped, the rating is at least so far away: the level, if that leaves only one."""
    slack = BARS.between * step_of(levels)
    high = np.where((error > 0) & (value > levels[-2:][0] + slack), levels[-1], np.nan)
    return np.where((error < 0) & (value < levels[:2][-1] - slack), levels[0], high)
