"""Whether another multiple of a client's ratings, on the grid, explains its rows as well.

A factor c times as long and ratings c times as large make rows c^2 times as large, and with another rate or
scale the same rows to first order. What bends the rows tells them apart, to as many digits as short steps
leave it: with few, a client that rated all its items 4 may have rated all of them 3.5. Fits from many starts
need not meet that, so that each multiple on the grid is tried.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.client_rules.differentiable import ClientRule
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.compression import Compressed
from attacks.inversion.guess import Guess
from attacks.inversion.least_squares import Unknowns
from attacks.inversion.many_starts import fitted
from attacks.inversion.told import Told

LONG = 120  # steps of a fit
NEAR = 1e-6  # of a step of the grid, within which a multiple is on it


def unless_multiples(
    rule: ClientRule,
    guess: Guess,
    new: Told,
    small: Compressed,
    sign: Float[np.ndarray, " clients"],
    rows: Rows,
    levels: Float[np.ndarray, " levels"],
) -> Told:
    """Fit the other multiples of answers that are on the grid, and leave open whose rows they explain."""
    if not guess.free.any():
        return new
    offset = np.where(rows.item, rows.offset, 0.0)
    own = np.where(rows.item, new.ratings - offset, 0.0)
    largest = np.take_along_axis(own, np.abs(own).argmax(axis=1)[:, None], axis=1)
    first = np.take_along_axis(offset, np.abs(own).argmax(axis=1)[:, None], axis=1)
    times = (levels - first) / np.where(largest == 0, np.inf, largest)
    images = times[..., None] * own[:, None]
    away = distance_to_levels(images + offset[:, None], levels) / step_of(levels)
    there = ((away <= NEAR) | ~rows.item[:, None]).all(axis=2) & (times > 0) & (np.abs(times - 1) > NEAR)
    there &= new.explained[:, None]
    if not there.any():
        return new
    start = Unknowns(
        new.at.factor / np.where(there, times, 1.0)[..., None],
        small.of(images),
        np.repeat(new.at.constants, levels.size, axis=1),
    )
    signs = np.repeat(sign[:, None], levels.size, axis=1)
    left = fitted(rule, small.problem, start, signs, there, guess.free, LONG, ratings=False).left
    as_well = (there & (left <= new.allowed[:, None])).any(axis=1)
    return new._replace(several=new.several | as_well)
