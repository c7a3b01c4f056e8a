"""Least squares on a client's whole trajectory: its start factor and its ratings explain all of its uploads.

With p^t the client's factor, s_j its (stretched) ratings and t_j the broadcast factors, a row of round t is
w_j (s_j - p^t . t_j) p^t, and p^{t+1} follows from p^t and s by the client's step (``attacks.steps``). So K +
n numbers explain T n K. Gauss-Newton with Levenberg-Marquardt damping, all clients of a batch at once; the
step's Jacobians come from JAX. Rows depend on s_j directly, and on all of s through the T factors p^t only:
with S = d(p^0..p^T)/d(p^0, s) the normal matrix is S' X S + S' C + C' S + a diagonal, and X and C are
products of matrices with n rows, so that nothing of size T n K times K or n is ever formed.

Noise that is the same in every round is removed together with the mean of each row over the rounds, which
is the least-squares estimate of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from attacks.steps import Step, advance

jax.config.update("jax_enable_x64", True)

FIRST_DAMPING = 1e-3
LEAST_DAMPING, MOST_DAMPING = 1e-15, 1e12
CONVERGED = 1e-14  # relative change of the cost


class Problem(NamedTuple):
    """Some clients, padded to n rows; T consecutive rounds.

    rows, factors, weight (users, T, n, K): what was uploaded, the broadcast factor, and one over the noise's
    standard deviation (0 on padding). row_weight (users, n): w_j. mean, precision (users, n): of the
    prior of s, Gaussian; precision 1 on padding. start_precision: of p^0, whose prior mean is 0.
    """

    rows: Float[Array, "users T n K"]
    factors: Float[Array, "users T n K"]
    weight: Float[Array, "users T n K"]
    row_weight: Float[Array, "users n"]
    mean: Float[Array, "users n"]
    precision: Float[Array, "users n"]
    start_precision: Float[Array, ""]
    step: Step


class Fit(NamedTuple):
    """factor (users, T, K); value, deviation (users, n) of s; cost (users,), half the weighted squares."""

    factor: Float[Array, "users T K"]
    value: Float[Array, "users n"]
    deviation: Float[Array, "users n"]
    cost: Float[Array, " users"]


class _Normal(NamedTuple):
    cost: Array
    gradient: Array
    matrix: Array


def fit(
    problem: Problem,
    start: Float[Array, "users K"],
    value: Float[Array, "users n"],
    *,
    repeated: bool,
    steps: int,
    enough: float = 0.0,
) -> Fit:
    """Fit every client from one start.

    Parameters
    ----------
    problem : Problem
    start, value
        First guesses of p^0 and s.
    repeated : bool
        The noise of a row is the same in all rounds.
    steps : int
        At most this many steps.
    enough : float
        A client is done when a step lowers its cost by no more than this.
    """
    theta = jnp.concatenate([start, value], axis=1)
    return _fit(problem, theta, repeated, steps, jnp.asarray(enough))


def fit_start(
    problem: Problem, start: Float[Array, "users K"], *, repeated: bool, steps: int, enough: float = 0.0
) -> tuple[Float[Array, "users K"], Float[Array, " users"]]:
    """The best p^0 and its cost, s being the prior's mean; parameters as in ``fit``."""
    return _fit_start(problem, start, repeated, steps, jnp.asarray(enough))


@partial(jax.jit, static_argnums=(2, 3))
def _fit(problem: Problem, theta: Array, repeated: bool, steps: int, enough: Array) -> Fit:
    theta, at = _minimise(partial(_normal, repeated), problem, theta, steps, enough)
    k = problem.rows.shape[3]
    variance = jnp.diagonal(jnp.linalg.inv(at.matrix), axis1=1, axis2=2)[:, k:]
    factor = jax.vmap(_factors, in_axes=(_AXES, 0))(problem, theta)
    return Fit(factor, theta[:, k:], jnp.sqrt(jnp.maximum(variance, 0)), at.cost)


@partial(jax.jit, static_argnums=(2, 3))
def _fit_start(
    problem: Problem, start: Array, repeated: bool, steps: int, enough: Array
) -> tuple[Array, Array]:
    theta, at = _minimise(partial(_start_normal, repeated), problem, start, steps, enough)
    return theta, at.cost


def _minimise(
    of_one: Callable[[Problem, Array], _Normal], problem: Problem, theta: Array, steps: int, enough: Array
) -> tuple[Array, _Normal]:
    """Levenberg-Marquardt for all clients of a batch at once."""
    normal = jax.vmap(of_one, in_axes=(_AXES, 0))

    class Loop(NamedTuple):
        number: Array
        theta: Array
        at: _Normal
        damping: Array
        done: Bool[Array, " users"]

    def going_on(loop: Loop) -> Array:
        return (loop.number < steps) & ~loop.done.all()

    def once_more(loop: Loop) -> Loop:
        diagonal = jnp.diagonal(loop.at.matrix, axis1=1, axis2=2)
        extra = loop.damping[:, None] * diagonal + 1e-300
        damped = loop.at.matrix + extra[:, :, None] * jnp.eye(diagonal.shape[1])
        trial = loop.theta - jnp.linalg.solve(damped, loop.at.gradient[:, :, None])[:, :, 0]
        new = normal(problem, trial)
        better = (new.cost < loop.at.cost) & ~loop.done
        keep = partial(_where, better)
        damping = jnp.where(better, loop.damping / 5, loop.damping * 6)
        small = better & (loop.at.cost - new.cost <= CONVERGED * loop.at.cost + enough)
        return Loop(
            loop.number + 1,
            keep(trial, loop.theta),
            _Normal(*(keep(a, b) for a, b in zip(new, loop.at, strict=True))),
            jnp.clip(damping, LEAST_DAMPING, MOST_DAMPING),
            loop.done | small | (damping >= MOST_DAMPING) | (new.cost == 0),
        )

    users = theta.shape[0]
    damping, done = jnp.full(users, FIRST_DAMPING), jnp.zeros(users, bool)
    last = jax.lax.while_loop(
        going_on, once_more, Loop(jnp.asarray(0), theta, normal(problem, theta), damping, done)
    )
    return last.theta, last.at


_AXES: Any = Problem(0, 0, 0, 0, 0, 0, None, Step(0, None, None, None))  # type: ignore[arg-type]


def _where(better: Array, new: Array, old: Array) -> Array:
    return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def _path(one: Problem, theta: Array) -> tuple[Array, Array]:
    """p^t (T, K), and its derivatives by theta, (T, K, K + n)."""
    k = one.rows.shape[2]
    start, value = theta[:k], theta[k:]
    sensitivity = jnp.concatenate([jnp.eye(k), jnp.zeros((k, value.size))], axis=1)

    def go(carry: tuple[Array, Array], round_: tuple[Array, Array, Array]) -> tuple[Any, Any]:
        p, s = carry
        factors, shrink, pull = round_

        def move(p: Array, value: Array) -> Array:
            return advance(one.step, p, value, one.row_weight, factors, shrink, pull)

        by_p, by_value = jax.jacfwd(move)(p, value), jax.jacrev(move, argnums=1)(p, value)
        onward = (by_p @ s).at[:, k:].add(by_value)
        return (move(p, value), onward), (p, s)

    used = one.factors
    after = jnp.concatenate([used[1:], used[-1:]])
    seen = jnp.where(one.step.after, after, used)
    _, (path, derivatives) = jax.lax.scan(go, (start, sensitivity), (seen, one.step.shrink, one.step.pull))
    return path, derivatives


def _factors(one: Problem, theta: Array) -> Array:
    return _path(one, theta)[0]


def _normal(repeated: bool, one: Problem, theta: Array) -> _Normal:
    """Cost, gradient and normal matrix of one client.

    d row / d p = w (e I - p t') with e = s - p . t, and d row / d s = w p, so that all sums over rows are
    products of matrices with n rows.
    """
    rounds, _, k = one.rows.shape
    value = theta[k:]
    path, derivatives = _path(one, theta)
    factors = one.factors
    error = value - jnp.einsum("tk,tnk->tn", path, factors)
    left = one.weight * (one.rows - one.row_weight[:, None] * error[:, :, None] * path[:, None, :])
    square = (one.weight * one.row_weight[:, None]) ** 2
    along = jnp.einsum("tnk,tk->tn", square, path**2)
    mixed = jnp.einsum("tnl,tnm->tlm", error[..., None] * square * path[:, None], factors)
    inner = jnp.einsum("tnl,tnm->tlm", along[..., None] * factors, factors) - mixed - mixed.swapaxes(1, 2)
    inner = inner + jnp.einsum("tn,tnl->tl", error**2, square)[:, :, None] * jnp.eye(k)
    cross = error[..., None] * square * path[:, None] - factors * along[..., None]
    own = along.sum(axis=0)
    if repeated:
        left = left - left.mean(axis=0) * (one.weight[0] > 0)
        whole, same = path.sum(axis=0), square[0, :, 0]
        own = own - same * (whole @ whole) / rounds
        shared = error[..., None] * whole - factors * (path @ whole)[:, None, None]
        cross = cross - same[:, None] * shared / rounds
        blocks = _between_rounds(path, error, factors, same) / -rounds
        at = jnp.arange(rounds)
        blocks = blocks.at[at, :, at, :].add(inner)
        flat = derivatives.reshape(rounds * k, -1)
        matrix = flat.T @ (blocks.reshape(rounds * k, -1) @ flat)
    else:
        matrix = jnp.einsum("tlp,tlq->pq", derivatives, jnp.einsum("tlm,tmq->tlq", inner, derivatives))
    half = jnp.einsum("tlp,tnl->pn", derivatives, cross)
    matrix = matrix.at[:, k:].add(half).at[k:, :].add(half.T)
    prior = jnp.concatenate([jnp.full(k, one.start_precision), one.precision])
    away = theta - jnp.concatenate([jnp.zeros(k), one.mean])
    matrix = matrix + jnp.diag(prior + jnp.concatenate([jnp.zeros(k), own]))
    scaled = one.row_weight[:, None] * one.weight * left
    onto = jnp.einsum("tnk,tk->tn", scaled, path)
    pull = jnp.einsum("tnk,tn->tk", scaled, error) - jnp.einsum("tnk,tn->tk", factors, onto)
    gradient = -jnp.einsum("tlp,tl->p", derivatives, pull)
    gradient = gradient.at[k:].add(-onto.sum(axis=0)) + prior * away
    cost = 0.5 * (jnp.sum(left**2) + jnp.sum(prior * away**2))
    return _Normal(cost, gradient, matrix)


def _start_normal(repeated: bool, one: Problem, start: Array) -> _Normal:
    """The same for p^0 alone."""

    def left(p: Array) -> Array:
        used = one.factors
        seen = jnp.where(one.step.after, jnp.concatenate([used[1:], used[-1:]]), used)

        def go(p: Array, round_: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            return advance(one.step, p, one.mean, one.row_weight, *round_), p

        _, path = jax.lax.scan(go, p, (seen, one.step.shrink, one.step.pull))
        error = one.mean - jnp.einsum("tk,tnk->tn", path, used)
        out = one.weight * (one.rows - one.row_weight[:, None] * error[:, :, None] * path[:, None, :])
        return (out - out.mean(axis=0) * (one.weight[0] > 0) if repeated else out).ravel()

    residual, slope = left(start), jax.jacfwd(left)(start)
    prior = one.start_precision
    return _Normal(
        0.5 * (residual @ residual + prior * start @ start),
        slope.T @ residual + prior * start,
        slope.T @ slope + prior * jnp.eye(start.size),
    )


def _between_rounds(
    path: Float[Array, "T K"],
    error: Float[Array, "T n"],
    factors: Float[Array, "T n K"],
    square: Float[Array, " n"],
) -> Float[Array, "T K T K"]:
    """Sums over rows of (d row / d p^t)' (d row / d p^t')."""
    k = path.shape[1]
    weighted = error * square
    both = weighted @ error.T
    one_sided = jnp.einsum("tn,snm->tsm", weighted, factors)
    outer = jnp.einsum("tnl,snm->tlsm", square[:, None] * factors, factors)
    out = both[:, None, :, None] * jnp.eye(k)[None, :, None, :] + (path @ path.T)[:, None, :, None] * outer
    out = out - jnp.einsum("sl,tsm->tlsm", path, one_sided)
    return out - jnp.einsum("stl,tm->tlsm", one_sided, path)
