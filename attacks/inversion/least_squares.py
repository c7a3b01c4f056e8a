"""Levenberg-Marquardt for many small problems at once, with geodesic acceleration.

Ratings, start and rate of a client that takes a few short steps are nearly interchangeable: the sum of
squares has a long, bent valley. Plain steps follow it in short hops; the second derivative along the step,
which costs one more forward pass, bends the step with the valley.

References
----------
D. W. Marquardt 1963, doi:10.1137/0111030; M. K. Transtrum, J. P. Sethna, "Improvements to the
Levenberg-Marquardt algorithm for nonlinear least-squares minimization", arXiv:1201.5885.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from attacks.client_rules.differentiable import ClientRule, Family

jax.config.update("jax_enable_x64", True)

FIRST_DAMPING, MOST_DAMPING = 1e-3, 1e12
DOWN, UP = 5.0, 3.0
BENT = 0.375  # of the step, above which its bend is not trusted
CONVERGED = 1e-7  # relative change of the sum of squares
EXACT = 1e-30  # of the rows' mean square
AT_ONCE, FEW = 64, 16  # fits of one call, and of one where there are no more


class Problem(NamedTuple):
    """What some clients sent in one round; 0 on padding."""

    rows: Float[np.ndarray, "clients n K"]
    factors: Float[np.ndarray, "clients n K"]


class Unknowns(NamedTuple):
    """What is fitted, or held."""

    factor: Float[np.ndarray, "clients K"]
    ratings: Float[np.ndarray, "clients n"]  # in stars
    constants: Float[np.ndarray, "clients c"]


class Fit(NamedTuple):
    """Where a fit ended."""

    at: Unknowns
    left: Float[np.ndarray, " clients"]  # what is left of the rows, relative to their size


class Guess(NamedTuple):
    """A member of a family; constants (c,) where the shared ones are known; a neighbour's fits as a start."""

    family: Family
    value: float
    constants: np.ndarray | None = None
    nearby: Unknowns | None = None

    @property
    def free(self) -> Bool[np.ndarray, " c"]:
        """Which constants are fitted."""
        return np.array(self.family.free) & (self.constants is None)

    def constants_of(self, sigma: float, stiffness: float) -> tuple[float, ...]:
        """Where a fit starts."""
        if self.constants is not None:
            return tuple(self.constants.tolist())
        return self.family.start(self.value, sigma, stiffness)


class _State(NamedTuple):
    number: Array
    theta: Array
    cost: Array
    damping: Array
    diagonal: Array
    done: Array


def fit(rule: ClientRule, problem: Problem, start: Unknowns, free: Unknowns, steps: int) -> Fit:
    """Fit a rule to the rows of some clients, each from its start."""
    held = not np.any(free.ratings)  # a program of its own, which does not grow with the ratings
    at, left = _fit(rule, held, problem, start, free, steps)
    return Fit(Unknowns(*(np.asarray(part) for part in at)), np.asarray(left))


@partial(jax.jit, static_argnums=(0, 1))
def _fit(
    rule: ClientRule, held: bool, problem: Problem, start: Unknowns, free: Unknowns, steps: Any
) -> tuple[Unknowns, Float[Array, " clients"]]:
    return jax.vmap(partial(_one, rule, held, steps))(problem, start, free)


def _one(
    rule: ClientRule, held: bool, steps: Any, problem: Problem, start: Unknowns, free: Unknowns
) -> tuple[Unknowns, Array]:
    """One client."""
    kept = {"ratings": start.ratings} if held else {}
    flat, unravel_some = ravel_pytree({k: v for k, v in start._asdict().items() if k not in kept})
    chosen = {k: v for k, v in free._asdict().items() if k not in kept}
    open_: Bool[Array, " unknowns"] = ravel_pytree(chosen)[0].astype(bool)

    def unravel(theta: Array) -> Any:
        return Unknowns(**unravel_some(theta), **kept)

    size = jnp.sqrt(jnp.mean(problem.rows**2))
    size = jnp.where(size > 0, size, 1.0)

    def residual(theta: Array) -> Array:
        at = unravel(theta)
        rows, _ = rule.upload(at.factor, at.ratings, jnp.asarray(problem.factors), at.constants)
        return ((rows - problem.rows) / size).ravel()

    def once_more(state: _State) -> _State:
        left, jacobian = residual(state.theta), jax.jacfwd(residual)(state.theta) * open_
        matrix = jacobian.T @ jacobian
        diagonal = jnp.maximum(state.diagonal, jnp.diagonal(matrix))
        extra = state.damping * diagonal + jnp.where(open_, 1e-300, 1.0)
        # NaN where rounding left no positive matrix: no step then, and more damping
        root = jnp.linalg.cholesky(matrix + jnp.diag(extra), symmetrize_input=False)

        def solve(right: Array) -> Array:
            return jax.scipy.linalg.cho_solve((root, True), right) * open_

        step = -solve(jacobian.T @ left)
        _, bend = jax.jvp(lambda at: jax.jvp(residual, (at,), (step,))[1], (state.theta,), (step,))
        second = -0.5 * solve(jacobian.T @ bend)
        trusted = jnp.sum(second**2 * diagonal) < BENT**2 * jnp.sum(step**2 * diagonal)
        theta = state.theta + step + jnp.where(trusted, second, 0.0)
        cost = jnp.sum(residual(theta) ** 2)
        better = cost < state.cost
        damping = jnp.where(better, state.damping / DOWN, state.damping * UP)
        small = better & (state.cost - cost <= CONVERGED * cost)
        kept = jnp.where(better, cost, state.cost)
        done = small | (damping > MOST_DAMPING) | (kept < EXACT * left.size)
        return _State(state.number + 1, jnp.where(better, theta, state.theta), kept, damping, diagonal, done)

    first = residual(flat)
    cost = jnp.sum(first**2)
    state = _State(
        jnp.asarray(0),
        flat,
        cost,
        jnp.asarray(FIRST_DAMPING),
        jnp.full(flat.shape, 1e-12),
        ~jnp.isfinite(cost),
    )
    state = jax.lax.while_loop(lambda now: (now.number < steps) & ~now.done, once_more, state)
    return unravel(state.theta), jnp.sqrt(state.cost / first.size)


def fitted(
    rule: ClientRule,
    problem: Problem,
    start: Unknowns,
    sign: np.ndarray,
    there: np.ndarray,
    free_constants: np.ndarray,
    steps: int,
    *,
    ratings: bool = True,
    at_once: int | None = None,
) -> Fit:
    """Fit all starts, so many at a time; the answer is NaN where there is none."""
    client, trial = np.nonzero(there)
    at_once = at_once or (FEW if client.size <= FEW else AT_ONCE)
    out = Unknowns(*(np.array(part) for part in start))
    left = np.full(there.shape, np.nan)
    for begin in range(0, client.size, at_once):
        some = np.arange(begin, min(begin + at_once, client.size))
        full = np.resize(some, at_once)  # few shapes, few compiled programs
        c, t = client[full], trial[full]
        own = Problem(problem.rows[c] * sign[c, t][:, None, None], problem.factors[c])
        at = Unknowns(*(part[c, t] for part in start))
        free = Unknowns(
            np.ones(at.factor.shape),
            np.full(at.ratings.shape, float(ratings)),
            np.broadcast_to(free_constants.astype(float), at.constants.shape),
        )
        found = fit(rule, own, at, free, steps)
        for whole, part in zip(out, found.at, strict=True):
            whole[client[some], trial[some]] = part[: some.size]
        left[client[some], trial[some]] = found.left[: some.size]
    return Fit(out, left)


def least(fits: Fit, most: int) -> Int[np.ndarray, "clients some"]:
    """Choose the starts of each client that leave least."""
    left = np.where(np.isnan(fits.left), np.inf, fits.left)
    return np.argsort(left, axis=1, kind="stable")[:, :most]


def chosen(at: Unknowns, number: np.ndarray) -> Unknowns:
    """Take some fits of each client."""
    return Unknowns(*(np.take_along_axis(part, number[..., None], axis=1) for part in at))
