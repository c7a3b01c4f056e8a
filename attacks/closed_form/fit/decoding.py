"""From a client's factor to ratings: the last step that several attacks share."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float


def distance_to_levels(
    value: Float[np.ndarray, "*shape"], levels: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, "*shape"]:
    """Measure the distance of each value to the nearest rating level.

    Examples
    --------
    >>> distance_to_levels(np.array([0.0, 2.75, 9.0]), np.array([1.0, 2.0, 3.0]))
    array([1.  , 0.25, 6.  ])
    """
    nearest = nearest_level(value, levels)
    nearest -= value
    return np.abs(nearest, out=nearest)


def nearest_level(
    value: Float[np.ndarray, "*shape"], levels: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, "*shape"]:
    """Round each value to the nearest rating level.

    Examples
    --------
    >>> nearest_level(np.array([0.0, 2.75, 9.0]), np.array([1.0, 2.0, 3.0]))
    array([1., 3., 3.])
    """
    if levels.size == 1:
        return np.full_like(value, levels[0])
    if step := common_step(levels):
        nearest = value - levels[0]
        nearest /= step
        np.rint(nearest, out=nearest)
        np.maximum(nearest, 0, out=nearest)
        np.minimum(nearest, levels.size - 1, out=nearest)
        nearest *= step
        nearest += levels[0]
        return nearest
    return levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, value)]


def common_step(levels: Float[np.ndarray, " levels"]) -> float:
    """Find how far apart levels are, where all are equally far.

    Examples
    --------
    >>> common_step(np.array([0.5, 1.0, 1.5])), common_step(np.array([1.0, 2.0, 4.0]))
    (0.5, 0.0)
    """
    return _common_step(np.asarray(levels, float).tobytes())


def beside_levels(place: Float[np.ndarray, "*shape"], n_levels: int) -> Float[np.ndarray, "*shape"]:
    """Turn numbers into their distances, with a sign, from levels 0, 1, 2 and so on; in place.

    Examples
    --------
    >>> beside_levels(np.array([-0.5, 1.25, 3.0]), 3)
    array([-0.5 ,  0.25,  1.  ])
    """
    nearest = np.rint(place)
    np.clip(nearest, 0, n_levels - 1, out=nearest)
    return np.subtract(place, nearest, out=place)


@lru_cache(maxsize=64)
def _common_step(levels: bytes) -> float:
    """The step of levels, float64, that are equally far apart; 0 where they are not.

    Kept, for a grid is asked for thousands of times.
    """
    step = np.diff(np.frombuffer(levels))
    return float(step[0]) if np.abs(step - step[0]).max() < 1e-6 * step[0] else 0.0


def looks_unrated(
    error: Float[np.ndarray, "*shape"],
    predicted: Float[np.ndarray, "*shape"],
    levels: Float[np.ndarray, " levels"],
    alpha: float | np.floating,
) -> Bool[np.ndarray, "*shape"]:
    """Decide which rows fit "unrated, weight alpha" better than a rating with weight 1.

    ``error`` is c (r - p . q) and ``predicted`` p . q. An unrated item has error = -alpha p . q; a rated
    one has error + p . q on a rating level.

    References
    ----------
    P. Mai, Y. Pang, arXiv:2210.07775, section 4, on include-unrated.
    """
    away = distance_to_levels(error + predicted, levels)
    gap = predicted * alpha
    gap += error
    return np.abs(gap, out=gap) <= away
