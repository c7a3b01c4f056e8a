"""Least squares on a client's whole trajectory: its start factor and its ratings explain all of its uploads.

The start of K numbers, and n ratings, explain T n K numbers (``attacks.trajectory.normal_equations``).
Gauss-Newton with Levenberg-Marquardt damping, all clients of a batch at once.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from attacks.trajectory.normal_equations import (
    NormalEquations,
    Problem,
    Unknowns,
    axes_of,
    cost_of,
    factor_path,
    taken,
)

jax.config.update("jax_enable_x64", True)

FIRST_DAMPING = 1e-3
DOWN, UP = 5.0, 6.0  # what damping is divided by after a step, and multiplied by instead of one
LEAST_DAMPING, MOST_DAMPING = 1e-15, 1e12
CONVERGED = 1e-14  # relative change of the cost
SHRINK = 8  # a batch goes on as a smaller one when one in so many clients is left,
LARGE = 1 << 18  # if its matrices hold more numbers than this: a new shape is compiled in seconds


class Fit(NamedTuple):
    """Where a fit ended."""

    start: Float[Array, "users numbers"]  # p^0, and what chance added to the later ones
    factor: Float[Array, "users T K"]
    value: Float[Array, "users n"]  # s and its standard error
    deviation: Float[Array, "users n"]  # s and its standard error
    cost: Float[Array, " users"]  # half the weighted squares


def fit(
    problem: Problem,
    start: Float[Array, "users numbers"],
    value: Float[Array, "users n"],
    *,
    repeated: bool,
    steps: int,
    enough: float = 0.0,
) -> Fit:
    """Fit every client from one start.

    References
    ----------
    D. W. Marquardt 1963, doi:10.1137/0111030.
    """
    theta = jnp.concatenate([start, value], axis=1)
    theta, at = _minimise(Unknowns(False, repeated), problem, theta, steps, enough)
    return _described(problem, theta, at)


@jax.jit
def costs(problem: Problem, start: Float[Array, "users K"], value: Float[Array, "users n"]) -> Array:
    """Half the weighted squares that starts and s leave, of noise that does not repeat."""
    return jax.vmap(cost_of, in_axes=(axes_of(problem), 0, 0))(problem, start, value)


def fit_start(
    problem: Problem, start: Float[Array, "users numbers"], *, repeated: bool, steps: int, enough: float = 0.0
) -> tuple[Float[Array, "users numbers"], Float[Array, " users"]]:
    """Fit the start alone, s being the prior's mean.

    References
    ----------
    D. W. Marquardt 1963, doi:10.1137/0111030.
    """
    theta, at = _minimise(Unknowns(True, repeated), problem, start, steps, enough)
    return theta, at.cost


@jax.jit
def _described(problem: Problem, theta: Array, at: NormalEquations) -> Fit:
    size = theta.shape[1] - problem.mean.shape[1]  # of the start
    variance = jnp.diagonal(jnp.linalg.inv(at.matrix), axis1=1, axis2=2)[:, size:]
    path = partial(factor_path, by_value=False)
    start, value = theta[:, :size], theta[:, size:]
    factor, _ = jax.vmap(path, in_axes=(axes_of(problem), 0, 0))(problem, start, value)
    return Fit(start, factor, value, jnp.sqrt(jnp.maximum(variance, 0)), at.cost)


class _Loop(NamedTuple):
    """Where every client of a batch is: the best so far, the equations there, and what is tried next."""

    theta: Array
    at: NormalEquations
    trial: Array
    damping: Array
    done: Bool[Array, " users"]


def _minimise(
    kind: Unknowns, problem: Problem, theta: Array, steps: int, enough: float
) -> tuple[Array, NormalEquations]:
    """Levenberg-Marquardt for all clients of a batch at once, which shrinks as clients are done."""
    loop = _begun(theta)
    whole, members, number = loop, np.arange(theta.shape[0]), 0
    while True:
        number, loop = _stepped(kind, problem, loop, number, steps + 1, enough)
        whole = loop if members.size == whole.done.size else _put(whole, members, loop)
        open_ = np.flatnonzero(~np.asarray(loop.done))
        if open_.size == 0 or number > steps:
            return whole.theta, whole.at
        chosen = np.resize(open_, members.size // SHRINK)
        members, problem, loop = members[chosen], taken(problem, chosen), _left_over(loop, chosen)


def _begun(theta: Array) -> _Loop:
    """Before the first step, which evaluates the start."""
    users, size = theta.shape
    nothing = NormalEquations(
        jnp.full(users, jnp.inf), jnp.zeros((users, size)), jnp.zeros((users, size, size))
    )
    return _Loop(theta, nothing, theta, jnp.full(users, FIRST_DAMPING * DOWN), jnp.zeros(users, bool))


@partial(jax.jit, static_argnums=0)
def _stepped(
    kind: Unknowns, problem: Problem, loop: _Loop, number: Array, steps: Array, enough: Array
) -> tuple[Array, _Loop]:
    """Steps until few clients are left that are not done."""
    few = loop.done.size // SHRINK if loop.at.matrix.size > LARGE else 0

    def going_on(state: tuple[Array, _Loop]) -> Array:
        number, loop = state
        return (number < steps) & ((~loop.done).sum() > few)

    def once_more(state: tuple[Array, _Loop]) -> tuple[Array, _Loop]:
        number, loop = state
        new = kind.equations(problem, loop.trial)
        better = (new.cost < loop.at.cost) & ~loop.done
        keep = partial(_where, better)
        theta = keep(loop.trial, loop.theta)
        at = NormalEquations(*(keep(a, b) for a, b in zip(new, loop.at, strict=True)))
        damping = jnp.where(better, loop.damping / DOWN, loop.damping * UP)
        small = better & (loop.at.cost - new.cost <= CONVERGED * new.cost + enough)
        done = loop.done | small | (damping >= MOST_DAMPING) | (at.cost == 0)
        damping = jnp.clip(damping, LEAST_DAMPING, MOST_DAMPING)
        diagonal = jnp.diagonal(at.matrix, axis1=1, axis2=2)
        extra = damping[:, None] * diagonal + 1e-300
        # NaN where rounding left no positive matrix: no step then, and more damping
        root = jnp.linalg.cholesky(
            at.matrix + extra[:, :, None] * jnp.eye(diagonal.shape[1]), symmetrize_input=False
        )
        trial = theta - jax.scipy.linalg.cho_solve((root, True), at.gradient[:, :, None])[:, :, 0]
        return number + 1, _Loop(theta, at, trial, damping, done)

    return jax.lax.while_loop(going_on, once_more, (jnp.asarray(number), loop))


def _put(whole: _Loop, members: Int[np.ndarray, " few"], loop: _Loop) -> _Loop:
    """Some clients' places in those of all."""
    return jax.tree.map(lambda every, some: every.at[members].set(some), whole, loop)


def _left_over(loop: _Loop, chosen: Int[np.ndarray, " few"]) -> _Loop:
    return jax.tree.map(lambda values: values[chosen], loop)


def _where(better: Array, new: Array, old: Array) -> Array:
    return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)
