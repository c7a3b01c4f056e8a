"""Least squares on a client's whole trajectory: its start factor and its ratings explain all of its uploads.

With p^t the client's factor, s_j its (stretched) ratings and t_j the broadcast factors, a row of round t is
w_j (s_j - p^t . t_j) p^t, and p^{t+1} follows from p^t and s by the client's step
(``attacks.client_rules.client_update``). So K + n numbers explain T n K. Gauss-Newton with
Levenberg-Marquardt damping, all clients of a batch at once; the step's Jacobians come from JAX. Rows depend
on s_j directly, and on all of s through the T factors p^t only: with S = d(p^0..p^T)/d(p^0, s) the normal
matrix is S' X S + S' C + C' S + a diagonal, and X and C are products of matrices with n rows, so that nothing
of size T n K times K or n is ever formed.

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
from jaxtyping import Array, Bool, Float, Int

from attacks.client_rules.client_update import Step, gram_of, move, target_of

jax.config.update("jax_enable_x64", True)

FIRST_DAMPING = 1e-3
DOWN, UP = 5.0, 6.0  # what damping is divided by after a step, and multiplied by instead of one
LEAST_DAMPING, MOST_DAMPING = 1e-15, 1e12
CONVERGED = 1e-14  # relative change of the cost
SHRINK = 8  # a batch goes on as a smaller one when one in so many clients is left,
LARGE = 1 << 18  # if its matrices hold more numbers than this: a new shape is compiled in seconds
PER_CLIENT = ("rows", "factors", "weight", "row_weight", "mean", "precision", "broadcast", "step_deviation")


class Problem(NamedTuple):
    """Some clients, padded to n rows; T consecutive rounds.

    rows, factors, weight (users, T, n, K): what was uploaded, the broadcast factor, and one over the noise's
    standard deviation (0 on padding). row_weight (users, n): w_j. mean, precision (users, n): of the
    prior of s, Gaussian; precision 1 on padding. start_precision: of p^0, whose prior mean is 0. broadcast
    (users, T, n, K): what clients step with, where that is not what rows were computed at. step_deviation
    (users, T - 1): of what chance adds to p^1 .. p^T; None where the step is exact.
    """

    rows: Float[Array, "users T n K"]
    factors: Float[Array, "users T n K"]
    weight: Float[Array, "users T n K"]
    row_weight: Float[Array, "users n"]
    mean: Float[Array, "users n"]
    precision: Float[Array, "users n"]
    start_precision: Float[Array, ""]
    step: Step
    broadcast: Float[Array, "users T n K"] | None = None
    step_deviation: Float[Array, "users rounds"] | None = None


class Fit(NamedTuple):
    """start (users, K or T K): p^0, and what chance added to the later ones; factor (users, T, K); value,
    deviation (users, n) of s; cost (users,), half the weighted squares."""

    start: Float[Array, "users numbers"]
    factor: Float[Array, "users T K"]
    value: Float[Array, "users n"]
    deviation: Float[Array, "users n"]
    cost: Float[Array, " users"]


class NormalEquations(NamedTuple):
    """Half the weighted squares, their gradient and the Gauss-Newton matrix, by p^0 and then s."""

    cost: Array
    gradient: Array
    matrix: Array


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

    Parameters
    ----------
    problem : Problem
    start, value
        First guesses, as in ``Fit``.
    repeated : bool
        The noise of a row is the same in all rounds.
    steps : int
        At most this many steps.
    enough : float
        A client is done when a step lowers its cost by no more than this.

    Returns
    -------
    Fit

    References
    ----------
    D. W. Marquardt 1963, doi:10.1137/0111030.
    """
    theta = jnp.concatenate([start, value], axis=1)
    theta, at = _minimise(Unknowns(False, repeated), problem, theta, steps, enough)
    return _described(problem, theta, at)


def fit_start(
    problem: Problem, start: Float[Array, "users numbers"], *, repeated: bool, steps: int, enough: float = 0.0
) -> tuple[Float[Array, "users numbers"], Float[Array, " users"]]:
    """Fit the start alone, s being the prior's mean.

    Parameters
    ----------
    problem : Problem
    start : (users, K or T K)
        First guesses, as in ``Fit``.
    repeated : bool
        The noise of a row is the same in all rounds.
    steps : int
        At most this many steps.
    enough : float
        A client is done when a step lowers its cost by no more than this.

    Returns
    -------
    start : (users, K or T K)
    cost : (users,)
        Half the weighted squares.

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
    factor, _ = jax.vmap(path, in_axes=(_axes(problem), 0, 0))(problem, start, value)
    return Fit(start, factor, value, jnp.sqrt(jnp.maximum(variance, 0)), at.cost)


class Unknowns(NamedTuple):
    """What is fitted: the start alone or s as well, and whether the noise repeats."""

    start_only: bool
    repeated: bool

    def equations(self, problem: Problem, theta: Array) -> NormalEquations:
        """Normal equations of all clients of a batch."""
        return jax.vmap(partial(normal_equations, self), in_axes=(_axes(problem), 0))(problem, theta)


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
        members, problem, loop = members[chosen], _taken(problem, chosen), _left_over(loop, chosen)


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
    return jax.tree.map(lambda part: part[chosen], loop)


def _taken(problem: Problem, chosen: Int[np.ndarray, " few"]) -> Problem:
    """Some clients of a batch."""
    step = problem.step._replace(shrink=problem.step.shrink[chosen])
    own = {name: getattr(problem, name) for name in PER_CLIENT}
    some = {name: part[chosen] for name, part in own.items() if part is not None}
    return problem._replace(**some, step=step)


def _axes(problem: Problem) -> Any:
    """Which parts of a problem are one for each client."""
    own: Any = {name: None if getattr(problem, name) is None else 0 for name in PER_CLIENT}
    return problem._replace(**own, start_precision=None, step=Step(0, None, None, None, None))  # type: ignore[arg-type]


def _where(better: Array, new: Array, old: Array) -> Array:
    return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def factor_path(one: Problem, start: Array, value: Array, by_value: bool) -> tuple[Array, Array]:
    """Follow one client's factor through the rounds.

    Parameters
    ----------
    one : Problem
        Of one client, without the axis of users.
    start : (K,) or (T K,)
        As in ``Fit``.
    value : (n,)
    by_value : bool
        Whether derivatives by s are wanted beside those by the start.

    Returns
    -------
    path : (T, K)
    derivatives : (T, K, size of start) or (T, K, size of start + n)
    """
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

    used = one.factors if one.broadcast is None else one.broadcast
    after = jnp.concatenate([used[1:], used[-1:]])
    seen = jnp.where(one.step.after, after, used)
    weighted = one.row_weight[:, None] * seen
    sums = gram_of(weighted, seen), target_of(weighted, value)
    parts = (jnp.arange(rounds), weighted, *sums, one.step.shrink, one.step.pull, added)
    _, (path, derivatives) = jax.lax.scan(go, (start[:k], sensitivity), parts)
    return path, derivatives


def normal_equations(kind: Unknowns, one: Problem, theta: Array) -> NormalEquations:
    """Form the normal equations of one client.

    Parameters
    ----------
    kind : Unknowns
    one : Problem
        Of one client, without the axis of users.
    theta : (size of start,) or (size of start + n,)
        The start as in ``Fit``, and s unless the start alone is fitted.

    Returns
    -------
    NormalEquations

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
    error = value - jnp.einsum("tk,tnk->tn", path, factors)
    left = one.weight * (one.rows - one.row_weight[:, None] * error[:, :, None] * path[:, None, :])
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
