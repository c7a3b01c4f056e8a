"""The normal equations of a client's whole trajectory, and how its factor moves through the rounds.

With p^t the client's factor, s_j its (stretched) ratings and t_j the broadcast factors, a row of round t is
w_j (s_j - p^t . t_j) p^t, and p^{t+1} follows from p^t and s by the client's step
(``attacks.client_rules.client_update``), whose Jacobians come from JAX. Rows depend on s_j directly, and on
all of s through the T factors p^t only: with S = d(p^0..p^T)/d(p^0, s) the normal matrix is
S' X S + S' C + C' S + a diagonal, and X and C are products of matrices with n rows, so that nothing of size
T n K times K or n is ever formed.

Where the step is known up to chance alone (a client goes through its ratings in an order that nobody sees),
what chance adds to each p^{t+1} is fitted, too: T - 1 vectors with a Gaussian prior of a given deviation.

Noise that is the same in every round is removed together with the mean of each row over the rounds, which
is the least-squares estimate of it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attacks.client_rules.client_update import Step, gram_of, move, target_of

jax.config.update("jax_enable_x64", True)

PER_CLIENT = ("rows", "factors", "weight", "row_weight", "mean", "precision", "broadcast", "step_deviation")


class Problem(NamedTuple):
    """Some clients, padded to n rows; T consecutive rounds."""

    rows: Float[Array, "users T n K"]  # what was uploaded, and the broadcast factors
    factors: Float[Array, "users T n K"]  # what was uploaded, and the broadcast factors
    weight: Float[Array, "users T n K"]  # one over the noise's standard deviation, 0 on padding
    row_weight: Float[Array, "users n"]  # w_j
    mean: Float[Array, "users n"]  # of the prior of s, Gaussian; precision 1 on padding
    precision: Float[Array, "users n"]  # of the prior of s, Gaussian; precision 1 on padding
    start_precision: Float[Array, ""]  # of p^0, whose prior mean is 0
    step: Step
    # what clients step with, where that is not what rows were computed at
    broadcast: Float[Array, "users T n K"] | None = None
    # of what chance adds to p^1 .. p^T; None where the step is exact
    step_deviation: Float[Array, "users rounds"] | None = None


class NormalEquations(NamedTuple):
    """Half the weighted squares, their gradient and the Gauss-Newton matrix, by p^0 and then s."""

    cost: Array
    gradient: Array
    matrix: Array


class Unknowns(NamedTuple):
    """What is fitted: the start alone or s as well, and whether the noise repeats."""

    start_only: bool
    repeated: bool

    def equations(self, problem: Problem, theta: Array) -> NormalEquations:
        """Normal equations of all clients of a batch."""
        return jax.vmap(partial(normal_equations, self), in_axes=(axes_of(problem), 0))(problem, theta)


def taken(problem: Problem, chosen: Int[np.ndarray, " few"]) -> Problem:
    """Take some clients of a batch."""
    step = problem.step._replace(shrink=problem.step.shrink[chosen])
    own = {name: getattr(problem, name) for name in PER_CLIENT}
    some = {name: values[chosen] for name, values in own.items() if values is not None}
    return problem._replace(**some, step=step)


def axes_of(problem: Problem) -> Any:
    """Tell ``jax.vmap`` which parts of a problem are one for each client."""
    own: Any = {name: None if getattr(problem, name) is None else 0 for name in PER_CLIENT}
    return problem._replace(**own, start_precision=None, step=Step(0, None, None, None, None))  # type: ignore[arg-type]


def factor_path(one: Problem, start: Array, value: Array, by_value: bool) -> tuple[Array, Array]:
    """Follow one client's factor through the rounds."""
    rounds, _, k = one.factors.shape
    size = start.size
    added = jnp.zeros((rounds, k)) if size == k else jnp.roll(start.reshape(rounds, k), -1, axis=0)
    sensitivity = jnp.concatenate([jnp.eye(k), jnp.zeros((k, size - k + value.size * by_value))], axis=1)

    def go(carry: tuple[Array, Array], round_: tuple[Array, ...]) -> tuple[Any, Any]:
        p, s = carry
        number, weighted, gram, target, shrink, pull, extra = round_

        def moved(p: Array, target: Array) -> Array:
            return move(one.step, p, gram, target, shrink, pull)

        by_factor, by_target = jax.jacfwd(moved, argnums=(0, 1))(p, target)
        onward = by_factor @ s
        if by_value:
            onward = onward.at[:, size:].add(by_target @ weighted.T)
        if size > k:  # the last round's number is past the end, and nothing is added there
            onward = jax.lax.dynamic_update_slice(onward, jnp.eye(k), (0, (number + 1) * k))
        return (moved(p, target) + extra, onward), (p, s)

    weighted, gram, target = _sums(one, value)
    parts = (jnp.arange(rounds), weighted, gram, target, one.step.shrink, one.step.pull, added)
    _, (path, derivatives) = jax.lax.scan(go, (start[:k], sensitivity), parts)
    return path, derivatives


def _sums(one: Problem, value: Array) -> tuple[Array, Array, Array]:
    """What one client steps with in each round: w_j t_j, and the sums of ``gram_of`` and ``target_of``."""
    used = one.factors if one.broadcast is None else one.broadcast
    after = jnp.concatenate([used[1:], used[-1:]])
    seen = jnp.where(one.step.after, after, used)
    weighted = one.row_weight[:, None] * seen
    return weighted, gram_of(weighted, seen), target_of(weighted, value)


def cost_of(one: Problem, start: Array, value: Array) -> Array:
    """Half the weighted squares that a start and s leave of one client's rows without repeated noise."""

    def go(p: Array, round_: tuple[Array, ...]) -> tuple[Array, Array]:
        return move(one.step, p, *round_), p

    _, gram, target = _sums(one, value)
    _, path = jax.lax.scan(go, start, (gram, target, one.step.shrink, one.step.pull))
    return 0.5 * jnp.sum(unexplained(one, path, value)[1] ** 2)


def unexplained(one: Problem, path: Float[Array, "T K"], value: Float[Array, " n"]) -> tuple[Array, Array]:
    """One client's s - p . t by round (T, n), and what that leaves of its rows (T, n, K), weighted."""
    error = value - jnp.einsum("tk,tnk->tn", path, one.factors)
    return error, one.weight * (one.rows - one.row_weight[:, None] * error[:, :, None] * path[:, None, :])


def normal_equations(kind: Unknowns, one: Problem, theta: Array) -> NormalEquations:
    """Form the normal equations of one client.

    Notes
    -----
    d row / d p = w (e I - p t') with e = s - p . t, and d row / d s = w p, so that all sums over rows are
    products of matrices with n rows.
    """
    rounds, n, k = one.rows.shape
    size = theta.size - n * (not kind.start_only)
    value = one.mean if kind.start_only else theta[size:]
    path, derivatives = factor_path(one, theta[:size], value, not kind.start_only)
    factors = one.factors
    error, left = unexplained(one, path, value)
    square = (one.weight * one.row_weight[:, None]) ** 2
    along = jnp.einsum("tnk,tk->tn", square, path**2)
    mixed = jnp.einsum("tnl,tnm->tlm", error[..., None] * square * path[:, None], factors)
    inner = jnp.einsum("tnl,tnm->tlm", along[..., None] * factors, factors) - mixed - mixed.swapaxes(1, 2)
    inner = inner + jnp.einsum("tn,tnl->tl", error**2, square)[:, :, None] * jnp.eye(k)
    cross = error[..., None] * square * path[:, None] - factors * along[..., None]
    own = along.sum(axis=0)
    if kind.repeated:
        left = left - left.mean(axis=0) * (one.weight[0] > 0)
        whole, same = path.sum(axis=0), square[0, :, 0]
        own = own - same * (whole @ whole) / rounds
        shared = error[..., None] * whole - factors * (path @ whole)[:, None, None]
        cross = cross - same[:, None] * shared / rounds
        blocks = _between_rounds(path, error, factors, same) / -rounds
        at = jnp.arange(rounds)
        blocks = blocks.at[at, :, at, :].add(inner)
        within = blocks.reshape(rounds * k, -1)
        onto = (within @ derivatives.reshape(rounds * k, -1)).reshape(derivatives.shape)
    else:
        onto = jnp.einsum("tlm,tmq->tlq", inner, derivatives)
    flat = derivatives.reshape(rounds * k, -1)
    onto = 0.5 * onto
    if not kind.start_only:
        onto = onto.at[:, :, size:].add(cross.swapaxes(1, 2))
    # S' X S + S' C + C' S is a matrix and its transpose: one large product instead of two
    half = flat.T @ onto.reshape(rounds * k, -1)
    scaled = one.row_weight[:, None] * one.weight * left
    along_row = jnp.einsum("tnk,tk->tn", scaled, path)
    pull = jnp.einsum("tnk,tn->tk", scaled, error) - jnp.einsum("tnk,tn->tk", factors, along_row)
    prior, middle = jnp.full(k, one.start_precision), jnp.zeros(size)
    if one.step_deviation is not None:
        prior = jnp.concatenate([prior, jnp.repeat(one.step_deviation**-2, k)])
    direct, downhill = prior, flat.T @ pull.ravel()
    if not kind.start_only:
        prior, middle = jnp.concatenate([prior, one.precision]), jnp.concatenate([middle, one.mean])
        direct = prior.at[size:].add(own)
        downhill = downhill.at[size:].add(along_row.sum(axis=0))
    away = theta - middle
    return NormalEquations(
        0.5 * (jnp.sum(left**2) + jnp.sum(prior * away**2)),
        prior * away - downhill,
        half + half.T + jnp.diag(direct),
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
