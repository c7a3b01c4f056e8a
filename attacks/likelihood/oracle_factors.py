"""The factors and the noise scale that go with known answers of all clients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from attacks.likelihood.ascent import ascend
from attacks.likelihood.batches import Rows
from attacks.likelihood.model import Answers, AnyArray, Constants, Model, Point, Prior
from attacks.likelihood.noise_laws import most_left
from attacks.likelihood.observation import decode
from attacks.likelihood.problem import BatchCache, Parameters, prior_of
from attacks.likelihood.starts import along_the_rows, start_lam
from attacks.likelihood.update_rule import fixed_sums, normal_equations

STEPS = 60
WARM = 3.0  # least temperature at which an ascent to the factors starts; else the rows' size over the noise
STARTS = ((1.0, 1.0), (1.0, 10.0), (0.5, 10.0))  # times the length along the rows, times that temperature
SMALLEST = 1e-12  # noise scale
SURE = 1e9  # log odds of answers that are known


@partial(jax.jit, static_argnums=0)
def update_rule_sums(
    model: Model,
    attribute_factors: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    answers: Answers,
) -> tuple[Float[Array, "users rounds K K"], Float[Array, "users rounds K"]]:
    """Q'CQ + lambda_1 U'U and Q'Cr + lambda_1 U'x of Mai & Pang 2022, Eq. (8), without lambda_2."""
    fixed = fixed_sums(model, attribute_factors, rows)
    return normal_equations(model, attribute_factors, rows, constants, answers, fixed)


def factors_of(
    batches: BatchCache, parameters: Parameters, batch: int, answers: Answers
) -> Float[np.ndarray, "users rounds K"]:
    """Factors of a batch's clients by (8); in sgd the likeliest ones if the answers are the true ones."""
    problem, rows, constants = batches.problem, batches.rows(batch), parameters.constants
    if problem.model.tied:
        known = problem.attribute_factors, rows, constants, answers
        return np.asarray(_solved(problem.model, *known))
    start = along_the_rows(batches, parameters, batch, _log_certain(answers))
    size = float(_root_mean_square(rows.items)) / float(constants.noise)
    best, least = start, np.full(start.shape[0], np.inf)
    for length, temperature in STARTS:  # a client of few rows and little noise has several modes
        at = length * start, temperature * max(WARM, size)
        found, cost = _ascended(batches, parameters, batch, answers, *at)
        closer = cost < least
        best, least = np.where(closer[:, None, None], found, best), np.where(closer, cost, least)
    return best


@partial(jax.jit, static_argnums=0)
def _solved(
    model: Model, attribute_factors: Array, rows: Rows, constants: Constants, answers: Answers
) -> Float[Array, "users rounds K"]:
    square, right = update_rule_sums(model, attribute_factors, rows, constants, answers)
    square += constants.lambda_factors * jnp.eye(square.shape[-1])
    return jnp.linalg.solve(square, right[..., None])[..., 0]


@jax.jit
def _root_mean_square(rows: Array) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean(rows**2))


def _ascended(
    batches: BatchCache,
    parameters: Parameters,
    batch: int,
    answers: Answers,
    start: Float[np.ndarray, "users rounds K"],
    temperature: float,
) -> tuple[Float[np.ndarray, "users rounds K"], Float[np.ndarray, " users"]]:
    """Factors uphill of a start if the answers are the true ones, and sum |f - y p| there."""
    problem, rows = batches.problem, batches.rows(batch)
    prior, assumed = _certain_prior(batches, parameters, batch, answers), _log_certain(answers)
    known = problem.attribute_factors, rows, parameters.constants, prior, assumed
    point = Point(start, start_lam(problem.model, start))
    p = np.asarray(ascend(problem.model, *known, point, STEPS, temperature).p)
    return p, _distance(batches, parameters, batch, answers, p)


def _distance(
    batches: BatchCache,
    parameters: Parameters,
    batch: int,
    answers: Answers,
    p: Float[np.ndarray, "users rounds K"],
) -> Float[np.ndarray, " users"]:
    """sum |f - y p| - |f| under the true answers."""
    problem, rows = batches.problem, batches.rows(batch)
    lam = np.zeros((p.shape[0], p.shape[2] * (1 if problem.model.tied else problem.model.n_runs)))
    prior, assumed = _certain_prior(batches, parameters, batch, answers), _log_certain(answers)
    known = problem.attribute_factors, rows, parameters.constants, prior, assumed
    return np.asarray(_distance_at(problem.model, *known, Point(p, lam)))


@partial(jax.jit, static_argnums=0)
def _distance_at(
    model: Model,
    attribute_factors: Array,
    rows: Rows,
    constants: Constants,
    prior: Prior,
    assumed: Array,
    point: Point,
) -> Float[Array, " users"]:
    return decode(model, attribute_factors, rows, constants, prior, assumed, point).distance


def _log_certain(answers: Answers) -> Float[np.ndarray, "candidates users slots"]:
    return np.where(np.asarray(answers.items) > 0.5, 0.0, -SURE)


def _certain_prior(batches: BatchCache, parameters: Parameters, batch: int, answers: Answers) -> Prior:
    """A prior that leaves no doubt about the attributes."""
    sure = np.where(np.asarray(answers.attributes) > 0.5, SURE, -SURE)
    return prior_of(batches.problem, parameters, batch)._replace(attribute=sure)


def with_fitted_noise(
    batches: BatchCache,
    parameters: Parameters,
    answers: Sequence[Answers],
    factors: Sequence[Float[np.ndarray, "users rounds K"]],
) -> Parameters:
    """Set the noise scale to the one that makes known answers likeliest: the mean loss of what they leave."""
    total = coordinates = 0.0
    for batch, (known, p) in enumerate(zip(answers, factors, strict=True)):
        rows, distance = batches.rows(batch), _distance(batches, parameters, batch, known, p)
        more, count = _noise_sums(rows, distance)
        total += float(more)
        coordinates += float(count) * rows.items.shape[2]
    noise = np.asarray(max(total / max(coordinates, 1.0), SMALLEST))
    return parameters._replace(constants=parameters.constants._replace(noise=noise))


def explained(
    batches: BatchCache,
    parameters: Parameters,
    batch: int,
    answers: Answers,
    p: Float[np.ndarray, "users rounds K"],
) -> Bool[np.ndarray, " users"]:
    """Tell whose rows known answers and factors leave no more of than noise of the known scale would.

    Where training diverges the likeliest factors may not be found; where the declared rule is another than
    the clients', there are none.
    """
    problem, rows = batches.problem, batches.rows(batch)
    law, scale = problem.model.law, float(parameters.constants.noise)
    left = _distance(batches, parameters, batch, answers, p) + rows.blank
    sent = rows.sent.sum(axis=(0, 2)) + rows.attributes_sent.sum(axis=(0, 2))
    coordinates = np.maximum(np.asarray(sent) * rows.items.shape[2], 1)
    found = np.array([law.scale_of(float(mean)) for mean in left / coordinates])
    return found <= scale * most_left(coordinates)


@jax.jit
def _noise_sums(rows: Rows, distance: Float[Array, " users"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sum of |f - y p|, and number of rows."""
    sent = rows.sent.sum(axis=(0, 2)) + rows.attributes_sent.sum(axis=(0, 2))
    return jnp.sum((distance + rows.blank) * rows.live), jnp.sum(sent * rows.live)
