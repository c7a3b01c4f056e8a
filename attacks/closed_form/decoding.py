"""From a client's factor to ratings: the last step that several attacks share."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float


def distance_to_levels(
    value: Float[np.ndarray, "*shape"], levels: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, "*shape"]:
    """Distance of each value to the nearest rating level, in stars.

    Examples
    --------
    >>> distance_to_levels(np.array([0.0, 2.75, 9.0]), np.array([1.0, 2.0, 3.0]))
    array([1.  , 0.25, 6.  ])
    """
    step = np.diff(levels)
    if levels.size == 1:
        nearest = np.full_like(value, levels[0])
    elif np.abs(step - step[0]).max() < 1e-6 * step[0]:
        nearest = value - levels[0]
        nearest /= step[0]
        np.rint(nearest, out=nearest)
        np.clip(nearest, 0, levels.size - 1, out=nearest)
        nearest *= step[0]
        nearest += levels[0]
    else:
        nearest = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, value)]
    nearest -= value
    return np.abs(nearest, out=nearest)


def looks_unrated(
    error: Float[np.ndarray, "*shape"],
    predicted: Float[np.ndarray, "*shape"],
    levels: Float[np.ndarray, " levels"],
    alpha: float | np.floating,
) -> Bool[np.ndarray, "*shape"]:
    """Which rows of include-unrated fit "unrated, weight alpha" better than a rating with weight 1.

    ``error`` is c (r - p . q) and ``predicted`` p . q. An unrated item has error = -alpha p . q; a rated
    one has error + p . q on a rating level.
    """
    away = distance_to_levels(error + predicted, levels)
    gap = predicted * alpha
    gap += error
    return np.abs(gap, out=gap) <= away
