"""How well answers fit the rating grid, against chance: whether a client is answered at all.

Where the clients' rule is another than the declared one, numbers come out between the levels. They are
compared with chance: distances spread evenly over half a step, or what the same numbers give when they are
paired at random. A few ratings lie near the grid by accident, so that the largest misfit at which a client is
answered depends on how many there are, and on how many answers were tried: the mean of n numbers, uniform
in 0..1, is below x / n with a probability of at most x^n / n! (Irwin-Hall distribution, its first term).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import gammaln, ndtr

from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level

FIT_ROWS = 64  # rows per client that are looked at
TINY = np.finfo(np.float64).tiny


def accidental(
    count: Int[np.ndarray, " users"], tried: int = 1, accident: float = BARS.accident
) -> Float[np.ndarray, " users"]:
    """Compute the misfit below which answers about nothing fall with probability ``accident`` at most.

    References
    ----------
    J. O. Irwin 1927, doi:10.1093/biomet/19.3-4.225; P. Hall 1927, doi:10.1093/biomet/19.3-4.240.

    Examples
    --------
    >>> accidental(np.array([0, 1, 3, 10, 40])).round(2)
    array([0.  , 0.  , 0.12, 0.45, 0.66])
    """
    n = np.maximum(count, 1)
    bound = 2 / n * np.exp((gammaln(n + 1) + np.log(accident / tried)) / n)
    return np.where(count > 0, bound, 0.0)


def step_of(levels: Float[np.ndarray, " levels"]) -> float:
    """Find the smallest step of a rating grid."""
    return float(np.diff(levels).min()) if levels.size > 1 else float(levels[0])


def misfit(
    error: Float[np.ndarray, "users rows"],
    predicted: Float[np.ndarray, "users rows"],
    item: Bool[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    alpha: float | np.floating | None,
) -> tuple[Float[np.ndarray, " users"], Int[np.ndarray, " users"]]:
    """Measure the mean distance from the grid relative to chance: 0 is a perfect fit, 1 is chance.

    Chance is what the same rows give when every error is paired with the next row's prediction, or, in
    observed-only and for attributes, a quarter of a step where that is the larger; never more than ``FAR``
    steps, which is what factors give that noise drove to huge values. Ratings and attributes
    are judged apart and the worse of both counts: attributes come out near 0 at any wrong length.
    """
    stride = max(1, -(-error.shape[1] // FIT_ROWS))
    error, predicted, item, valid = (part[:, ::stride] for part in (error, predicted, item, valid))
    fit = _distances(error, predicted, item, levels, alpha)
    chance = _distances(error, np.roll(predicted, 1, axis=1), item, levels, alpha)
    worst = np.zeros(error.shape[0])
    for kind, step, least in (
        (item & valid, step_of(levels), _least(levels, alpha)),
        (~item & valid, 1.0, 1.0),
    ):
        by_chance = _mean_chance(chance, kind, step, least)
        count = np.maximum(kind.sum(axis=1), 1)
        worst = np.maximum(worst, (fit * kind).sum(axis=1) / count / by_chance)
    return worst, (item & valid).sum(axis=1)


def rating_chance(
    error: Float[np.ndarray, "users rows"],
    predicted: Float[np.ndarray, "users rows"],
    item: Bool[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    alpha: float | np.floating | None,
) -> Float[np.ndarray, " users"]:
    """Measure what ``misfit`` takes for chance, of ratings."""
    stride = max(1, -(-error.shape[1] // FIT_ROWS))
    error, predicted, item, valid = (part[:, ::stride] for part in (error, predicted, item, valid))
    chance = _distances(error, np.roll(predicted, 1, axis=1), item, levels, alpha)
    return _mean_chance(chance, item & valid, step_of(levels), _least(levels, alpha))


def _distances(
    error: np.ndarray,
    predicted: np.ndarray,
    item: np.ndarray,
    levels: np.ndarray,
    alpha: float | np.floating | None,
) -> np.ndarray:
    """How far rows are from what they may be, each by itself."""
    value = error + predicted
    near = distance_to_levels(value, levels)
    if alpha is not None:
        near = np.minimum(near, np.abs(error + alpha * predicted))
    return np.where(item, near, np.minimum(np.abs(value), np.abs(value - 1)))


def _least(levels: np.ndarray, alpha: float | np.floating | None) -> float:
    """The step of which a quarter is chance at least."""
    return step_of(levels) if alpha is None else 0.0


def _mean_chance(chance: np.ndarray, kind: np.ndarray, step: float, least: float) -> np.ndarray:
    count = np.maximum(kind.sum(axis=1), 1)
    by_chance = np.clip((chance * kind).sum(axis=1) / count, least / 4, BARS.far * step)
    return np.maximum(by_chance, TINY)


def independent(
    value: Float[np.ndarray, "users rows"],
    counted: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
) -> Int[np.ndarray, " users"]:
    """Count distances from the grid that say something by themselves, of the rows that ``misfit`` looks at.

    Numbers that name one level and differ by less than they are away from it are one number, however many
    they are: rows of equal errors (signs, or what Adam makes of them) come out so, and lie near the grid by
    accident.

    Examples
    --------
    >>> value = np.array([[1.97, 1.965, 1.96], [4.99, 2.01, 2.0]])
    >>> independent(value, np.ones((2, 3), bool), np.arange(1.0, 6.0))
    array([1, 3])
    """
    stride = max(1, -(-value.shape[1] // FIT_ROWS))
    value, counted = value[:, ::stride], counted[:, ::stride]
    near = nearest_level(value, levels)
    away = np.abs(value - near)
    total = np.zeros(value.shape[0], int)
    for level in levels:
        here = counted & (np.abs(near - level) < step_of(levels) / 4)
        size = here.sum(axis=1)
        high = np.where(here, value, -np.inf).max(axis=1, initial=-np.inf)
        low = np.where(here, value, np.inf).min(axis=1, initial=np.inf)
        distance = np.where(here, away, 0).sum(axis=1) / np.maximum(size, 1)
        alike = (high - low < distance) & (distance > BARS.digits * step_of(levels))
        total += np.where(alike, np.minimum(size, 1), size)
    return total


def log_odds_between(
    value: Float[np.ndarray, "*shape"],
    deviation: Float[np.ndarray, "*shape"],
    levels: Float[np.ndarray, " levels"],
    share: Float[np.ndarray, " levels"],
) -> Float[np.ndarray, "*shape"]:
    """Weigh numbers anywhere around the levels against numbers on them, both seen through Gaussian noise.

    Where they are on the levels, a sum of these exceeds log(1 / a) with a probability of at most a (Markov's
    inequality: the mean of a ratio of densities is 1).
    """
    half = step_of(levels) / 2
    away = (value[..., None] - levels) / deviation[..., None]
    wide = half / deviation[..., None]
    on = np.exp(-0.5 * away**2) / (deviation[..., None] * np.sqrt(2 * np.pi)) @ share
    around = (ndtr(away + wide) - ndtr(away - wide)) / (2 * half) @ share
    least = 1e-300
    return np.log(np.maximum(around, least)) - np.log(np.maximum(on, least))
