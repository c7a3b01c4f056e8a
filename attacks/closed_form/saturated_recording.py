"""Clients whose predictions are all clipped to the lowest level, as those of small first factors are.

A program that clips predictions to the grid and starts from small factors predicts the lowest level l of all
items, so that rows are sigma (r - l) u: sizes of rows are 0, 1, 2, ... steps times one number of the client,
to the last digit, whatever the item. The number is told by sizes with no common divisor that use more than
half of the grid. That predictions are clipped to l from below, and not to the highest level from above, is
told by u: products with it have both signs, and none reaches the highest level then.

Ratings less the highest level make the same rows as their mirror image less the lowest: nobody learns those.
Rows of ratings themselves, of factors that are next to nothing, have such sizes from 1 on. So it is asked of
all clients together: nobody has a size beyond the grid less l, and several send rows of zeros, of ratings
that are l or of items that take no part, which are left open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.closed_form.centres.centred import even
from attacks.closed_form.common_numbers import Learned
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.answered import Answered, answered_alone, exchanged
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.moving_factor import PARALLEL
from victims.transcript.view import View

FEWEST_ROWS, FEWEST = 4, 3  # of a client, not zeros; and clients who are read, and who send zeros
ROOM = 0.02  # of a step, that the last digits of rows may take up
WHOLE, MOSTLY = 0.5, 0.9  # share of a client's rows on its steps, and of the clients whose rows are
MOST_ROWS = 3000  # of a client that is asked
ASKED = 20  # clients who say whether the others are worth the time
FARTHER = 3  # times the grid, up to which sizes are looked for that speak against it


class _Sizes(NamedTuple):
    """Items and steps of one client, 0 where open; whether sizes are told, and rows of zeros sent."""

    items: np.ndarray
    steps: np.ndarray
    told: bool
    zeros: bool
    misfit: float


def with_saturated(found: Sequence[Answered], view: View, learned: Learned) -> list[Answered]:
    """Read clients in the first round as ones that predict the lowest level, where together they say so.

    Parameters
    ----------
    found : sequence of Answered
        What else is said of all clients.
    view : View
    learned : Learned
        What clients of the view say together.

    Returns
    -------
    list of Answered
        The same where clients do not say so together.
    """
    levels = np.array(view.manifest.rating_levels)
    biased = any(one.bias is not None and one.bias.any() for one in view.broadcasts.values())
    if view.manifest.weighting == "include-unrated" or biased or not even(levels) or levels.size < FEWEST:
        return list(found)
    able, every = _sizes_of(view, learned.pulls[0], levels.size - 1)
    read = {user: one for user, one in every.items() if one.told}
    zeros = sum(one.zeros for one in every.values())
    if min(len(read), zeros) < FEWEST or len(every) < MOSTLY * able:
        return list(found)
    values = {
        user: (one.items, np.where(one.steps > 0, levels[0] + step_of(levels) * one.steps, np.nan))
        for user, one in read.items()
    }
    misfit = np.array([read[user].misfit for user in sorted(read)])
    answers = answered_alone(values, view, misfit)
    shift = np.zeros(len(values), bool)  # none is open: rows of zeros say which level is predicted
    return exchanged(found, answers._replace(plain=shift, spanned=shift))


def _sizes_of(view: View, pull: float, reach: int) -> tuple[int, dict[int, _Sizes]]:
    """How many have enough rows of one direction, and those of them whose sizes are steps of the grid."""
    able, out = 0, {}
    for batch in view.batches(BATCH_BYTES):
        uploads = next((one for one in batch.rounds if one.round == view.rounds[0]), None)
        if uploads is None or not 0 < uploads.index.shape[-1] <= MOST_ROWS:
            continue
        rows = rows_of(view.manifest, uploads, None, 0.0, pull)
        index = np.broadcast_to(uploads.index, rows.item.shape)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            numbers = one_step(rows)
        room = 2 * PARALLEL * rows.precision * reach
        for place in range(batch.users.size):
            if able >= ASKED and len(out) < MOSTLY * able:
                return able, out
            some = rows.item[place] & np.isfinite(numbers.scalar[place])
            size, along = numbers.scalar[place, some], numbers.along[place, some]
            enough = numbers.whole[place] and np.count_nonzero(size) >= FEWEST_ROWS and room <= ROOM
            if not (enough and numbers.across[place] <= PARALLEL * rows.precision):
                continue
            able += 1
            one = _read(size, along, index[place, some], reach, room)
            if one is not None:
                out[int(batch.users[place])] = one
    return able, out


def _read(
    size: Float[np.ndarray, " n"], along: Float[np.ndarray, " n"], items: np.ndarray, reach: int, room: float
) -> _Sizes | None:
    """The steps of one client's rows, if most are; None where they are not, or may be the mirror image's."""
    rows = size != 0
    size = size * (1 if np.median(size[rows]) > 0 else -1)
    if size.min() < 0:
        return None
    far = FARTHER * reach
    per_step = np.unique(size[rows][:, None] / np.arange(1, far + 1))
    steps = size / per_step[:, None]
    near = np.rint(steps)
    on = rows & (np.abs(steps - near) <= room) & (near >= 1) & (near <= far)
    many = on.sum(axis=1)
    best = int(np.flatnonzero(many == many.max())[-1])  # of the largest step
    on, near = on[best], np.where(on[best], near[best], 0).astype(int)
    if on.sum() < max(FEWEST_ROWS, WHOLE * rows.sum()) or near.max() > reach:
        return None
    if not (along[on].min() < 0 < along[on].max()):
        return None
    told = bool(np.unique(near[on]).size > 1 and 2 * near.max() > reach)
    misfit = float(np.abs(steps[best, on] - near[on]).mean() * 4)
    return _Sizes(items, near, told, bool((~rows).any()), misfit)
