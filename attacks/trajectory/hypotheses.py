"""What an audit of differential privacy asks of this attack: single ratings, and two hypotheses compared.

The adversary of an empirical epsilon knows all ratings of a client but one, and what the recommender sees; it
does not know the client's start factor, and fits it.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float, Int

from attacks.client_rules.client_update import step_of
from attacks.trajectory.attack import Trajectory
from attacks.trajectory.factor_trajectories import Packed, batches, pack
from attacks.trajectory.least_squares import fit_start
from attacks.trajectory.normal_equations import Problem
from attacks.trajectory.trajectory_fits import HORIZONS
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.transcript.view import ITEM, View

MAX_STEPS = 30
ENOUGH = 1e-3  # nats by which a step must still improve a fit


def fitted_values(view: View, item: Int[np.ndarray, " users"]) -> Float[np.ndarray, " users"]:
    """Fit one (stretched) rating of every client where no fresh noise is left."""
    values = np.full(item.shape, np.nan)
    for user, kind, index, value, _ in Trajectory(answer="stretched").attack(view, 0).rows():
        wanted = (kind == ITEM) & (index == item[user])
        values[user[wanted]] = value[wanted]
    return values


def log_likelihood_ratio(
    view: View, low: sp.csr_array, high: sp.csr_array, seed: int
) -> Float[np.ndarray, " users"]:
    """Compare two hypotheses about the clients' ratings under fresh noise of known scale.

    References
    ----------
    J. Neyman, E. S. Pearson 1933, doi:10.1098/rsta.1933.0009, for the likelihood ratio as a test.
    """
    ratio = np.zeros(low.shape[0])
    rng = generator(seed, Purpose.HYPOTHESIS_STARTS)
    for members in batches(view, view.rounds.size):
        packed = pack(view, view.batch(members), view.rounds)
        n_users, n_factors = packed.users.size, packed.rows.shape[3]
        start = rng.standard_normal((n_users, n_factors)) * rng.uniform(0.02, 0.3, (n_users, 1))
        costs = [_least_cost(_problem(view, packed, values), jnp.asarray(start)) for values in (low, high)]
        ratio[packed.users] = costs[0] - costs[1]
    return ratio


def _least_cost(problem: Problem, start: Array) -> Float[np.ndarray, " users"]:
    """Cost of the best start factor; the horizon grows, as in ``attacks.trajectory.trajectory_fits``."""
    n_rounds = problem.rows.shape[1]
    cost = np.zeros(0)
    for horizon in sorted({min(first, n_rounds) for first in (*HORIZONS, n_rounds)}):
        seen = problem._replace(weight=problem.weight * (jnp.arange(n_rounds) < horizon)[:, None, None])
        start, least = fit_start(seen, start, repeated=False, steps=MAX_STEPS, enough=ENOUGH)
        cost = np.asarray(least)
    return cost


def _problem(view: View, packed: Packed, values: sp.csr_array) -> Problem:
    """What a hypothesis says of the clients of a batch."""
    if packed.deviation is None:
        raise InputError(
            "the view must tell the scale of its noise (noise_scale in state.arrow, or the defense gaussian "
            "with a known sigma), got none; record with a defense that draws fresh noise"
        )
    dense = values[packed.users].toarray()
    ratings = np.take_along_axis(dense, packed.index, axis=1) * packed.valid
    return Problem(
        rows=jnp.asarray(packed.rows),
        factors=jnp.asarray(packed.factors),
        weight=jnp.asarray(packed.valid[:, None, :, None] / packed.deviation),
        row_weight=jnp.asarray(packed.row_weight),
        mean=jnp.asarray(ratings),
        precision=jnp.zeros(ratings.shape),
        start_precision=jnp.asarray(1.0),
        step=step_of(view.manifest, view.rounds, packed.valid.sum(axis=1)),
        broadcast=None if packed.broadcast is None else jnp.asarray(packed.broadcast),
    )
