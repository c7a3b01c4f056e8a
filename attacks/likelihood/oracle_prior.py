"""A prior fitted to known answers of all clients, and what it says to whoever knows all of them but one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.likelihood import prior as priors
from attacks.likelihood.batch_cache import BatchCache
from attacks.likelihood.batches import Rows
from attacks.likelihood.model import Answers, Model, Prior, log_prior
from attacks.likelihood.moments import Moments, moments
from attacks.likelihood.problem import Parameters, prior_of, scattered

PASSES = 60  # most Newton steps of the prior; it ends where no parameter moves by SETTLED nats
SETTLED = 1e-3


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
