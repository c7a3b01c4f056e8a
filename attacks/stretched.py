"""Stretched ratings taken apart: W o R = beta_i gamma_j r_ij with ratings on a grid.

Beyond paper 002, whose weights are products of a user's and an item's. Given estimates of s_ij = beta_i
gamma_j r_ij with known errors, for all clients together: expectation-maximisation with r_ij hidden. Weights
of users and of items are fitted in turn, each by a search over its one unknown factor (a wrong level of one
rating looks like another weight, so that this is where wrong answers hide) and then by weighted least
squares; a tolerance for the errors of the other weights is lowered step by step. beta and gamma are at most 1
and often equal to it, which fixes what a common factor of both would leave open.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

TOLERANCES = np.geomspace(0.3, 1e-3, 14)  # relative error of a weight that is allowed for, pass by pass
GRID = np.geomspace(1 / 6, 6, 145)  # factors by which a weight may be off
FLOOR = 1e-12


class Stretched(NamedTuple):
    """One entry per rating: rating and its probability (n_entries, n_levels); weights of users and items."""

    posterior: Float[np.ndarray, "entries levels"]
    user: Float[np.ndarray, " users"]
    item: Float[np.ndarray, " items"]
    share: Float[np.ndarray, " levels"]


def unstretch(
    user: Int[np.ndarray, " entries"],
    item: Int[np.ndarray, " entries"],
    value: Float[np.ndarray, " entries"],
    deviation: Float[np.ndarray, " entries"],
    levels: Float[np.ndarray, " levels"],
) -> Stretched:
    """Ratings, and the weights by which they were shrunk.

    Parameters
    ----------
    user, item : (n_entries,)
        From 0, without gaps that matter: weights of absent ones are 1.
    value, deviation : (n_entries,)
        Estimates of s_ij and their standard errors.
    levels : (n_levels,)
        Ascending, > 0.
    """
    weights = [np.ones(user.max() + 1), np.ones(item.max() + 1)]
    sides = (user, item)
    share = np.full(levels.size, 1 / levels.size)
    precision = 1 / np.maximum(deviation, FLOOR * levels[-1]) ** 2
    _rank_one(sides, value, precision, weights, float(levels.mean()))
    for number, tolerance in enumerate(TOLERANCES):
        for side in (0, 1):
            other = weights[1 - side][sides[1 - side]]
            if number < TOLERANCES.size - 3:
                weights[side] *= _search(
                    sides[side], weights[side], other, value, deviation, levels, share, tolerance
                )
            for _ in range(3):
                posterior = _posterior(
                    weights[side][sides[side]] * other, value, deviation, levels, share, tolerance
                )
                weights[side] = _least_squares(
                    sides[side], weights[side], other, value, precision, levels, posterior
                )
        share = posterior.mean(axis=0)
        _gauge(weights)
    posterior = _posterior(
        weights[0][user] * weights[1][item], value, deviation, levels, share, float(TOLERANCES[-1])
    )
    return Stretched(posterior, weights[0], weights[1], share)


def on_grid(
    user: Int[np.ndarray, " entries"],
    item: Int[np.ndarray, " entries"],
    value: Float[np.ndarray, " entries"],
    deviation: Float[np.ndarray, " entries"],
    levels: Float[np.ndarray, " levels"],
) -> Stretched:
    """The same where nothing is stretched: all weights are 1."""
    share = np.full(levels.size, 1 / levels.size)
    for _ in range(20):
        posterior = _posterior(np.ones_like(value), value, deviation, levels, share, float(TOLERANCES[-1]))
        share = posterior.mean(axis=0)
    return Stretched(posterior, np.ones(user.max() + 1), np.ones(item.max() + 1), share)


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
    tolerance: float,
) -> np.ndarray:
    """log N(value; scale r, deviation^2 + (tolerance scale r)^2) for every level, (..., levels)."""
    expected = scale[..., None] * levels
    variance = deviation[..., None] ** 2 + (tolerance * expected) ** 2
    return -0.5 * ((value[..., None] - expected) ** 2 / variance + np.log(variance))


def _posterior(
    scale: np.ndarray,
    value: np.ndarray,
    deviation: np.ndarray,
    levels: np.ndarray,
    share: np.ndarray,
    tolerance: float,
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
    tolerance: float,
) -> Float[np.ndarray, " members"]:
    """The factor of ``GRID`` that makes each member's ratings most likely."""
    logs = np.log(np.maximum(share, 1e-6))
    score = np.asarray(
        _scores(side, weight[side] * other, value, deviation, levels, logs, tolerance, weight.size)
    )
    # weights above 1 do not exist
    score = score - 1e3 * np.maximum(weight * GRID[:, None] - 1.02, 0)
    return GRID[score.argmax(axis=0)]


@partial(jax.jit, static_argnums=7)
def _scores(
    side: Array,
    base: Array,
    value: Array,
    deviation: Array,
    levels: Array,
    logs: Array,
    tolerance: float,
    members: int,
) -> Float[Array, "grid members"]:
    """Log likelihood of each member's values, its weight times each factor of the grid."""
    single = [jnp.asarray(part, jnp.float32) for part in (base, value, deviation**2, logs)]

    def one(factor: Array) -> Array:
        scale, seen, noise, prior = single[0] * factor, *single[1:]
        likely = [
            prior[number]
            - 0.5 * (seen - scale * level) ** 2 / (variance := noise + (tolerance * scale * level) ** 2)
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
    precision: np.ndarray,
    levels: np.ndarray,
    posterior: np.ndarray,
) -> Float[np.ndarray, " members"]:
    """The M step: weighted regression of s on gamma E r."""
    trust = precision / np.maximum(np.bincount(side, precision, weight.size), 1e-300)[side]
    above = np.bincount(side, trust * value * other * (posterior @ levels), weight.size)
    below = np.bincount(side, trust * other**2 * (posterior @ levels**2), weight.size)
    return np.where((below > 0) & (above > 0), above / np.maximum(below, 1e-300), weight)
