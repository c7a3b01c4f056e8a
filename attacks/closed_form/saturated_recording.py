"""Clients whose predictions are all clipped to the lowest level, as those of small first factors are.

A program that clips predictions to the grid and starts from small factors predicts the lowest level l of all
items, so that rows are sigma (r - l) u: sizes of rows are 0, 1, 2, ... steps times one number of the client,
to the last digit, whatever the item. The number is told by sizes with no common divisor that use more than
half of the grid, as long as l is what is predicted.

Rows of ratings themselves, of factors that are next to nothing, have such sizes as well, a level lower, and
rows of zeros of other items; ratings less the highest level have them upside down. What is the same in all
three is how far the ratings of a client are from each other, and that alone is answered. It is asked of all
clients together, where nothing else is read: nobody has a size beyond the grid, several have the one that
spans it, and several send rows of zeros. Those stay open: they are of ratings of l, or take no part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.closed_form.centres.centred import even
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.answered import Answered, answered_alone
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.moving_factor import PARALLEL
from victims.transcript.view import View

FEWEST_ROWS, FEWEST = 4, 3  # of a client, not zeros; and clients who are read, and who send zeros
ROOM = 0.02  # of a step, that the last digits of rows may take up
WHOLE, MOSTLY = 0.5, 0.9  # share of a client's rows on its steps, and of the clients whose rows are
MOST_ROWS = 3000  # of a client that is asked
ASKED = 20  # clients who say whether the others are worth the time
ANCHORS = 8  # rows of a client whose steps are tried


class _Sizes(NamedTuple):
    """Items and steps of one client, 0 where open; whether sizes are told, and rows of zeros sent."""

    items: np.ndarray
    steps: np.ndarray
    told: bool
    zeros: bool
    misfit: float


def read_saturated(view: View, pull: float) -> Answered | None:
    """Read clients in the first round as ones that predict the lowest level, where together they say so."""
    levels = np.array(view.manifest.rating_levels)
    reach = levels.size - 1
    biased = any(one.bias is not None and one.bias.any() for one in view.broadcasts.values())
    if view.manifest.weighting == "include-unrated" or biased or not even(levels) or levels.size < FEWEST:
        return None
    able, every = _sizes_of(view, pull, reach)
    read = {user: one for user, one in every.items() if one.told}
    zeros = sum(one.zeros for one in every.values())
    spanning = sum(int(one.steps.max() == reach) for one in every.values())
    if min(len(read), zeros, spanning) < FEWEST or len(every) < MOSTLY * able:
        return None
    values = {
        user: (one.items, np.where(one.steps > 0, levels[0] + step_of(levels) * one.steps, np.nan))
        for user, one in read.items()
    }
    return answered_alone(values, view, np.array([read[user].misfit for user in sorted(read)]))


def _sizes_of(view: View, pull: float, reach: int) -> tuple[int, dict[int, _Sizes]]:
    """How many have enough rows of one direction, and those of them whose sizes are steps of the grid."""
    able = 0
    out: dict[int, _Sizes] = {}
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
    some = np.sort(size[rows])[:: max(1, np.count_nonzero(rows) // ANCHORS)]
    per_step = np.unique(some[:, None] / np.arange(1, reach + 1))
    steps = size / per_step[:, None]
    near = np.rint(steps)
    on = rows & (np.abs(steps - near) <= room) & (near >= 1)
    best = int(np.flatnonzero(on.sum(axis=1) == on.sum(axis=1).max())[-1])  # of the largest step
    on, near = on[best], np.where(on[best], near[best], 0).astype(int)
    if on.sum() < max(FEWEST_ROWS, WHOLE * rows.sum()) or near.max() > reach:
        return None
    if not (along[on].min() < 0 < along[on].max()):
        return None
    told = bool(np.unique(near[on]).size > 1 and 2 * near.max() > reach)
    misfit = float(np.abs(steps[best, on] - near[on]).mean() * 4)
    return _Sizes(items, near, told, bool((~rows).any()), misfit)
