"""Posteriors of clients whose factor is free: Markov chains over the factor and the client's own effects.

The length of a free factor, and by it how high a client's ratings are, are often not determined by the
uploads: what they leave open is integrated, not picked. Each Metropolis move is, client by client, one of
three: a random step of all unknowns; a longer factor and lower ratings, or the other way round; a whole
rating level with the factor that goes with it. Chains start from draws of the normal law around the mode.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attacks.likelihood.batches import Rows
from attacks.likelihood.gradient import fisher_information, score_of
from attacks.likelihood.model import SPAN, Answers, AnyArray, Constants, Model, Point, Prior, log_prior
from attacks.likelihood.observation import decode
from attacks.likelihood.starts import shift_of_one
from attacks.likelihood.summaries import DRAWN_COMPLETE, covariance_of
from attacks.likelihood.update_rule import fixed_sums, link

CHAINS = 4
STRETCH = 0.3  # standard deviation of a move of the log length
STEP = 2.4  # of a random step, over the root of the number of unknowns (Roberts et al. 1997); from a tenth of
SMALL, LARGE = -1.0, 0.3  # it to twice of it, as powers of ten
WALK, LENGTHEN = 0.5, 0.35  # shares of the moves; the others go by a level


class _State(NamedTuple):
    """Where a chain stands: its unknowns, what follows from them, and the log density of the posterior."""

    lam: Float[Array, "users L"]
    effect: Float[Array, "users effects"]
    p: Float[Array, "users rounds K"]
    answers: Answers
    log: Float[Array, " users"]


@partial(jax.jit, static_argnums=0)
def integrate(
    model: Model,
    attribute_factors: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
    point: Point,
    user_variance: Float[AnyArray, " effects"],
    moves: Int[AnyArray, ""],
    key: Array,
) -> tuple[Answers, Float[Array, "users rounds K"]]:
    """Posterior of the answers and mean factor, over the second half of each chain's moves."""
    variance, fixed = jnp.asarray(user_variance), fixed_sums(model, attribute_factors, rows)
    known = model, attribute_factors, rows, constants
    answers = decode(*known, prior, log_prior(model, prior, rows), point).answers
    linked = link(*known, prior, point.p, answers, fixed)
    score = score_of(*known, point.p, answers, linked, fixed)
    shape = covariance_of(linked.precision + fisher_information(score, DRAWN_COMPLETE))[1]
    n_users, size = point.lam.shape
    one_star = shift_of_one(rows)[:, np.flatnonzero(model.starts)].reshape(n_users, size)
    unit, middle, tilt = _grid(model, prior)
    wide = STEP / np.sqrt(size + variance.size)

    def at(lam: Array, effect: Array) -> _State:
        varied = prior._replace(user=effect)
        assumed = log_prior(model, varied, rows)
        p = linked.mean + jnp.einsum("utkl,ul->utk", linked.basis, lam)
        fit = decode(*known, varied, assumed, Point(p, lam))
        if len(model.runs) > model.n_runs:  # the steps between rounds follow from the ratings
            then = link(*known, varied, p, fit.answers, fixed)
            p = then.mean + jnp.einsum("utkl,ul->utk", then.basis, lam)
            fit = decode(*known, varied, assumed, Point(p, lam))
        away = lam - prior.start_mean
        log = fit.log_likelihood - 0.5 * jnp.einsum("ul,ulm,um->u", away, linked.precision, away)
        log -= 0.5 * jnp.sum(effect**2 / variance, axis=1)
        return _State(lam, effect, p, fit.answers, jnp.where(jnp.isfinite(log), log, -jnp.inf))

    def move(number: Array, state: _State, key: Array) -> _State:
        """The first two are to the mode and to a draw around it, unless that is far off."""
        noise = jax.random.normal(jax.random.fold_in(key, 1), (n_users, size + variance.size))
        walk, stretch, level, chance = _kinds(number, key, n_users)
        walk, shift = wide * walk, unit * level
        lam = state.lam * jnp.exp(stretch) + shift * one_star
        lam += walk * jnp.einsum("ulm,um->ul", shape, noise[:, :size])
        effect = state.effect + tilt * (shift - middle * stretch)
        effect += walk * noise[:, size:] * jnp.sqrt(variance)
        new = at(lam, effect)
        odds = new.log - state.log + size * stretch[:, 0]
        take = jnp.log(chance) < jnp.where(number > 1, odds, odds + size + variance.size)

        def accepted(after: AnyArray, before: AnyArray, axis: int = 0) -> Array:
            others = [n for n in range(after.ndim) if n != axis]
            return jnp.where(jnp.expand_dims(take, others), after, before)

        items = accepted(new.answers.items, state.answers.items, 1)
        attributes = accepted(new.answers.attributes, state.answers.attributes)
        lam, effect = accepted(new.lam, state.lam), accepted(new.effect, state.effect)
        p, log = accepted(new.p, state.p), accepted(new.log, state.log)
        return _State(lam, effect, p, Answers(items, attributes), log)

    nowhere = _State(
        jnp.asarray(point.lam),
        jnp.asarray(prior.user),
        jnp.asarray(point.p),
        answers,
        jnp.full(n_users, -jnp.inf),
    )
    nothing = jax.tree.map(jnp.zeros_like, (answers, point.p))

    def further(
        number: Array, now: tuple[_State, tuple[Answers, Array]]
    ) -> tuple[_State, tuple[Answers, Array]]:
        state, total = now
        place = number % moves
        before: _State = jax.tree.map(partial(jnp.where, place > 0), state, nowhere)
        state = move(place, before, jax.random.fold_in(key, number))
        share = jnp.where(place >= moves // 2, 1.0 / (CHAINS * (moves - moves // 2)), 0.0)
        add = lambda old, new: (old + share * new).astype(old.dtype)  # noqa: E731
        return state, jax.tree.map(add, total, (state.answers, state.p))

    return jax.lax.fori_loop(0, CHAINS * moves, further, (nowhere, nothing))[1]


def _kinds(
    number: Array, key: Array, n_users: int
) -> tuple[Float[Array, "users 1"], Float[Array, "users 1"], Float[Array, "users 1"], Float[Array, " users"]]:
    """Of each client's move: the size of a random step, change of the log length, levels, and a chance."""
    kind, power, side, chance = jax.random.uniform(key, (4, n_users, 1))
    lengthen = (kind >= WALK) & (kind < WALK + LENGTHEN)
    walk = jnp.where(kind < WALK, 10 ** (SMALL + (LARGE - SMALL) * power), 0.0)
    stretch = STRETCH * jax.random.normal(jax.random.fold_in(key, 2), (n_users, 1)) * lengthen
    level = jnp.where(kind >= WALK + LENGTHEN, jnp.where(side < 0.5, -1.0, 1.0), 0.0)
    first = number < 2
    return (
        jnp.where(first, number, walk),
        jnp.where(first, 0.0, stretch),
        jnp.where(first, 0.0, level),
        chance[:, 0],
    )


def _grid(model: Model, prior: Prior) -> tuple[float, Array, Array]:
    """A rating level and the mean rating in stars, and what raises it by a star in the effects."""
    rated = np.array(model.levels) > 0
    levels = np.array(model.levels)[rated]
    span = max(levels.max() - levels.min(), 1e-300)
    share = jax.nn.softmax(jnp.asarray(prior.level)[rated])
    middle = share @ levels
    variance = jnp.maximum(share @ (levels - middle) ** 2, 1e-3 * span**2)
    tilt = jnp.zeros(model.effects[0]).at[1].set(span / SPAN / variance)
    return float(np.median(np.diff(levels))) if levels.size > 1 else 1.0, middle, tilt
