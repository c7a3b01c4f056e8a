"""What rows of an answer say: a rating of the grid, the rating if the item is rated, whether it is rated.

Rounding and clipping as in paper 000, Eq. (43): an estimate is clipped to [0, largest level] and rounded to
the nearest of 0 and the rating levels.
"""

from __future__ import annotations

import numpy as np

from attacks.base import Estimates
from victims.transcript.manifest import Manifest


def round_ratings(value: np.ndarray, levels: list[float]) -> np.ndarray:
    """Clip to [0, largest level] and round to the nearest of 0 and the levels.

    References
    ----------
    Paper 000: P. Mai, Y. Pang, arXiv:2210.07775, Eq. (43).

    Examples
    --------
    >>> round_ratings(np.array([-3.0, 0.4, 3.6, 9.0]), [1.0, 2.0, 3.0, 4.0, 5.0])
    array([0., 0., 4., 5.])
    """
    grid = np.array([0.0, *levels])
    middle = (grid[1:] + grid[:-1]) / 2
    return grid[np.searchsorted(middle, value)]


def if_rated(block: Estimates, answer: np.ndarray, manifest: Manifest) -> np.ndarray:
    """Take the rating of each row if the item is rated, rounded to the levels alone."""
    if block.rating_if_rated is None:
        return answer
    levels = np.array(manifest.rating_levels)
    middle = (levels[1:] + levels[:-1]) / 2
    there = ~np.isnan(block.rating_if_rated)
    nearest = levels[np.searchsorted(middle, np.where(there, block.rating_if_rated, 0.0))]
    return np.where(there, nearest, answer)


def claimed_rated(block: Estimates, answer: np.ndarray, manifest: Manifest) -> np.ndarray:
    """Decide which rows are said to be rated: the most probable ones, as many as maximise the expected F1."""
    if block.rated_probability is None or _listed_are_rated(manifest):
        return answer > 0
    probability = np.nan_to_num(block.rated_probability, nan=0.0)
    order = np.argsort(-probability, axis=1, kind="stable")
    hits = np.cumsum(np.take_along_axis(probability, order, axis=1), axis=1)
    expected = hits / (np.arange(1, probability.shape[1] + 1) + hits[:, -1:])
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None], axis=1)
    return (rank <= expected.argmax(axis=1)[:, None]) & (probability > 0)


def rated_strength(block: Estimates, value: np.ndarray, answer: np.ndarray, manifest: Manifest) -> np.ndarray:
    """Tell how strongly each row says "rated": its probability where given, else what the answer implies.

    In observed-only an answered row says it by itself, unless the answer is 0, the word for "unrated": a
    rating that was estimated badly is still one. Where rows of zeros about unrated items lie among the
    uploads they are left out, and an attack that cannot tell them gives probabilities.
    """
    if _listed_are_rated(manifest):
        return (value != 0).astype(np.float64)
    if block.rated_probability is not None:
        return np.nan_to_num(block.rated_probability, nan=0.0)
    if manifest.weighting == "observed-only":
        return (value != 0).astype(np.float64)
    if block.probability is None:
        return value
    probability = np.nan_to_num(block.probability, nan=0.5)
    # a rating is claimed on rated rows only, however sure the attack is which one
    return np.where(answer > 0, 1 + probability, 1 - probability)


def _listed_are_rated(manifest: Manifest) -> bool:
    """Whether an answered row is about a rated item by itself, whatever the attack says of it."""
    return manifest.weighting == "observed-only" and not manifest.samples_unrated
