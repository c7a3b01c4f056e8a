"""Rows of which single entries were clipped to one bound: PyTorch's ``clip_grad_value_``.

Rows of one step, e_j p, have rank one in the entries that are smaller than the bound c, and these tell what
the others were, as of rows of which entries are not sent (``attacks.closed_form.gaps.gaps``). A row whose
entries are all at the bound tells the sign of its error, and that |e_j| is at least c / |p_k| in every column
k: it is answered where one level is as far from the prediction
(``attacks.closed_form.clipping.bounded_rows``).

What it assumes: one step, uploads in the clear; c need not be known, it is the largest entry there is. It
judges itself as the readings do that it hands rows to, and by the entries at the bound: what they were has
to be larger, and of their sign. Where rows hold a multiple of their factors, that was clipped with them, and
they are not read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.clipping.bounded_rows import with_bounded
from attacks.closed_form.gaps.filled_rows import filled_in
from attacks.closed_form.gaps.gaps import reading_with_gaps
from attacks.closed_form.grid.grid_reading import SATURATED
from attacks.closed_form.numbers.integer_relation import LOOSE, precision_of
from attacks.closed_form.uploads.readings import Reading, Rows, among, reading_of, some_of, spread_over
from victims.transcript.manifest import Manifest

VARIED = 1e-3  # of predictions, by which some must differ from their mean


def reading_of_clipped_entries(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read clients whose largest entries were clipped to one number."""
    clipped = clipped_entries(rows)
    item = rows.item & ~clipped.all(axis=2)
    open_ = among(rows._replace(rows=np.where(clipped, 0.0, rows.rows)), item)
    full = _completed(rows, open_, clipped)
    found = reading_of(np.full(rows.item.shape, np.nan), np.nan, max_misfit)
    along = np.einsum("urk,uk->ur", rows.factors, full.direction)
    here = full.possible & clipped.any(axis=(1, 2)) & _varied(along, rows.item)
    if not here.any():
        return found
    found = spread_over(reading_with_gaps(some_of(open_, here), manifest, max_misfit), here)
    levels = np.array(manifest.rating_levels)
    bounded = rows.item & ~item & (full.scalar != 0)
    return with_bounded(found, full.scalar, along, rows.offset, bounded, levels)


def _varied(
    along: Float[np.ndarray, "users rows"], item: Bool[np.ndarray, "users rows"]
) -> Bool[np.ndarray, " users"]:
    """Whose predictions differ: equal ones leave a shift and a sign open, which the bound seems to tell."""
    count = np.maximum(item.sum(axis=1), 1)
    mean = np.where(item, along, 0).sum(axis=1) / count
    away = np.where(item, np.abs(along - mean[:, None]), 0).max(axis=1, initial=0)
    return away > VARIED * np.abs(mean)


def clipped_entries(rows: Rows) -> Bool[np.ndarray, "users rows K"]:
    """Find the entries as large as the largest that anybody sent."""
    scale = np.where(np.isnan(rows.scale), 1.0, rows.scale)
    size = np.abs(rows.rows * scale[:, None, None]) * rows.item[..., None]
    bound = size.max(initial=0)
    return (size >= (1 - SATURATED) * bound) & (size > 0)


class _Completed(NamedTuple):
    """Rows as they were, g along the client's direction (the least where all of a row was clipped), or 0."""

    scalar: Float[np.ndarray, "users rows"]
    direction: Float[np.ndarray, "users K"]
    possible: Bool[np.ndarray, " users"]


def _completed(rows: Rows, open_: Rows, clipped: Bool[np.ndarray, "users rows K"]) -> _Completed:
    """What the entries were, by those that were not clipped, and whose are larger where they were."""
    filled = filled_in(open_)
    user = np.arange(len(clipped))
    length = np.linalg.norm(filled.rows, axis=2)
    lead = length.argmax(axis=1)
    direction = filled.rows[user, lead] / np.maximum(length[user, lead], np.finfo(float).tiny)[:, None]
    scalar = np.einsum("urk,uk->ur", filled.rows, direction)
    slack = LOOSE * precision_of(rows.rows, rows.factors, rows.precision)[:, None, None]
    there: np.ndarray = np.asarray(filled.seen.all(axis=1))
    told = clipped & filled.joined[..., None] & filled.seen[:, None]
    was, at = filled.rows * np.sign(rows.rows), np.abs(rows.rows)
    beyond = was >= (1 - slack) * at
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(filled.seen[:, None], rows.rows / direction[:, None], np.nan)
        size = np.nanmax(np.abs(error), axis=2, initial=0)
        sign = np.sign(np.nansum(np.sign(error), axis=2))
    one_sign = (np.sign(error) == sign[..., None]) | np.isnan(error)
    # an entry where the direction has none is in no multiple of it
    whole = rows.item & ~open_.item & one_sign.all(axis=2) & there[:, None] & np.isfinite(size)
    least = sign * np.where(whole, size, 0)
    # the largest entries of rows that are alike are as large as each other, and were not clipped
    unseen = clipped & filled.joined[..., None] & ~filled.seen[:, None]
    sizes = np.abs(scalar)[..., None]
    largest, smallest = np.where(unseen, sizes, 0).max(axis=1), np.where(unseen, sizes, np.inf).min(axis=1)
    some = (largest > (1 + slack[:, 0]) * smallest).any(axis=1) | whole.any(axis=1)
    some |= (told & (was > (1 + slack) * at)).any(axis=(1, 2))
    return _Completed(
        np.where(whole, least, scalar), direction, some & filled.one_step & (beyond | ~told).all(axis=(1, 2))
    )
