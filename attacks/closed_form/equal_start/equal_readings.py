"""Steps after every rating by clients whose factors' numbers are all equal: what one round's rows say then.

Such a client's rows are parallel, whatever its factor did between them, so that they are read as those of one
step (``attacks.closed_form.uploads.readings.Numbers``) and followed in the order in which they were sent:

- ``with_scale``: with a scale that is known (``attacks.closed_form.equal_start.equal_factors``);
- ``without_scale``: with one that is not (``attacks.closed_form.equal_start.equal_unscaled``);
- ``with_pull``: with a multiple of its factor in every row
  (``attacks.closed_form.equal_start.equal_pulled``).

``after`` says that rows are about the factor after the step.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.equal_start.equal_factors import follow_equal
from attacks.closed_form.equal_start.equal_pulled import follow_pulled
from attacks.closed_form.equal_start.equal_unscaled import GROWN, NEAR, follow_unscaled
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import accidental, step_of
from attacks.closed_form.grid.grid_reading import ACCIDENT, TELLING, near_levels
from attacks.closed_form.uploads.readings import Numbers, Reading, Rows, reading_of
from victims.transcript.manifest import Manifest

JUDGED, FEWEST, MOST = 6, 3, 0.75  # ratings of clients, how many, and the share that has to fit a scale
PARALLEL = 1e-3  # of the rows' size, across their direction: below it they are parallel to the last digit


def with_scale(
    numbers: Numbers, rows: Rows, manifest: Manifest, max_misfit: float, *, after: bool = False
) -> Reading:
    """Read steps of a scale that is known."""
    assert rows.sequence is not None
    levels = np.array(manifest.rating_levels)
    able = _of_equal_numbers(numbers, rows) & ~np.isnan(rows.scale)
    offset = rows.offset.max(initial=0)  # what is taken off all ratings alike, or nothing
    able &= ((rows.offset == offset) | ~rows.item).all(axis=1)
    counted = numbers.there & able[:, None]
    found = follow_equal(numbers.scalar, numbers.along, counted, rows.sequence, levels - offset, after=after)
    value, size = found.value + offset, counted.sum(axis=1)
    fit = _misfit(value, counted, size, levels)
    allowed = np.minimum(max_misfit, accidental(size - 2, found.tried, ACCIDENT))
    chance = step_of(levels) / 4
    rounding = size * rows.precision * (np.abs(levels).max() + abs(offset))  # each step carries it on
    allowed = np.minimum(allowed, (NEAR + rounding) / chance)
    fits = found.told & numbers.whole & (fit < allowed)
    fits &= fit * chance <= TELLING * _spread(found.error, counted)
    # a wrong scale fits few ratings by accident, multiples above all, and many nowhere
    judged = size >= JUDGED
    believed = judged.sum() < FEWEST or fits[judged].mean() >= MOST
    return reading_of(
        near_levels(value, levels),
        misfit=np.where(fits & believed, fit, np.nan),
        allowed=allowed,
        declared=True,
        steps=size.astype(float),
        pull=numbers.pull,
    )


def without_scale(
    numbers: Numbers, rows: Rows, manifest: Manifest, max_misfit: float, *, after: bool = False
) -> Reading:
    """Read steps of a scale that is not known."""
    assert rows.sequence is not None
    levels = np.array(manifest.rating_levels)
    able = _of_equal_numbers(numbers, rows) & ~rows.offset.any(axis=1)
    counted = numbers.there & able[:, None]
    found = follow_unscaled(numbers.scalar, numbers.along, counted, rows.sequence, levels, after=after)
    n_rows = counted.sum(axis=1)
    fit = _misfit(found.value, counted, n_rows, levels)
    return reading_of(
        near_levels(found.value, levels),
        misfit=np.where(found.told & numbers.whole, fit, np.nan),
        allowed=np.minimum(max_misfit, accidental(n_rows - 3, GROWN.size * levels.size**2, ACCIDENT)),
        steps=n_rows.astype(float),
        pull=numbers.pull,
    )


def with_pull(
    numbers: Numbers, rows: Rows, manifest: Manifest, max_misfit: float, *, after: bool = False
) -> Reading:
    """Read rows that hold a multiple of their factor, by what all clients share."""
    assert rows.sequence is not None
    levels = np.array(manifest.rating_levels)
    counted = numbers.there & (_of_equal_numbers(numbers, rows) & numbers.whole)[:, None]
    found = follow_pulled(
        numbers.scalar,
        numbers.along,
        rows.offset,
        counted,
        rows.sequence,
        levels,
        rows.precision,
        after=after,
        scale_known=manifest.scale_known or bool(np.isfinite(rows.scale).any()),
        pulls=(0.0, *_taken_off(rows, manifest)),
    )
    n_rows = counted.sum(axis=1)
    fit = _misfit(found.value, np.isfinite(found.value), n_rows, levels)
    return reading_of(
        found.value,
        misfit=np.where(found.told, fit, np.nan),
        allowed=max_misfit,
        steps=n_rows.astype(float),
        pull=found.pull,
        of_error=found.of_error,
        of_factor=found.of_factor,
    )


def _of_equal_numbers(numbers: Numbers, rows: Rows) -> Bool[np.ndarray, " users"]:
    """Whose rows are parallel, and lie along the factors of their items."""
    size = np.linalg.norm(rows.factors, axis=2)
    equal = (np.abs(np.abs(numbers.along) - size) <= PARALLEL * size) | ~rows.item
    return (numbers.across < PARALLEL) & equal.all(axis=1)


def _misfit(
    value: Float[np.ndarray, "users rows"], counted: np.ndarray, n_rows: np.ndarray, levels: np.ndarray
) -> Float[np.ndarray, " users"]:
    """Mean distance from the grid, of what chance gives."""
    away = np.where(counted, distance_to_levels(np.nan_to_num(value), levels), 0.0).sum(axis=1)
    return away / np.maximum(n_rows, 1) / (step_of(levels) / 4)


def _spread(error: Float[np.ndarray, "users rows"], counted: np.ndarray) -> Float[np.ndarray, " users"]:
    """How much errors differ, in stars: alike, or all next to 0, they are on one level by themselves."""
    n, some = np.maximum(counted.sum(axis=1), 1), np.where(counted, np.nan_to_num(error), 0.0)
    middle = some.sum(axis=1) / n
    return np.where(counted, np.abs(some - middle[:, None]), 0.0).sum(axis=1) / n


def _taken_off(rows: Rows, manifest: Manifest) -> tuple[float, ...]:
    """The multiple of its factor that a row lacks if it is no weight, though as near to its factor as one."""
    if manifest.rule.upload != "weights":
        return ()
    known = rows.scale[np.isfinite(rows.scale)]
    return (1 / (manifest.upload.scale * (float(known[0]) if known.size else 1.0)),)
