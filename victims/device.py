"""Ratings as device arrays, kept beside the ratings they belong to."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from victims.ratings import Ratings

jax.config.update("jax_enable_x64", True)


class Data(NamedTuple):
    """The ratings as device arrays, one entry per rating, grouped by user."""

    user: Int[Array, " ratings"]
    item: Int[Array, " ratings"]
    value: Float[Array, " ratings"]
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
            jnp.asarray(ratings.attributes),
            jnp.asarray(ratings.item_features),
        )
        object.__setattr__(ratings, "_device_data", cached)
    return cached
