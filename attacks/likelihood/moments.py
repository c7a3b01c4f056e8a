"""Sums over rows that an estimate of the prior needs: posterior less prior, and the variances of both."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attacks.likelihood.batches import Rows
from attacks.likelihood.model import Answers, AnyArray, Model, Prior


class Moments(NamedTuple):
    """Sums over rows of the posterior minus the prior, and of both variances."""

    level_gap: Float[AnyArray, " candidates"]
    level_prior: Float[AnyArray, "candidates candidates"]
    level_posterior: Float[AnyArray, "candidates candidates"]
    user: Float[AnyArray, "users user_effects 3"]  # gap, prior variance, posterior variance of the features
    item: Float[AnyArray, "items item_effects 3"]  # gap, prior variance, posterior variance of the features
    attribute: Float[AnyArray, " attributes"]  # expected number of clients


@partial(jax.jit, static_argnums=0)
def moments(model: Model, rows: Rows, prior: Prior, assumed: Array, answers: Answers) -> Moments:
    """Sums over the rows of one batch."""
    live = rows.live[:, None].astype(assumed.dtype)
    assumed, found = assumed * live, answers.items * live
    gap = _feature_mean(model, found - assumed)
    variances = feature_variance(model, assumed), feature_variance(model, found)
    table = jnp.stack([gap, *variances]).astype(jnp.float64)

    def second(weights: Array) -> Array:
        diagonal = jnp.diag(weights.sum(axis=(1, 2), dtype=jnp.float64))
        return diagonal - jnp.einsum("vur,wur->vw", weights, weights).astype(jnp.float64)

    of_user, of_item = (table[:, :width] for width in model.effects)
    flat = of_item.transpose(2, 3, 1, 0).reshape(-1, model.effects[1], 3)
    return Moments(
        (found - assumed).sum(axis=(1, 2), dtype=jnp.float64),
        second(assumed),
        second(found),
        of_user.sum(axis=3).transpose(2, 1, 0),
        jax.ops.segment_sum(flat, jnp.asarray(rows.item).ravel(), prior.item.shape[0]),
        jnp.sum(rows.live[:, None] * answers.attributes, axis=0),
    )


def _feature_mean(model: Model, weights: AnyArray) -> Float[Array, "features users slots"]:
    """Means of the features of a rating under weights over candidates."""
    return jnp.einsum("fv,vur->fur", model.features().T.astype(weights.dtype), weights)


def feature_variance(model: Model, weights: AnyArray) -> Float[Array, "features users slots"]:
    """Variances of the features of a rating under weights over candidates."""
    square = jnp.einsum("fv,vur->fur", (model.features().T ** 2).astype(weights.dtype), weights)
    return square - _feature_mean(model, weights) ** 2
