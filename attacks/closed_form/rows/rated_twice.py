"""Rows of one step, some of which are the sum of two: an item that its client rated twice.

Libraries add the gradients of an index that is listed twice. A row of two ratings is (r + r' - 2 p . q) p, up
to what all rows share, where the others are (r - p . q) p: with A and B of

    r = A g + B h + offset                   (one rating)
    r + r' = A g + 2 (B h + offset)          (two)

every row is on the grid, or on that of sums of two levels. Two rows that are taken for single ones give A and
B once their levels are named, and all others have to agree. The sum alone is told of the second kind, which
stays open, as does a row that may be either.

What it assumes: one step, uploads in the clear, a few rows that are sums, and enough that are not. It answers
nothing where other numbers explain all rows, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.numbers.integer_relation import LOOSE, precision_of
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.readings import Reading, Rows, reading_of
from victims.transcript.manifest import Manifest

PAIRS = 40  # of rows of a client, that are taken for single ones
NEAR, SURE = 0.05, 0.01  # of a step: rows that two others, and that all single ones, put on the grid
FITS, USUAL = 4, 6.0  # of A and B; times the usual distance from the grid, beyond which a row takes no part
ROUNDED = 10.0  # times the last digits, by which single ratings are off the grid in the mean
KEPT = 24  # numbers of a client that are fitted
ACCIDENT = 1e-6  # probability that a client's rows about nothing are explained
SINGLE = 0.5  # least share of the rows that are of one rating
LEAST_LEVELS = 3  # of the rows that are of one rating
MOST_TRIALS = 200  # combinations of two levels


def reading_of_rated_twice(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read clients of one step whose rows are of one rating each, but for a few that are of two."""
    levels = np.array(manifest.rating_levels)
    numbers = one_step(rows)
    digits = precision_of(rows.rows, rows.factors, rows.precision)
    value, misfit = np.full(rows.item.shape, np.nan), np.full(len(rows.item), np.nan)
    able = numbers.whole & (numbers.across <= LOOSE * digits) & (levels.size**2 <= MOST_TRIALS)
    for user in np.flatnonzero(able):
        at = np.flatnonzero(numbers.there[user])
        parts = (numbers.scalar[user, at], numbers.along[user, at], rows.offset[user, at])
        found = ratings_beside_sums(*parts, levels, float(digits[user]))
        if found:
            misfit[user] = 0.0 if len(found) == 1 else np.inf
        if len(found) == 1:
            value[user, at] = found[0]
    return reading_of(value, misfit, max_misfit, steps=numbers.steps)


class _Explained(NamedTuple):
    """Rows that are on the grid, and on that of sums."""

    single: Bool[np.ndarray, "*trials n"]
    double: Bool[np.ndarray, "*trials n"]


def ratings_beside_sums(
    g: Float[np.ndarray, " n"],
    h: Float[np.ndarray, " n"],
    offset: Float[np.ndarray, " n"],
    levels: Float[np.ndarray, " levels"],
    digit: float = float(np.finfo(float).eps),
) -> list[Float[np.ndarray, " n"]]:
    """Find the lists of ratings, and of sums of two, that rows may have.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> h, r = rng.normal(size=16), np.array([1.0, 2, 3, 4, 5, 4, 3, 2, 1, 5, 5, 3, 4, 2, 1, 5])
    >>> g = np.append((r - h)[:15], 7 - 2 * h[15])
    >>> [one[13:].tolist() for one in ratings_beside_sums(g, h, 0 * h, np.arange(1.0, 6))]
    [[2.0, 1.0, nan]]
    """
    chance = 2 * SURE + 2 * SURE
    trials = PAIRS * levels.size**2
    if trials * chance ** max(len(g) - 2, 0) > ACCIDENT:
        return []
    first = np.arange(PAIRS) % len(g)
    pairs = np.stack([first, (first + 1 + np.arange(PAIRS) // len(g)) % len(g)], axis=1)
    named = np.stack(np.meshgrid(levels, levels), axis=-1).reshape(-1, 2)
    table = np.stack([g, h], axis=1)
    matrix = table[pairs]
    apart = np.abs(np.linalg.det(matrix)) > NEAR**2 * np.abs(table).max(axis=0).prod()
    if not apart.any():
        return []
    wanted = named[None] - offset[pairs[apart]][:, None]
    numbers = np.matmul(wanted, np.linalg.inv(matrix[apart]).transpose(0, 2, 1)).reshape(-1, 2)
    seen = _explained(numbers, table, offset, levels, NEAR)
    count = (seen.single | seen.double).sum(axis=1)
    found: list[np.ndarray] = []
    fitted = _fitted(numbers[_apart(numbers, np.argsort(-count, kind="stable"))], table, offset, levels)
    single, double = _explained(fitted, table, offset, levels, SURE)
    whole = (single | double).all(axis=1) & (single.mean(axis=1) >= SINGLE)
    for one, alone, either in zip(fitted[whole], single[whole], double[whole], strict=True):
        near = nearest_level(table @ one + offset, levels)
        sure = alone & ~either if (alone & ~either).any() else alone
        off = np.abs(table @ one + offset - near)[sure].mean()
        if off > ROUNDED * digit * np.abs(table * one).max() or _made_by_one(one, table, alone, near):
            continue
        value = np.where(alone & ~either, near, np.nan)
        if not any(np.array_equal(value, other, equal_nan=True) for other in found):
            found.append(value)
    few = len(found) == 1 and np.unique(found[0][np.isfinite(found[0])]).size < LEAST_LEVELS
    return [] if few else found


def _made_by_one(
    numbers: np.ndarray, table: np.ndarray, single: Bool[np.ndarray, " n"], near: Float[np.ndarray, " n"]
) -> bool:
    """Whether errors, or predictions, are next to nothing beside ratings: one number explains them all then.

    Equal factors have one prediction, which B puts on any level, and an A of nothing leaves all rows there.
    """
    return bool((np.ptp(table[single] * numbers, axis=0) < NEAR * np.ptp(near[single])).any())


def _apart(numbers: Float[np.ndarray, "trials 2"], order: np.ndarray) -> list[int]:
    """The first ``KEPT`` that differ: many pairs of rows lead to the same numbers."""
    out: list[int] = []
    for trial in order.tolist():
        far = np.linalg.norm(numbers[out] - numbers[trial], axis=1) > NEAR * np.linalg.norm(numbers[trial])
        if far.all():
            out.append(trial)
        if len(out) == KEPT:
            break
    return out


def _explained(
    numbers: Float[np.ndarray, "*trials 2"],
    table: np.ndarray,
    offset: np.ndarray,
    levels: np.ndarray,
    far: float,
) -> _Explained:
    """Which rows lie so near to the grid, or to that of sums."""
    sums = np.unique(np.add.outer(levels, levels))
    error = numbers[..., :1] * table[:, 0]
    predicted = numbers[..., 1:] * table[:, 1] + offset
    limit = far * step_of(levels)
    return _Explained(
        distance_to_levels(error + predicted, levels) <= limit,
        distance_to_levels(error + 2 * predicted, sums) <= limit,
    )


def _fitted(
    numbers: Float[np.ndarray, "trials 2"], table: np.ndarray, offset: np.ndarray, levels: np.ndarray
) -> Float[np.ndarray, "trials 2"]:
    """A and B by the rows that are single under the first ones, without sums that are near by accident."""
    digits = np.finfo(float).eps * max(table.shape)
    for _ in range(FITS):
        value = numbers @ table.T + offset
        rating = nearest_level(value, levels)
        away = np.abs(value - rating)
        single = away <= NEAR * step_of(levels)
        single &= away <= USUAL * _median(away, single)[:, None]
        inverse = np.linalg.pinv(np.where(single[..., None], table, 0.0), rcond=digits)
        numbers = np.matmul(inverse, np.where(single, rating - offset, 0.0)[..., None])[..., 0]
    return numbers


def _median(
    numbers: Float[np.ndarray, "trials n"], counted: Bool[np.ndarray, "trials n"]
) -> Float[np.ndarray, " trials"]:
    """Of the numbers that count, trial by trial; infinite where none does."""
    ordered = np.sort(np.where(counted, numbers, np.inf), axis=1)
    size = counted.sum(axis=1)[:, None]
    middle = np.concatenate(
        [np.maximum(size - 1, 0) // 2, np.minimum(size // 2, numbers.shape[1] - 1)], axis=1
    )
    return np.take_along_axis(ordered, middle, axis=1).mean(axis=1)
