"""The attack's model for somebody who knows more than the uploads: what a limit beside a score needs.

``audit`` imports nothing else of this room, and no attack imports it: its functions take answers that are
known. A batch's answers are one-hot over the candidates of every slot, 0 on padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from attacks.likelihood import prior as priors
from attacks.likelihood.ascent import ascend
from attacks.likelihood.batches import Rows
from attacks.likelihood.manifest_model import known_scale, law_of, ties, unmodelled
from attacks.likelihood.model import Answers, AnyArray, Constants, Model, Point, Prior, log_prior
from attacks.likelihood.modes import estimates
from attacks.likelihood.noise_laws import most_left
from attacks.likelihood.observation import decode, posterior_attributes
from attacks.likelihood.prior import Moments, moments
from attacks.likelihood.problem import (
    BatchCache,
    Parameters,
    prior_of,
    problem_of,
    scattered,
    start_parameters,
)
from attacks.likelihood.starts import along_the_rows, start_lam
from attacks.likelihood.update_rule import fixed_sums, normal_equations
from attacks.likelihood.upload_statistics import size_up
from victims.transcript.view import View

PASSES = 60  # most Newton steps of the prior; it ends where no parameter moves by SETTLED nats
SETTLED = 1e-3
STEPS = 60
WARM = 3.0  # least temperature at which an ascent to the factors starts; else the rows' size over the noise
STARTS = ((1.0, 1.0), (1.0, 10.0), (0.5, 10.0))  # times the length along the rows, times that temperature
SMALLEST = 1e-12  # noise scale
SURE = 1e9  # log odds of answers that are known


__all__ = [
    "Answers",
    "BatchCache",
    "Constants",
    "Model",
    "Parameters",
    "Rows",
    "asked",
    "certain_answers",
    "constants_are_public",
    "estimates",
    "explained",
    "factors_of",
    "fit_prior",
    "flat_log_prior",
    "log_prior_of_others",
    "posterior",
    "prepared",
    "unmodelled",
    "update_rule_sums",
    "with_fitted_noise",
]


class Asked(NamedTuple):
    """What the slots of a batch are about, padding included."""

    users: Int[np.ndarray, " users"]
    items: Int[np.ndarray, "users slots"]
    valid: Bool[np.ndarray, "users slots"]


def constants_are_public(view: View) -> bool:
    """Whether the update rule gives a client's factor to whoever knows its answers."""
    tied, linked = ties(view.manifest)
    return tied or linked or (view.manifest.update == "sgd" and view.rounds.size == 1)


def prepared(view: View) -> tuple[BatchCache, Parameters]:
    """Make batches of a view, and parameters from its manifest under which all answers are equally likely."""
    noise = known_scale(view.manifest)
    b = size_up(view).scale if noise is None else noise / abs(view.manifest.upload.scale)
    model, constants = law_of(view.manifest, view.rounds, max(b, SMALLEST))
    problem = problem_of(
        view,
        model,
        steps=STEPS,
        key=0,
        estimated=True,
        known_noise=noise is not None,
        floor=0.0,
        precision=np.float64,
        shape_cost=1e6,
    )
    return BatchCache(problem), start_parameters(problem, constants)


def asked(batches: BatchCache, batch: int) -> Asked:
    """Say which clients and items the slots of a batch are about."""
    problem, rows = batches.problem, batches.rows(batch)
    item, ids = np.asarray(rows.item), problem.packing.item_ids
    items = ids[item] if ids.size else np.zeros(item.shape, int)
    users = problem.view.users[problem.packing.members[batch]]
    return Asked(users, items, np.asarray(rows.valid))


def certain_answers(
    model: Model,
    about: Asked,
    ratings: Float[np.ndarray, "users slots"],
    attributes: Float[np.ndarray, "users attributes"],
) -> Answers:
    """Make answers that leave no doubt: the level that is closest to each rating."""
    levels = np.array(model.levels)[:, None, None]
    level = np.abs(ratings - levels).argmin(axis=0)
    items = (level == np.arange(len(levels))[:, None, None]) & about.valid
    return Answers(items.astype(np.float64), attributes)


def posterior(
    batches: BatchCache,
    parameters: Parameters,
    batch: int,
    prior: Float[AnyArray, "candidates users slots"],
    items: Float[AnyArray, "candidates users slots"],
    attributes: Float[AnyArray, "users attributes"],
) -> Answers:
    """Posterior from log likelihoods, a log prior of the items."""
    model, valid = batches.problem.model, batches.rows(batch).valid
    return _posterior(model, valid, prior, items, attributes, parameters.prior.attribute)


@partial(jax.jit, static_argnums=0)
def _posterior(
    model: Model, valid: Array, prior: Array, items: Array, attributes: Array, odds: Array
) -> Answers:
    found = jax.nn.softmax(items + prior, axis=0) * valid
    if model.blocks:
        attributes = posterior_attributes(model, attributes + odds)[0]
    return Answers(found, attributes)


class Informed(NamedTuple):
    """Parameters whose prior was fitted to the true answers, with a dispersion of each client's own whatever
    the update; and the sums that the items' random effects were fitted with (``Moments.item``).
    """

    parameters: Parameters
    item: Float[np.ndarray, "items effects 3"]


def flat_log_prior(
    batches: BatchCache, parameters: Parameters, batch: int
) -> Float[Array, "candidates users slots"]:
    """Log prior of every slot under parameters that have learned nothing yet."""
    prior = prior_of(batches.problem, parameters, batch)
    return log_prior(batches.problem.model, prior, batches.rows(batch))


def fit_prior(batches: BatchCache, parameters: Parameters, answers: Sequence[Answers]) -> Informed:
    """Fit a prior to the true answers of all batches."""
    problem, model = batches.problem, _dispersed(batches.problem.model)
    n_users, n_items = problem.view.users.size, problem.packing.item_ids.size
    count = sum(np.asarray(known.items).sum(axis=(1, 2)) for known in answers)
    prior = priors.flat(model, n_users, n_items, parameters.prior.start_mean.size)
    prior = prior._replace(level=np.asarray(jnp.log(count + 1.0)))
    parameters = Parameters(parameters.constants, prior, priors.start_spread(model))
    # a prior needs the rows without the uploads, which are costly to read again
    slots = [batches.rows(batch).during(np.zeros(0, int)) for batch in range(problem.n_batches)]
    total: Moments | None = None
    for _ in range(PASSES):
        total = None
        for batch, (known, rows) in enumerate(zip(answers, slots, strict=True)):
            found = _prior_moments(model, rows, prior_of(problem, parameters, batch), known)
            found = jax.tree.map(np.asarray, found)
            found = found._replace(user=scattered(problem, batch, found.user))
            total = found if total is None else jax.tree.map(np.add, total, found)
        assert total is not None
        prior, spread = priors.improve(
            model, parameters.prior, parameters.spread, total, n_users, pulled=False
        )
        pairs = zip(prior, parameters.prior, strict=True)
        away = max(float(np.abs(new - old).max()) if new.size else 0.0 for new, old in pairs)
        parameters = Parameters(parameters.constants, prior, spread)
        if away < SETTLED:
            break
    assert total is not None
    return Informed(parameters, np.asarray(total.item))


def _dispersed(model: Model) -> Model:
    """The model under which each client has a dispersion of its own."""
    return replace(model, tied=True)


@partial(jax.jit, static_argnums=0)
def _prior_moments(model: Model, rows: Rows, prior: Prior, answers: Answers) -> Moments:
    assumed = jnp.exp(log_prior(model, prior, rows)) * rows.valid
    return moments(model, rows, prior, assumed, answers)


def log_prior_of_others(
    batches: BatchCache, informed: Informed, batch: int, answers: Answers
) -> Float[Array, "candidates users slots"]:
    """Log prior of every slot with the item's effects fitted to the other clients: one Newton step back.

    Items have few raters, and their effects would give the answer away. The client's own effects stay: it
    would be told that each answer is less usual for it than it is.
    """
    model, parameters = _dispersed(batches.problem.model), informed.parameters
    prior = prior_of(batches.problem, parameters, batch)
    return _without_own(model, batches.rows(batch), prior, parameters.spread.item, informed.item, answers)


@partial(jax.jit, static_argnums=0)
def _without_own(
    model: Model,
    rows: Rows,
    prior: Prior,
    item_variance: Float[Array, " effects"],
    item: Float[Array, "items effects 3"],
    answers: Answers,
) -> Float[Array, "candidates users slots"]:
    features = jnp.asarray(model.features().T)
    fitted = log_prior(model, prior, rows)
    share, back = jnp.exp(fitted), jnp.zeros_like(fitted)
    for column in range(item_variance.shape[0]):
        feature = features[column]
        mean = jnp.einsum("v,vus->us", feature, share)
        variance = jnp.einsum("v,vus->us", feature**2, share) - mean**2
        of_item = item[rows.item, column, 1]
        others = jnp.maximum(of_item - variance, 0.0) + 1 / item_variance[column]
        gap = jnp.einsum("v,vus->us", feature, answers.items) - mean
        back += feature[:, None, None] * gap / others
    return jax.nn.log_softmax(fitted - back, axis=0)


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
