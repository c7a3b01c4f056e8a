"""The non-linear systems of Mai & Pang 2022, section 4, as residuals in JAX.

P. Mai, Y. Pang, "PrivMVMF", Eq. (20), (24), (31), (33), with the slips corrected.

A row of a client is f = c (z - p . t) p, where z is its rating or attribute and t the broadcast factor
q_j or u_a. With n a fixed factor of K, or j a fixed item:

- ``semi_als``: unknowns z for every row, equations c (z - p . t) p_n = f_n, where p solves (8). It is
  (20) with c = 1 (observed-only) and (24) with c = alpha + (1 - alpha) clip(z, 0, 1), the corrected
  smoothing (42), in include-unrated;
- ``sgd``: unknowns p, K equations for item j in two rounds t-1, t. It is (31) with c = 1 and (33) with c
  smoothed from the rating of (35). W = sum_k f(k) q_k' + lambda_1 sum_a f(a) u_a' (K x K) stands for the
  sums in (28), (30) and (34).

As printed, (42) is c = clip(z, 0, 1), which is alpha = 0 here: an unrated item then predicts a gradient of
zero, and none is. As printed, (34) and (47) have p_j where q_j is meant; ``sgd_printed`` takes the only p
that the system has, the client's. Observed-only has neither.

All functions are pure, take padded arrays and are traced once per shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

jax.config.update("jax_enable_x64", True)


def smooth_weight(
    value: Float[Array, " rows"], alpha: Float[Array, ""], item: Bool[Array, " rows"]
) -> Float[Array, " rows"]:
    """Compute c = alpha + (1 - alpha) clip(r, 0, 1) for items (Eq. 42, corrected), and 1 for attributes."""
    return jnp.where(item, alpha + (1 - alpha) * jnp.clip(value, 0, 1), 1.0)


def solved_factor(
    value: Float[Array, " rows"],
    factors: Float[Array, "rows K"],
    weight: Float[Array, " rows"],
    ridge: Float[Array, ""],
) -> Float[Array, " K"]:
    """Solve Eq. (8) for the client's factor p, given its ratings and attributes.

    References
    ----------
    P. Mai, Y. Pang, arXiv:2210.07775, Eq. (8).
    """
    weighted = weight[:, None] * factors
    square = factors.T @ weighted + ridge * jnp.eye(factors.shape[1])
    return jnp.linalg.solve(square, weighted.T @ value)


class SemiAls(NamedTuple):
    """One client's system in one round, padded to a common number of rows."""

    factors: Float[Array, "rows K"]  # broadcast factor of each row, 0 on padding
    weight: Float[Array, " rows"]  # lambda_1 for attributes, 1 for items
    item: Bool[Array, " rows"]
    column: Float[Array, " rows"]  # f_n
    n: Float[Array, " K"]  # one-hot
    ridge: Float[Array, ""]  # lambda_2
    alpha: Float[Array, ""]  # 1 in observed-only, 0 for (42) as printed


def semi_als(unknown: Float[Array, " rows"], system: SemiAls) -> Float[Array, " rows"]:
    """Evaluate the residual of (20) or (24).

    References
    ----------
    P. Mai, Y. Pang, arXiv:2210.07775, Eq. (20), (24).
    """
    p = factor_of(unknown, system)
    error = smooth_weight(unknown, system.alpha, system.item) * (unknown - system.factors @ p)
    padding = (system.weight == 0) * unknown
    return jnp.where(system.weight == 0, padding, error * (p @ system.n) - system.column)


@jax.jit
def factor_of(unknown: Float[Array, " rows"], system: SemiAls) -> Float[Array, " K"]:
    """Solve Eq. (8) for the client's factor in a system."""
    c = smooth_weight(unknown, system.alpha, system.item)
    return solved_factor(unknown, system.factors, system.weight * c, system.ridge)


class Sgd(NamedTuple):
    """One client's system for one item in two consecutive rounds."""

    before: Float[Array, " K"]  # f^{t-1}(i,j) and f^t(i,j)
    after: Float[Array, " K"]  # f^{t-1}(i,j) and f^t(i,j)
    q_before: Float[Array, " K"]  # q_j in the two rounds
    q_after: Float[Array, " K"]  # q_j in the two rounds
    pull: Float[Array, "K K"]  # W of round t-1, row n from the n-th coordinates
    rate: Float[Array, ""]  # gamma, lambda_2
    ridge: Float[Array, ""]  # gamma, lambda_2
    alpha: Float[Array, ""]  # 1 in observed-only, 0 for (42) as printed


def sgd(p: Float[Array, " K"], system: Sgd) -> Float[Array, " K"]:
    """Evaluate the residual of (31) or (33): what p at t-1 predicts for the upload at t, minus that upload.

    References
    ----------
    P. Mai, Y. Pang, arXiv:2210.07775, Eq. (31), (33).
    """
    pulled = 2 * system.rate * system.ridge * system.q_after
    return _two_rounds(p, system, p @ (pulled - (system.q_after - system.q_before)))


def sgd_printed(p: Float[Array, " K"], system: Sgd) -> Float[Array, " K"]:
    """Evaluate the residual of (33) with g' as (34) prints it, 2 lambda_2 gamma p - (p^t - p).

    References
    ----------
    P. Mai, Y. Pang, arXiv:2210.07775, Eq. (33), (34).
    """
    return _two_rounds(p, system, p @ (2 * system.rate * system.ridge * p - (_stepped(p, system) - p)))


def _stepped(p: Float[Array, " K"], system: Sgd) -> Float[Array, " K"]:
    """p at t: every coordinate by its own coordinate of the uploads."""
    return (1 - 2 * system.rate * system.ridge) * p + 2 * system.rate * jnp.diagonal(system.pull) / p


def _two_rounds(p: Float[Array, " K"], system: Sgd, drift: Float[Array, ""]) -> Float[Array, " K"]:
    """(33), whose term p g' is ``drift``; (31) where alpha is 1."""
    shrink = 1 - 2 * system.rate * system.ridge
    step = 2 * system.rate * system.pull / p[:, None]  # row n: the client's step read off f_n
    later = _stepped(p, system)
    now, then = p @ system.q_before, shrink * (p @ system.q_after) + step @ system.q_after
    # (35); where p . q barely moves it is 0/0, and the plain rating of (32) takes its place
    below = system.before * later - system.after * p
    safe = jnp.abs(below) > 1e-9 * (jnp.abs(system.before * later) + jnp.abs(system.after * p))
    rating = jnp.where(
        safe,
        (system.before * then * later - system.after * now * p) / jnp.where(safe, below, 1.0),
        system.before / p + now,
    )
    c = smooth_weight(rating, system.alpha, jnp.ones(p.shape, bool))
    return (system.before / p + c * (drift - step @ system.q_after)) * later - system.after


System = SemiAls | Sgd
Equations = Callable[[Array, System], Array]

# One compiled function of each kind serves both systems; ``equations`` is one of the above.


@partial(jax.jit, static_argnums=0)
def residual(equations: Equations, unknown: Array, system: System) -> Array:
    """Evaluate a system at a point, compiled once per shape."""
    return equations(unknown, system)


@partial(jax.jit, static_argnums=0)
def jacobian(equations: Equations, unknown: Array, system: System) -> Array:
    """Evaluate the dense Jacobian of a system."""
    return jax.jacfwd(equations)(unknown, system)


@partial(jax.jit, static_argnums=0)
def jacobian_product(equations: Equations, unknown: Array, direction: Array, system: System) -> Array:
    """Multiply the Jacobian of a system by a direction, without forming it."""
    return jax.jvp(lambda point: equations(point, system), (unknown,), (direction,))[1]
