"""Ratings as device arrays, kept beside the ratings they belong to."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from victims.data.ratings import Ratings
from victims.protocols.base import Sample

jax.config.update("jax_enable_x64", True)


class Data(NamedTuple):
    """The ratings as device arrays, one entry per rating or sampled unrated item, grouped by user.

    weight: 1, or alpha for a sampled item, whose value is 0.
    """

    user: Int[Array, " entries"]
    item: Int[Array, " entries"]
    value: Float[Array, " entries"]
    weight: Float[Array, " entries"]
    attributes: Float[Array, "users attributes"]
    item_features: Float[Array, "items features"]


def device_data(ratings: Ratings) -> Data:
    """The ratings on the device; kept on the object, which is frozen."""
    cached = ratings.__dict__.get("_device_data")
    if cached is None:
        cached = Data(
            jnp.asarray(ratings.users),
            jnp.asarray(ratings.items),
            jnp.asarray(ratings.values),
            jnp.ones(ratings.values.shape),
            jnp.asarray(ratings.attributes),
            jnp.asarray(ratings.item_features),
        )
        object.__setattr__(ratings, "_device_data", cached)
    return cached


def sampled_data(ratings: Ratings, sample: Sample | None, alpha: float) -> Data:
    """The entries and sampled unrated items, ascending by user, then item; the last ones are kept."""
    if sample is None:
        return device_data(ratings)
    kept = ratings.__dict__.get("_sampled_data")
    if kept is None or kept[0] is not sample or kept[1] != alpha:
        kept = sample, alpha, _joined(device_data(ratings), sample, alpha)
        object.__setattr__(ratings, "_sampled_data", kept)
    return kept[2]


def _joined(data: Data, sample: Sample, alpha: float) -> Data:
    # among each other, or the order of the uploaded rows would tell which items are rated
    items, users = (
        np.concatenate([np.asarray(own), more])
        for own, more in ((data.item, sample.item), (data.user, sample.user))
    )
    order = np.lexsort((items, users))

    def joined(entries: Array, more: np.ndarray) -> Array:
        return jnp.asarray(np.concatenate([np.asarray(entries), more])[order])

    return data._replace(
        user=joined(data.user, sample.user),
        item=joined(data.item, sample.item),
        value=joined(data.value, np.zeros(order.size - data.value.size)),
        weight=joined(data.weight, np.full(order.size - data.value.size, alpha)),
    )
