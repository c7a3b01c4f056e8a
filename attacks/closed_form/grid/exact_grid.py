"""Exact rows lie on the grid to the last digit next to the length that a declaration gives, or it is wrong.

Under a wrong constant some of a client's numbers round to what they are, and others do not; in
include-unrated those of unrated items meet a level by accident. Nothing about one number shows which it is,
and the mean distance from the grid is small. All together show it: rows that are parallel to many digits tell
ratings to half as many (``attacks.closed_form.grid.rating_grid``). A length that lost digits on the way, as a
difference of two rounds does, is moved to where the numbers that it gives are nearest to what they round to;
all of them have to be on the grid there, and to round to the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import looks_unrated, nearest_level
from attacks.closed_form.fit.goodness_of_fit import FIT_ROWS, step_of
from attacks.closed_form.grid.rating_grid import RowNumbers, row_numbers
from attacks.closed_form.grid.readout import Readout
from attacks.closed_form.uploads.reduction import Reduced, freed
from victims.transcript.manifest import Manifest
from victims.transcript.view import Uploads, UserBatch

MOVES = 8  # Newton's steps on the length: the digits double with each


class Labels(NamedTuple):
    """What rows round to at a length, and whether they show that it is not the right one."""

    label: np.ndarray  # in stars, 0 for unrated; 0 or 1 of attributes
    exact: np.ndarray  # whose rows are parallel to enough digits to be judged; a single factor shows none
    off: np.ndarray  # whose exact rows are off the grid at every length close by


def labels_at(
    manifest: Manifest,
    rows: RowNumbers,
    across: Float[np.ndarray, " users"],
    length: Float[np.ndarray, " users"],
) -> Labels:
    """Round rows at a length, and judge that."""
    step = step_of(np.array(manifest.rating_levels))
    told = (length != 0) & np.isfinite(length)
    most = step * np.maximum(BARS.off_grid, BARS.lost * np.sqrt(across))
    exact = told & (most < BARS.barely * step) & (manifest.factors > 1)
    s = np.where(told, length, 1.0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        label, unrated, away = again, *_ = _rounded(manifest, rows, s)
        off = exact.copy()
        for _ in range(MOVES + 1):
            largest = np.abs(np.where(rows.valid, away, 0)).max(axis=1, initial=0)
            off &= ~(((again == label) | ~rows.valid).all(axis=1) & (largest <= most))
            if not off.any():
                break
            slope = np.where(unrated, _alpha(manifest), 1.0) * rows.along - rows.scalar / s[:, None] ** 2
            square = (slope**2 * rows.valid).sum(axis=1)
            s = s - (slope * away * rows.valid).sum(axis=1) / np.where(square > 0, square, np.inf)
            again, unrated, away = _rounded(manifest, rows, s)
    return Labels(label, exact, off)


def unless_off(
    most: float,
    manifest: Manifest,
    batch: UserBatch,
    reduced: list[Reduced],
    scales: Float[np.ndarray, "rounds users"],
    readout: Readout,
) -> Float[np.ndarray, " users"]:
    """Allow the misfit that an attack allows, and none where exact rows are off the grid at its length."""
    allowed = np.full(batch.users.size, most)
    if np.isinf(most):
        return allowed
    read = scales.argmax(axis=0)
    for number in np.unique(read):
        here = (read == number) & (scales[number] > 0)
        uploads, part = batch.rounds[number], reduced[number]
        signed = (part.direction * np.nan_to_num(readout.factor)).sum(axis=1)  # the length, with its sign
        every = slice(None, None, max(1, -(-part.scalar.shape[1] // FIT_ROWS)))
        uploads, part = uploads.rows(every), replace(part, scalar=part.scalar[:, every])
        across, numbers = _across(manifest, uploads, part), row_numbers(uploads, part)
        allowed[here & labels_at(manifest, numbers, across, np.where(here, signed, 0)).off] = 0
    return allowed


def _across(manifest: Manifest, uploads: Uploads, part: Reduced) -> Float[np.ndarray, " users"]:
    """Share of the rows' size that is off their direction; at least the last digit of what was sent."""
    rows = freed(uploads, manifest.upload.regularization)
    off = rows - np.matmul(rows, part.direction[:, :, None]) * part.direction[:, None]
    size, away = (np.linalg.norm(one, axis=(1, 2)) for one in (rows, off))
    digits = max(float(np.finfo(one.dtype).eps) for one in (uploads.gradients, uploads.factors))
    return np.maximum(away / np.where(size > 0, size, 1), digits)


def _alpha(manifest: Manifest) -> float:
    """The weight of unrated items; 1 where none are sent."""
    return manifest.hyperparameters["alpha"] if manifest.weighting == "include-unrated" else 1.0


def _rounded(
    manifest: Manifest, rows: RowNumbers, s: Float[np.ndarray, " users"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What rows round to, which of them to unrated, and by how much they miss it."""
    levels = np.array(manifest.rating_levels)
    error, predicted = rows.scalar / s[:, None], rows.along * s[:, None]
    value = error + predicted
    label = np.where(rows.item, nearest_level(value, levels), value > 0.5)
    unrated = np.zeros(value.shape, bool)
    if manifest.weighting == "include-unrated":
        unrated = rows.item & looks_unrated(error, predicted, levels, _alpha(manifest))
    away = np.where(unrated, error + _alpha(manifest) * predicted, value - label)
    return np.where(unrated, 0.0, label), unrated, away
