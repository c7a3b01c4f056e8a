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


def no_bias(
    bias: Float[np.ndarray, "*shape"], levels: Float[np.ndarray, " levels"]
) -> Bool[np.ndarray, "*shape"]:
    """Find numbers that are no mean of some ratings: the highest, or more, or below 0 by more than the grid.

    Parameters
    ----------
    bias : any shape
        In stars; NaN is none.
    levels : (n_levels,)
        Ascending, in stars.

    Returns
    -------
    same shape

    Examples
    --------
    >>> no_bias(np.array([3.5, -1.0, 6.0, -5.0]), np.arange(1.0, 6.0)).tolist()
    [False, False, True, True]
    """
    least = SMALL * step_of(levels)
    return np.asarray((bias > levels[-1] - least) | (bias < levels[0] - levels[-1] - least))


def without_no_biases(found: Reading, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave clients open who are read with a bias that is none, or with one and in larger steps.

    Parameters
    ----------
    found : Reading
    levels : (n_levels,)
        Ascending, in stars.

    Returns
    -------
    Reading
    """
    doubted = found.answered & no_bias(found.own_bias, levels)
    for user in np.flatnonzero(found.answered & (found.own_bias != 0) & ~doubted):
        value = found.value[user]
        told = value[np.isfinite(value)]
        doubted[user] = told.size >= FEWEST and in_larger_steps(told, levels)
    return found._replace(misfit=np.where(doubted, np.nan, found.misfit))
