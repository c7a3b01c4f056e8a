"""The attack's model for somebody who knows more than the uploads: what a limit beside a score needs.

``audit`` imports nothing else of this room, and no attack imports it: its functions take answers that are
known. A batch's answers are one-hot over the candidates of every slot, 0 on padding.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from attacks.likelihood.batch_cache import BatchCache
from attacks.likelihood.batches import Rows
from attacks.likelihood.estimates import estimates
from attacks.likelihood.manifest_model import known_scale, law_of, ties, unmodelled
from attacks.likelihood.model import Answers, AnyArray, Constants, Model
from attacks.likelihood.observation import posterior_attributes
from attacks.likelihood.oracle_factors import (
    SMALLEST,
    STEPS,
    explained,
    factors_of,
    update_rule_sums,
    with_fitted_noise,
)
from attacks.likelihood.oracle_prior import fit_prior, flat_log_prior, log_prior_of_others
from attacks.likelihood.problem import Parameters, problem_of, start_parameters
from attacks.likelihood.upload_statistics import size_up
from victims.transcript.view import View

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
