"""Where an ascent starts: the prior's means, the leading direction of the rows, a rating level further on."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.likelihood.ascent import ascend_batch, most_credible
from attacks.likelihood.batches import Rows
from attacks.likelihood.model import Answers, AnyArray, Constants, Model, Point, Prior, log_prior
from attacks.likelihood.observation import decode, posterior_attributes
from attacks.likelihood.problem import BatchCache, Parameters, prior_of
from attacks.likelihood.update_rule import fixed_sums, gram, normal_equations

LENGTHS = np.geomspace(0.03, 30.0, 20)  # of the client's factor, tried along the leading direction
CLOSER = np.geomspace(0.7, 1.43, 40)  # times the best of them (as many, so that nothing is compiled anew)
TRIED_ROUNDS = 8  # most rounds that tell the length
HOT, WARM = 10.0, 3.0  # temperatures at which ascents from the prior and from the leading direction start


def cold_start(batches: BatchCache, parameters: Parameters, batch: int) -> Point:
    """Take the better of two starts, client by client, after an annealed ascent."""
    problem, rows = batches.problem, batches.rows(batch)
    model, prior = problem.model, prior_of(problem, parameters, batch)
    known = problem.attribute_factors, rows, parameters.constants, prior
    first = start_from_prior(model, *known)
    second = along_the_rows(batches, parameters, batch, log_prior(model, prior, rows))
    points = [
        ascend_batch(batches, parameters, batch, Point(p, start_lam(model, p)), problem.steps, temperature)
        for p, temperature in ((first, HOT), (second, WARM))
    ]
    return most_credible(batches, parameters, batch, points)


def along_the_rows(
    batches: BatchCache,
    parameters: Parameters,
    batch: int,
    assumed: Float[AnyArray, "candidates users slots"],
) -> Float[np.ndarray, "users rounds K"]:
    """The leading direction of each client's rows with the likeliest of some lengths, in every round."""
    problem, rows = batches.problem, batches.rows(batch)
    model, prior, constants = problem.model, prior_of(problem, parameters, batch), parameters.constants
    n_rounds = problem.view.rounds.size
    few = np.unique(np.linspace(0, n_rounds - 1, TRIED_ROUNDS).astype(int))
    some, attribute_factors = rows.during(few), problem.attribute_factors[few]
    lengths = np.concatenate([-LENGTHS[::-1], LENGTHS])
    blurred = constants._replace(noise=constants.noise * 2)

    def longest(constants: Constants, along: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        fit = line(model, attribute_factors, some, constants, prior, assumed, along, lengths)
        best = np.nan_to_num(np.asarray(fit), nan=-np.inf).argmax(axis=0)
        return np.asarray(lengths[best][:, None] * along)

    best = longest(blurred, _direction(rows), lengths)
    if not model.tied:  # nothing else tells the length: look closer
        best = longest(constants, best, CLOSER)
    return np.broadcast_to(best[:, None], (best.shape[0], n_rounds, best.shape[1]))


def start_lam(model: Model, p: Float[AnyArray, "users rounds K"]) -> Float[np.ndarray, "users L"]:
    """The lam that belongs to factors before anything was tilted."""
    if model.tied:
        return np.zeros((p.shape[0], p.shape[2]))
    return np.asarray(p)[:, np.flatnonzero(model.starts)].reshape(p.shape[0], -1)


def _direction(rows: Rows) -> Float[np.ndarray, "users K"]:
    """Leading right singular vector of each client's rows of all rounds."""
    gram = sum(
        np.einsum("tukr,tulr->ukl", uploads, uploads, dtype=np.float64)
        for uploads in (rows.items, rows.attributes)
    )
    return np.asarray(np.linalg.eigh(gram)[1][..., -1])


@partial(jax.jit, static_argnums=0)
def start_from_prior(
    model: Model,
    attribute_factors: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
) -> Float[Array, "users rounds K"]:
    """The factor that (8) gives to a client whose answers are the prior's means."""
    items = jnp.exp(log_prior(model, prior, rows)) * rows.valid
    _, n_users, k, _ = rows.items.shape
    attributes = jnp.zeros((n_users, 0))
    if model.blocks:
        odds = jnp.broadcast_to(prior.attribute, (n_users, prior.attribute.shape[-1]))
        attributes = posterior_attributes(model, odds)[0]
    answers, fixed = Answers(items, attributes), fixed_sums(model, attribute_factors, rows)
    square, right = normal_equations(model, attribute_factors, rows, constants, answers, fixed)
    square += constants.lambda_factors * jnp.eye(k)
    return jnp.linalg.solve(square, right[..., None])[..., 0]


@jax.jit
def shift_of_one(rows: Rows) -> Float[Array, "users rounds K"]:
    """The change of p that raises p . q by one on all slots but the padding, in ridged least squares."""
    square = gram(rows.factors, jnp.asarray(rows.valid, rows.factors.dtype)).swapaxes(0, 1)
    k = square.shape[-1]
    ridge = 1e-3 * jnp.trace(square, axis1=2, axis2=3)[..., None, None] / k + 1e-12
    total = jnp.sum(rows.factors, axis=-1).swapaxes(0, 1).astype(jnp.float64)
    return jnp.linalg.solve(square + ridge * jnp.eye(k), total[..., None])[..., 0]


@partial(jax.jit, static_argnums=0)
def line(
    model: Model,
    attribute_factors: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
    assumed: Float[Array, "candidates users slots"],
    direction: Float[AnyArray, "users K"],
    lengths: Float[AnyArray, " lengths"],
) -> Float[Array, "lengths users"]:
    """Marginal log-likelihood of the uploads at p = length x direction, the same in all rounds."""
    n_rounds, n_users, k, _ = rows.items.shape
    lam = jnp.zeros((n_users, k if model.tied else model.n_runs * k))

    def at(length: Array) -> Array:
        p = jnp.broadcast_to((length * direction)[:, None], (n_users, n_rounds, k))
        return decode(model, attribute_factors, rows, constants, prior, assumed, Point(p, lam)).log_likelihood

    return jax.lax.map(at, jnp.asarray(lengths))
