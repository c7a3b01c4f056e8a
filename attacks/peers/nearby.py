"""Ratings where the receiver holds another copy of the item factors than the sender: near, not equal.

Beyond Duriakova et al. 2019. In a round whose past was missed a sender's copy v of an item is its neighbour's
v' and what the two of them moved apart. A row is still W e u up to a small ridge, and r = A g + B h + noise
with h = d . v': what the sender itself moved is along u and in proportion to e, so that A takes it up. A and
B are those that make the ratings most likely to be levels, all equally frequent, seen through normal noise.

Numbers about nothing can be put near levels, too. So a sender is answered where its pairs (g, h) are more
likely than the same numbers paired otherwise, in all of ``PAIRED`` ways (by chance that is one sender in
``PAIRED`` + 1), and nearer to the levels than random numbers could be put. Where items are nearly alike along
d, B h is nearly a constant: ratings one level higher, or upside down, are then nearly as likely. So nothing
is answered that another A and B contradict, unless these are clearly less likely. Where the scale of rows is
known, so is A B, and few pairs are left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import accidental

PAIRED = 19
CLEARLY = 4.0  # deviations of other pairings by which a sender's own must be more likely
NOISE = 0.3  # of a step between levels: standard deviation
ERRORS, PREDICTIONS = 30, 30  # values tried of A, of each sign, and of B
RANGE = 12.0  # times smaller or larger than what spreads ratings over all levels
FEWEST = 4  # ratings of a sender that is answered
FIT_ROWS = 128
LEAST = 1e-12  # likelihood of a number far from every level
ALONG_A_LINE = 240  # values tried of B where A B is known
RIVAL = float(np.log(1e4))  # log-likelihood by which other answers must be behind
OTHERWISE = 0.25  # share of a sender's ratings in which an answer is another one, not the same less exactly
ACCIDENT = 1e-3  # probability that random numbers are put as near


class Nearby(NamedTuple):
    """Ratings of one sender."""

    # the most likely levels, in stars; NaN where the sender is not answered
    value: Float[np.ndarray, " rows"]
    probability: Float[np.ndarray, " rows"]  # of each, given A and B


def read_nearby(
    scalar: Float[np.ndarray, " rows"],
    along: Float[np.ndarray, " rows"],
    levels: Float[np.ndarray, " levels"],
    rng: np.random.Generator,
    product: float | None = None,
) -> Nearby:
    """Read one sender."""
    unanswered = Nearby(np.full(scalar.size, np.nan), np.full(scalar.size, np.nan))
    if scalar.size < FEWEST or levels.size < 2 or not (scalar.any() and along.any()):
        return unanswered
    some = slice(None, None, -(-scalar.size // FIT_ROWS))
    g, h = scalar[some], along[some]
    tried = _tried(g, h, levels, product)
    fit = _fits(g, h, levels, tried)
    null = [_fits(g, rng.permutation(h), levels, tried).max() for _ in range(PAIRED)]
    best = int(fit.argmax())
    if fit[best] < np.mean(null) + CLEARLY * np.std(null) or fit[best] <= max(null):
        return unanswered
    step = np.diff(levels).min()
    value = tried[best, 0] * g + tried[best, 1] * h
    misfit = distance_to_levels(value[None], levels).mean() / (step / 4)
    if misfit > accidental(np.array([g.size - 1]), len(tried), ACCIDENT)[0]:
        return unanswered
    rivals = tried[fit > fit[best] - RIVAL]
    named = nearest_level(rivals[:, :1] * g + rivals[:, 1:] * h, levels)
    if ((named != nearest_level(value[None], levels)).mean(axis=1) > OTHERWISE).any():
        return unanswered
    weight = _densities(tried[best, 0] * scalar + tried[best, 1] * along, levels)
    at = weight.argmax(axis=1)
    total = weight.sum(axis=1)
    probability = np.where(total > 0, weight.max(axis=1) / np.where(total > 0, total, 1), 1 / levels.size)
    return Nearby(levels[at], probability)


def _densities(value: np.ndarray, levels: np.ndarray) -> np.ndarray:
    step = np.diff(levels).min()
    return np.exp(-0.5 * ((value[..., None] - levels) / (NOISE * step)) ** 2)


def _tried(
    g: np.ndarray, h: np.ndarray, levels: np.ndarray, product: float | None
) -> Float[np.ndarray, "tried 2"]:
    """Pairs of A and B."""
    number = PREDICTIONS if product is None else ALONG_A_LINE
    size = levels.mean() / np.mean(np.abs(h))
    b = (
        size * np.geomspace(1 / RANGE, RANGE, number) * (1.0 if h.sum() >= 0 else -1.0)
    )  # ratings are positive
    if product is not None:
        return np.stack([product / b, b], axis=1)
    errors = (levels[-1] - levels[0]) / 2 / np.sqrt(np.mean(g**2)) * np.geomspace(1 / RANGE, RANGE, ERRORS)
    a = np.concatenate([-errors[::-1], errors])
    return np.stack([np.repeat(a, b.size), np.tile(b, a.size)], axis=1)


def _fits(
    g: np.ndarray, h: np.ndarray, levels: np.ndarray, tried: Float[np.ndarray, "tried 2"]
) -> Float[np.ndarray, " tried"]:
    """The log-likelihood of each pair."""
    value = tried[:, :1] * g + tried[:, 1:] * h
    return np.log(_densities(value, levels).sum(axis=2) + LEAST).sum(axis=1)
