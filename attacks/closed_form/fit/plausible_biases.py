"""Biases of a client that leave its predictions off the grid, and ratings in steps that are too large.

Biases of items are told with the ratings' own unit and sign, or they are not those of the program. Such in
half the unit leave every second level and a bias of the client besides; such of the other sign leave the
mirror image of the ratings, less more than the highest of them. Either lies on the grid to the last digit.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.coarser_grids import in_larger_steps
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.uploads.readings import Reading

SMALL = 1e-3  # of a step, below which a bias is at a bound
FEWEST = 6  # ratings, of which not all are every second level by chance


def implausible(
    bias: Float[np.ndarray, "*shape"], levels: Float[np.ndarray, " levels"]
) -> Bool[np.ndarray, "*shape"]:
    """Find numbers that leave no ratings: those of mirror images, and less than 0 by more than the grid.

    The mirror image of ratings as they are is less the lowest and the highest level together, and less the
    highest alone where the lowest is taken off already. Somebody who rates high has a bias between the two.

    Examples
    --------
    >>> implausible(np.array([3.5, 5.2, -1.0, 6.0, 5.0, -5.0]), np.arange(1.0, 6.0)).tolist()
    [False, False, False, True, True, True]
    """
    small, low, high = SMALL * step_of(levels), levels[0], levels[-1]
    mirrored = (bias > low + high - small) | (np.abs(bias - high) < small)
    return np.asarray(mirrored | (bias < low - high - small))


def without_implausible_biases(found: Reading, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave clients open who are read with a bias that is none, or with one and in larger steps."""
    doubted = found.answered & implausible(found.own_bias, levels)
    for user in np.flatnonzero(found.answered & (found.own_bias != 0) & ~doubted):
        value = found.value[user]
        told = value[np.isfinite(value)]
        doubted[user] = told.size >= FEWEST and in_larger_steps(told, levels)
    return found._replace(misfit=np.where(doubted, np.nan, found.misfit))
