"""Telling neighbouring ratings apart: the adversary of differential privacy, view by view.

One rating of every client is set to the lowest or the highest level by a fair coin; the adversary knows all
other ratings, the privacy weights and what the recommender sees, and guesses the coins. It does not know the
client's start factor, which the protocol draws at random, and fits it under both hypotheses.

Views: uploads of all recorded rounds; of the first round; and the final V without any upload, where the
client's factor is estimated from V and its other ratings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from attacks.client_rules.client_update import step_of
from attacks.trajectory.attack import Trajectory
from attacks.trajectory.factor_trajectories import Packed, batches, pack
from attacks.trajectory.least_squares import Problem, fit_start
from attacks.trajectory.trajectory_fits import HORIZONS
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.base import Defense
from victims.transcript.view import ITEM, View

STEPS = 30
ENOUGH = 1e-3  # nats by which a step must still improve a fit
RIDGE = 0.1


@dataclass(frozen=True)
class Canaries:
    """One rating per client, chosen by coins.

    Attributes
    ----------
    ratings : Ratings
        With the chosen values.
    entry : (n_users,)
        Which rating of ``ratings`` it is.
    coin : (n_users,)
        True for the highest level.
    """

    ratings: Ratings
    entry: Int[np.ndarray, " users"]
    coin: Bool[np.ndarray, " users"]


def plant(ratings: Ratings, seed: int) -> Canaries:
    """Choose a rating of every client, and its value by a coin; every client has a rating."""
    rng = generator(seed, Purpose.CANARIES)
    entry = ratings.indptr[:-1] + rng.integers(0, np.diff(ratings.indptr))
    coin = rng.random(ratings.n_users) < 0.5
    values = ratings.values.copy()
    values[entry] = np.where(coin, ratings.levels[-1], ratings.levels[0])
    return Canaries(replace(ratings, values=values), entry, coin)


class Worlds(NamedTuple):
    """What clients train on in both worlds, and which entry of it the canary is (-1: none)."""

    low: Ratings
    high: Ratings
    entry: Int[np.ndarray, " users"]


def worlds(canaries: Canaries, defenses: Sequence[Defense], seed: int) -> Worlds:
    """Both hypotheses about every canary at once, as the clients' devices hold them."""
    ratings = canaries.ratings
    held = []
    for level in (ratings.levels[0], ratings.levels[-1]):
        values = ratings.values.copy()
        values[canaries.entry] = level
        part = replace(ratings, values=values)
        for defense in defenses:
            part = defense.on_device(part, seed)
        held.append(part)
    low, high = held
    name = low.users.astype(np.int64) * low.n_items + low.items
    wanted = np.arange(ratings.n_users, dtype=np.int64) * low.n_items + ratings.items[canaries.entry]
    place = np.minimum(np.searchsorted(name, wanted), name.size - 1)
    return Worlds(low, high, np.where(name[place] == wanted, place, -1))


def score_exact(view: View, both: Worlds) -> Float[np.ndarray, " users"]:
    """Where no fresh noise is left: which canary the attack ``trajectory`` finds, in units of the gap.

    Parameters
    ----------
    view : View
        The recommender's, of consecutive rounds.
    both : Worlds
    """
    found = Trajectory(answer="stretched").attack(view, 0)
    score = np.zeros(both.low.n_users)
    seen = both.entry >= 0
    item = np.where(seen, both.low.items[both.entry], -1)
    low, high = both.low.values[both.entry], both.high.values[both.entry]
    for user, kind, index, value, _ in found.rows():
        here = (kind == ITEM) & (index == item[user])
        who = user[here]
        score[who] = (2 * value[here] - low[who] - high[who]) / (high[who] - low[who])
    return np.where(seen, score, 0.0)


def score_noisy(view: View, both: Worlds, seed: int) -> Float[np.ndarray, " users"]:
    """Log likelihood ratio of the high world under noise of known scale, 0 where there is no canary to see.

    Parameters
    ----------
    view : View
        The recommender's, of consecutive rounds with fresh noise, or of one round.
    both : Worlds
    seed : int
        Of the random start.
    """
    score = np.zeros(both.low.n_users)
    rng = generator(seed, Purpose.HYPOTHESIS_STARTS)
    for members in batches(view, view.rounds.size):
        packed = pack(view, view.batch(members), view.rounds)
        users, k = packed.users.size, packed.rows.shape[3]
        start = jnp.asarray(rng.standard_normal((users, k)) * rng.uniform(0.02, 0.3, (users, 1)))
        costs = []
        for world in (both.low, both.high):
            problem = _problem(view, packed, world)
            costs.append(_least(problem, start))
        score[packed.users] = costs[0] - costs[1]
    return np.where(both.entry >= 0, score, 0.0)


def _least(problem: Problem, start: Array) -> Float[np.ndarray, " users"]:
    """Cost of the best start factor; the horizon grows, as in ``attacks.trajectory.attack``."""
    rounds = problem.rows.shape[1]
    cost = np.zeros(0)
    for horizon in sorted({min(first, rounds) for first in (*HORIZONS, rounds)}):
        seen = problem._replace(weight=problem.weight * (jnp.arange(rounds) < horizon)[:, None, None])
        start, least = fit_start(seen, start, repeated=False, steps=STEPS, enough=ENOUGH)
        cost = np.asarray(least)
    return cost


def _problem(view: View, packed: Packed, world: Ratings) -> Problem:
    """What a world says of the clients of a batch."""
    assert packed.deviation is not None
    values = world.matrix()[packed.users].toarray()
    known = np.take_along_axis(values, packed.index, axis=1) * packed.valid
    return Problem(
        rows=jnp.asarray(packed.rows),
        factors=jnp.asarray(packed.factors),
        weight=jnp.asarray(packed.valid[:, None, :, None] / packed.deviation),
        row_weight=jnp.asarray(packed.row_weight),
        mean=jnp.asarray(known),
        precision=jnp.zeros(known.shape),
        start_precision=jnp.asarray(1.0),
        step=step_of(view.manifest, view.rounds, packed.valid.sum(axis=1)),
    )


def score_final(items: Float[np.ndarray, "items K"], both: Worlds) -> Float[np.ndarray, " users"]:
    """From the final V alone: how far the predicted canary lies above the middle of both worlds."""
    score = np.zeros(both.low.n_users)
    low = both.low
    for user in np.flatnonzero(both.entry >= 0):
        own = np.arange(*low.indptr[user : user + 2])
        others = own[own != both.entry[user]]
        v = items[low.items[others]]
        factor = np.linalg.solve(v.T @ v + RIDGE * np.eye(v.shape[1]), v.T @ low.values[others])
        factor /= max(1.0, float(np.linalg.norm(factor)))
        middle = (low.values[both.entry[user]] + both.high.values[both.entry[user]]) / 2
        score[user] = factor @ items[low.items[both.entry[user]]] - middle
    return score
