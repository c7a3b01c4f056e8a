"""Ratings that are all multiples of a step: whole stars of a grid of halves.

Where nobody knows what multiplies the rows, ratings r and r / m make the same ones, with a factor and a scale
that make up for it. If everybody rates in whole stars and the grid has halves, both are on it, and each
client is open. They are read on the levels that are m times a level: on that grid r / m is no rating. That
ratings are r / m would mean that of all these clients nobody has one above an m-th of the highest level; it
is not believed where ``FEWEST`` clients have the highest one of the coarser grid.

What it assumes: people use the upper half of a scale. Beyond the papers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.base import Reconstruction, Scope
from attacks.closed_form.fit.decoding import common_step, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of

FEWEST = 3  # clients with a rating of the highest level
FEWEST_LEVELS = 3  # of a coarser grid
MOST_GRIDS = 3  # that are tried


def coarser_grids(levels: Float[np.ndarray, " levels"]) -> list[Float[np.ndarray, " some"]]:
    """Find grids of every second level, every third, and so on, of which each is a multiple of a level.

    Examples
    --------
    >>> [grid.tolist() for grid in coarser_grids(np.arange(1, 11) / 2)]
    [[1.0, 2.0, 3.0, 4.0, 5.0]]
    >>> coarser_grids(np.arange(1.0, 6.0))
    []
    """
    if levels.size < 2 * FEWEST_LEVELS or not common_step(levels):
        return []
    if abs(levels[0] - step_of(levels)) > 1e-6 * step_of(levels):  # no multiples of the step
        return []
    times = [m for m in range(levels.size // FEWEST_LEVELS, 1, -1) if levels.size % m == 0]
    return [levels[m - 1 :: m] for m in times[:MOST_GRIDS]]


def uses_the_highest(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether several clients are told to have a rating of the highest level, and so none of a part of it."""
    if found.scope != Scope.RATINGS_AND_ATTRIBUTES:
        return False
    clients = 0
    for block in found.blocks:
        told = np.isfinite(block.value) & (block.value != 0)
        near = nearest_level(np.where(told, block.value, levels[0]), levels)
        clients += int((told & (near == levels[-1])).any(axis=1).sum())
    return clients >= FEWEST


def in_larger_steps(told: Float[np.ndarray, " n"], levels: Float[np.ndarray, " levels"]) -> bool:
    """Tell whether all ratings of a client are every second level from one of them on, or every third, say.

    Examples
    --------
    >>> stars = np.arange(1.0, 6.0)
    >>> in_larger_steps(np.array([5.0, 1, 3]), stars), in_larger_steps(np.array([5.0, 1, 2]), stars)
    (True, False)
    """
    steps = np.rint((told - told[0]) / step_of(levels)).astype(int)
    return bool(np.gcd.reduce(steps) > 1)
