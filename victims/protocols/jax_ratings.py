"""Ratings as JAX arrays, made once for as long as the ratings live."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from victims.data.ratings import Ratings
from victims.protocols.base import Sample

jax.config.update("jax_enable_x64", True)


class Data(NamedTuple):
    """The ratings as device arrays, one entry per rating or sampled unrated item, grouped by user."""

    user: Int[Array, " entries"]
    item: Int[Array, " entries"]
    value: Float[Array, " entries"]  # stars; 0 for a sampled item
    weight: Float[Array, " entries"]  # 1, or alpha for a sampled item
    start: Int[Array, " users+1"]  # each user's first entry, and the number of entries
    attributes: Float[Array, "users attributes"]
    item_features: Float[Array, "items features"]


# a round asks for the same arrays several times, and copies of large data take longer than its step
_ON_DEVICE: WeakKeyDictionary[Ratings, Data] = WeakKeyDictionary()
_OF_ALL_ITEMS: WeakKeyDictionary[Ratings, tuple[float, Data]] = WeakKeyDictionary()
_WITH_SAMPLE: WeakKeyDictionary[Sample, tuple[Ratings, float, Data]] = WeakKeyDictionary()


def device_data(ratings: Ratings) -> Data:
    """Put the ratings on the device, once for as long as they live."""
    if ratings not in _ON_DEVICE:
        table: Any = (
            ratings.users,
            ratings.items,
            ratings.values,
            np.ones(ratings.values.shape),
            ratings.indptr,
            ratings.attributes,
            ratings.item_features,
        )
        _ON_DEVICE[ratings] = jax.device_put(
            Data(*table)
        )  # what is made there is compiled for each size anew
    return _ON_DEVICE[ratings]


def sampled_data(ratings: Ratings, sample: Sample | None, alpha: float) -> Data:
    """Put the ratings and sampled unrated items on the device, ascending by user, then item."""
    if sample is None:
        return device_data(ratings)
    stored = _WITH_SAMPLE.get(sample)
    if stored is None or stored[0] is not ratings or stored[1] != alpha:
        stored = ratings, alpha, _joined(device_data(ratings), sample, alpha)
        _WITH_SAMPLE[sample] = stored
    return stored[2]


def all_data(ratings: Ratings, alpha: float) -> Data:
    """Put every pair of user and item on the device, ascending by user, then item; unrated ones as zeros."""
    stored = _OF_ALL_ITEMS.get(ratings)
    if stored is None or stored[0] != alpha:
        shape = ratings.n_users, ratings.n_items
        value = ratings.matrix().toarray().ravel()
        data = device_data(ratings)._replace(
            user=jnp.asarray(np.repeat(np.arange(shape[0], dtype=np.int32), shape[1])),
            item=jnp.asarray(np.tile(np.arange(shape[1], dtype=np.int32), shape[0])),
            value=jnp.asarray(value),
            weight=jnp.asarray(np.where(value > 0, 1.0, alpha)),
        )
        stored = _OF_ALL_ITEMS[ratings] = alpha, data
    return stored[1]


def _joined(data: Data, sample: Sample, alpha: float) -> Data:
    # among each other, or the order of the uploaded rows would tell which items are rated
    users = np.concatenate([np.asarray(data.user), sample.user])
    items = np.concatenate([np.asarray(data.item), sample.item])
    # two ascending runs, which a stable sort merges in one pass
    order = np.argsort(users.astype(np.int64) * (int(items.max(initial=0)) + 1) + items, kind="stable")
    n_sampled = order.size - data.value.size
    n_users = data.start.size - 1
    sampled_before = np.concatenate([[0], np.cumsum(np.bincount(sample.user, minlength=n_users))])
    value = np.concatenate([np.asarray(data.value), np.zeros(n_sampled)])
    weight = np.concatenate([np.asarray(data.weight), np.full(n_sampled, alpha)])
    return data._replace(
        user=jnp.asarray(users[order]),
        item=jnp.asarray(items[order]),
        value=jnp.asarray(value[order]),
        weight=jnp.asarray(weight[order]),
        start=jnp.asarray(np.asarray(data.start) + sampled_before),
    )
