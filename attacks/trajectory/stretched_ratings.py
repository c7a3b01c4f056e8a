"""Stretched ratings taken apart: W o R = beta_i gamma_j r_ij with ratings on a grid.

Beyond Hu & Fang 2023, whose weights are products of a user's and an item's. Given estimates of s_ij = beta_i
gamma_j r_ij with known errors, for all clients together: expectation-maximisation with r_ij hidden. Weights
of users and of items are fitted in turn, each by a search over its one unknown factor (a wrong level of one
rating looks like another weight, so that this is where wrong answers hide) and then by weighted least
squares; a tolerance for the errors of the other weights is lowered step by step. beta and gamma are at most 1
and often equal to it, which fixes what a common factor of both would leave open. Levels start as frequent as
in published sets.

References
----------
W. Hu, H. Fang, arXiv:2212.00306. A. P. Dempster, N. M. Laird, D. B. Rubin 1977,
doi:10.1111/j.2517-6161.1977.tb01600.x.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attacks.metadata.rating_prior import PSEUDO_COUNTS, log_shares

TOLERANCES = np.geomspace(0.3, 1e-3, 14)  # relative error of a weight that is allowed for, pass by pass
GRID = np.geomspace(1 / 6, 6, 145)  # factors by which a weight may be off
RESOLVED = 0.03  # relative error of a search that found one factor of its grid
FLOOR = 1e-12


class Separated(NamedTuple):
    """Ratings and the weights that stretched them."""

    posterior: Float[np.ndarray, "entries levels"]  # probability of every level, one row per rating
    user_weight: Float[np.ndarray, " users"]  # beta and gamma
    item_weight: Float[np.ndarray, " items"]  # beta and gamma
    level_share: Float[np.ndarray, " levels"]  # how frequent the levels are


def unstretch(
    user: Int[np.ndarray, " entries"],
    item: Int[np.ndarray, " entries"],
    value: Float[np.ndarray, " entries"],
    deviation: Float[np.ndarray, " entries"],
    levels: Float[np.ndarray, " levels"],
) -> Separated:
    """Separate ratings from the weights by which they were stretched."""
    weights = [np.ones(user.max() + 1), np.ones(item.max() + 1)]
    unsure = [np.zeros_like(weight) for weight in weights]  # relative standard errors
    blurred = [np.zeros_like(weight) for weight in weights]  # the same, as the last search left them
    sides = (user, item)
    usual = np.exp(log_shares(levels))
    share = usual
    deviation = np.maximum(deviation, FLOOR * levels[-1])
    _rank_one(sides, value, 1 / deviation**2, weights, float(share @ levels))
    posterior = np.zeros((value.size, levels.size))
    for number, tolerance in enumerate(TOLERANCES):
        for side in (0, 1):
            mine, other = sides[side], weights[1 - side][sides[1 - side]]
            allowed = np.sqrt(tolerance**2 + unsure[1 - side][sides[1 - side]] ** 2)
            if number < TOLERANCES.size - 3:
                factor, blurred[side] = _search(
                    mine, weights[side], other, value, deviation, levels, share, allowed
                )
                weights[side] *= factor
            for _ in range(3):
                posterior = _posterior(weights[side][mine] * other, value, deviation, levels, share, allowed)
                weights[side], unsure[side] = _least_squares(
                    mine,
                    weights[side],
                    other,
                    value,
                    deviation,
                    levels,
                    posterior,
                    unsure[1 - side][sides[1 - side]],
                )
            unsure[side] = np.maximum(unsure[side], blurred[side])
        share = _shares(posterior, usual)
        _gauge(weights)
    allowed = np.sqrt(TOLERANCES[-1] ** 2 + unsure[0][user] ** 2 + unsure[1][item] ** 2)
    posterior = _posterior(weights[0][user] * weights[1][item], value, deviation, levels, share, allowed)
    return Separated(posterior, weights[0], weights[1], share)


def on_grid(
    user: Int[np.ndarray, " entries"],
    item: Int[np.ndarray, " entries"],
    value: Float[np.ndarray, " entries"],
    deviation: Float[np.ndarray, " entries"],
    levels: Float[np.ndarray, " levels"],
) -> Separated:
    """Read ratings where nothing is stretched."""
    usual = np.exp(log_shares(levels))
    share = usual
    for _ in range(20):
        one = np.ones_like(value)
        posterior = _posterior(one, value, deviation, levels, share, TOLERANCES[-1] * one)
        share = _shares(posterior, usual)
    return Separated(posterior, np.ones(user.max() + 1), np.ones(item.max() + 1), share)


def _shares(
    posterior: Float[np.ndarray, "entries levels"], usual: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, " levels"]:
    """Frequencies of the levels, what is known of ratings anyhow counted in."""
    return (posterior.sum(axis=0) + PSEUDO_COUNTS * usual) / (posterior.shape[0] + PSEUDO_COUNTS)


def _rank_one(
    sides: tuple[np.ndarray, np.ndarray],
    value: np.ndarray,
    precision: np.ndarray,
    weights: list[np.ndarray],
    middle: float,
) -> None:
    """First weights: s = beta gamma r for the middle r, least squares in turn."""
    trust = precision / precision.max()
    trust = np.maximum(trust, 1e-3) if trust.min() > 0 else np.ones_like(trust)
    for _ in range(20):
        for side in (0, 1):
            other = middle * weights[1 - side][sides[1 - side]]
            size = weights[side].size
            above = np.bincount(sides[side], trust * value * other, size)
            below = np.bincount(sides[side], trust * other**2, size)
            weights[side] = np.where(
                below > 0, np.maximum(above, 1e-3 * below) / np.maximum(below, 1e-300), 1
            )
        _gauge(weights)


def _gauge(weights: list[np.ndarray]) -> None:
    """Only products matter: the 99th percentile of the item weights is made 1."""
    factor = np.percentile(weights[1], 99)
    weights[1] /= factor
    weights[0] *= factor


def _log_likelihood(
    scale: np.ndarray,
    value: np.ndarray,
    deviation: np.ndarray,
    levels: np.ndarray,
    tolerance: np.ndarray,
) -> np.ndarray:
    """log N(value; scale r, deviation^2 + (tolerance scale r)^2) for every level, (..., levels)."""
    expected = scale[..., None] * levels
    variance = deviation[..., None] ** 2 + (tolerance[..., None] * expected) ** 2
    return -0.5 * ((value[..., None] - expected) ** 2 / variance + np.log(variance))


def _posterior(
    scale: np.ndarray,
    value: np.ndarray,
    deviation: np.ndarray,
    levels: np.ndarray,
    share: np.ndarray,
    tolerance: np.ndarray,
) -> Float[np.ndarray, "entries levels"]:
    score = _log_likelihood(scale, value, deviation, levels, tolerance) + np.log(np.maximum(share, 1e-6))
    score = np.exp(score - score.max(axis=1, keepdims=True))
    return score / score.sum(axis=1, keepdims=True)


def _search(
    side: np.ndarray,
    weight: np.ndarray,
    other: np.ndarray,
    value: np.ndarray,
    deviation: np.ndarray,
    levels: np.ndarray,
    share: np.ndarray,
    tolerance: np.ndarray,
) -> tuple[Float[np.ndarray, " members"], Float[np.ndarray, " members"]]:
    """The factor of each member's weight, a posteriori, and its relative error."""
    logs = np.log(np.maximum(share, 1e-6))
    score = np.asarray(
        _scores(side, weight[side] * other, value, deviation, levels, logs, tolerance, weight.size)
    )
    # weights above 1 do not exist, and few are far from the others
    logs_of = np.log(weight * GRID[:, None])
    centre, spread = np.log(weight).mean(), max(float(np.log(weight).std()), 0.1)
    score = (
        score - 1e3 * np.maximum(weight * GRID[:, None] - 1.02, 0) - 0.5 * ((logs_of - centre) / spread) ** 2
    )
    likely = np.exp(score - score.max(axis=0))
    likely /= likely.sum(axis=0)
    steps = np.log(GRID)[:, None]
    mean = (likely * steps).sum(axis=0)
    wide = np.sqrt((likely * (steps - mean) ** 2).sum(axis=0))
    clear = wide < RESOLVED
    return np.where(clear, GRID[score.argmax(axis=0)], np.exp(mean)), np.where(clear, 0, wide)


@partial(jax.jit, static_argnums=7)
def _scores(
    side: Array,
    base: Array,
    value: Array,
    deviation: Array,
    levels: Array,
    logs: Array,
    tolerance: Array,
    members: int,
) -> Float[Array, "grid members"]:
    """Log likelihood of each member's values, its weight times each factor of the grid."""
    single = [jnp.asarray(part, jnp.float32) for part in (base, value, deviation**2, logs, tolerance)]

    def one(factor: Array) -> Array:
        scale, seen, noise, prior, allowed = single[0] * factor, *single[1:]
        likely = [
            prior[number]
            - 0.5 * (seen - scale * level) ** 2 / (variance := noise + (allowed * scale * level) ** 2)
            - 0.5 * jnp.log(variance)
            for number, level in enumerate(jnp.asarray(levels, jnp.float32))
        ]
        return jax.ops.segment_sum(jax.nn.logsumexp(jnp.stack(likely), axis=0), side, members)

    return jax.lax.map(one, jnp.asarray(GRID, jnp.float32))


def _least_squares(
    side: np.ndarray,
    weight: np.ndarray,
    other: np.ndarray,
    value: np.ndarray,
    deviation: np.ndarray,
    levels: np.ndarray,
    posterior: np.ndarray,
    unsure: np.ndarray,
) -> tuple[Float[np.ndarray, " members"], Float[np.ndarray, " members"]]:
    """The M step: weighted regression of s on gamma E r, drawn to the mean of all, and its relative error."""
    mean, square = posterior @ levels, posterior @ levels**2
    precision = 1 / (deviation**2 + (weight[side] * other * mean * unsure) ** 2)
    below = np.bincount(side, precision * other**2 * square, weight.size)
    above = np.bincount(side, precision * value * other * mean, weight.size)
    known = below > 0
    own = weight if not known.any() else weight[known]
    spread = max(float(own.var()), 1e-4 * float(own.mean()) ** 2)
    total = below + 1 / spread
    found = (above + own.mean() / spread) / total
    found = np.maximum(found, 1e-3 * own.mean())
    return found, np.minimum(1 / np.sqrt(total) / found, 1.0)
