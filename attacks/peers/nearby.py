"""Ratings where the receiver holds another copy of the item factors than the sender: near, not equal.

Beyond paper 003. In a round whose past was missed a sender's copy v of an item is its neighbour's v' and
what the two of them moved apart. A row is still W e u up to a small ridge, and r = A g + B h + noise with h
= d . v': what the sender itself moved is along u and in proportion to e, so that A takes it up. A and B are
those that make the ratings most likely to be levels, all equally frequent, seen through normal noise.

Numbers about nothing can be put near levels, too. So a sender is answered where its pairs (g, h) are more
likely than the same numbers paired otherwise, in all of ``PAIRED`` ways: by chance that is one sender in
``PAIRED`` + 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

PAIRED = 19
CLEARLY = 4.0  # deviations of other pairings by which a sender's own must be more likely
NOISE = 0.3  # of a step between levels: standard deviation
ERRORS, PREDICTIONS = 30, 30  # values tried of A, of each sign, and of B
RANGE = 12.0  # times smaller or larger than what spreads ratings over all levels
FEWEST = 4  # ratings of a sender that is answered
FIT_ROWS = 128
LEAST = 1e-12  # likelihood of a number far from every level


class Nearby(NamedTuple):
    """Ratings of one sender.

    Attributes
    ----------
    value : (rows,)
        The most likely levels, in stars; NaN where the sender is not answered.
    probability : (rows,)
        Of each, given A and B.
    """

    value: Float[np.ndarray, " rows"]
    probability: Float[np.ndarray, " rows"]


def read_nearby(
    scalar: Float[np.ndarray, " rows"],
    along: Float[np.ndarray, " rows"],
    levels: Float[np.ndarray, " levels"],
    rng: np.random.Generator,
) -> Nearby:
    """Read one sender.

    Parameters
    ----------
    scalar, along : (rows,)
        Rows, and the receiver's factors of their items, along the sender's direction.
    levels : (levels,)
        In stars, ascending.
    rng : Generator
        Of the pairings.

    Returns
    -------
    Nearby
    """
    unanswered = Nearby(np.full(scalar.size, np.nan), np.full(scalar.size, np.nan))
    if scalar.size < FEWEST or levels.size < 2 or not (scalar.any() and along.any()):
        return unanswered
    some = slice(None, None, -(-scalar.size // FIT_ROWS))
    best, numbers = _most_likely(scalar[some], along[some], levels)
    null = [_most_likely(scalar[some], rng.permutation(along[some]), levels)[0] for _ in range(PAIRED)]
    if best < np.mean(null) + CLEARLY * np.std(null) or best <= max(null):
        return unanswered
    weight = _densities(numbers[0] * scalar + numbers[1] * along, levels)
    at = weight.argmax(axis=1)
    total = weight.sum(axis=1)
    probability = np.where(total > 0, weight.max(axis=1) / np.where(total > 0, total, 1), 1 / levels.size)
    return Nearby(levels[at], probability)


def _densities(value: np.ndarray, levels: np.ndarray) -> np.ndarray:
    step = np.diff(levels).min()
    return np.exp(-0.5 * ((value[..., None] - levels) / (NOISE * step)) ** 2)


def _most_likely(
    scalar: np.ndarray, along: np.ndarray, levels: np.ndarray
) -> tuple[float, tuple[float, float]]:
    """The log-likelihood of the best A and B among those tried, and these."""
    half = (levels[-1] - levels[0]) / 2
    size = np.sqrt(np.mean(scalar**2))
    errors = half / size * np.geomspace(1 / RANGE, RANGE, ERRORS)
    middle = np.mean(np.abs(along))
    predictions = levels.mean() / middle * np.geomspace(1 / RANGE, RANGE, PREDICTIONS)
    turn = 1.0 if along.sum() >= 0 else -1.0  # ratings are positive
    a = np.concatenate([-errors[::-1], errors])
    value = a[:, None, None] * scalar + turn * predictions[:, None] * along
    fit = np.log(_densities(value, levels).sum(axis=3) + LEAST).sum(axis=2)
    row, column = np.unravel_index(int(fit.argmax()), fit.shape)
    return float(fit[row, column]), (float(a[row]), float(turn * predictions[column]))
