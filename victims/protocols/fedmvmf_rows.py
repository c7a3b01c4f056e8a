"""The rows that clients of FedMVMF upload, from factors and ratings; symbols as in ``fedmvmf``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.data.ratings import Ratings
from victims.protocols.base import Rows
from victims.transcript.view import ATTRIBUTE, ITEM


class Entries(NamedTuple):
    """What clients upload rows of: ratings and sampled unrated items, grouped by user."""

    user: Int[np.ndarray, " entries"]
    item: Int[np.ndarray, " entries"]
    value: Float[np.ndarray, " entries"]
    weight: Float[np.ndarray, " entries"]


def sparse_rows(
    entries: Entries,
    all_attributes: np.ndarray,
    users: np.ndarray,
    clients: np.ndarray,
    items: np.ndarray,
    attributes: np.ndarray,
) -> Rows:
    """Compute the rows of listed items and all attributes of some clients (Eq. 18, 36).

    References
    ----------
    Paper 000 (arXiv:2210.07775), Eq. (18) and (36).
    """
    n_attributes = attributes.shape[0]
    first, last = (np.searchsorted(entries.user, users, side=side) for side in ("left", "right"))
    listed = last - first
    length = listed + n_attributes
    client = np.repeat(np.arange(users.size), length)
    slot = np.arange(client.size) - np.repeat(np.cumsum(length) - length, length)
    is_item = slot < listed[client]
    entry = (first[client] + slot)[is_item]
    index = np.empty(client.size, np.int32)
    index[is_item] = entries.item[entry]
    index[~is_item] = (slot - listed[client])[~is_item]
    target, weight = np.empty(client.size), np.ones(client.size)
    target[is_item], weight[is_item] = entries.value[entry], entries.weight[entry]
    target[~is_item] = all_attributes[users[client[~is_item]], index[~is_item]]
    row_factors = np.empty((client.size, items.shape[1]))
    row_factors[is_item] = items[index[is_item]]
    row_factors[~is_item] = attributes[index[~is_item]]
    p = clients[client]
    error = weight * (target - np.einsum("rk,rk->r", p, row_factors))
    kind = np.where(is_item, ITEM, ATTRIBUTE).astype(np.int8)
    return Rows(users[client].astype(np.int32), kind, index, error[:, None] * p)


def dense_rows(
    alpha: float,
    ratings: Ratings,
    users: np.ndarray,
    clients: np.ndarray,
    items: np.ndarray,
    attributes: np.ndarray,
) -> Rows:
    """Compute the rows of all items and all attributes of some clients (Eq. 22).

    References
    ----------
    Paper 000 (arXiv:2210.07775), Eq. (22).
    """
    n_items, n_attributes = items.shape[0], attributes.shape[0]
    target = np.zeros((users.size, n_items + n_attributes))
    target[:, :n_items] = ratings.matrix()[users].toarray()
    weight = np.where(target > 0, 1.0, alpha)
    weight[:, n_items:] = 1.0
    target[:, n_items:] = ratings.attributes[users]
    error = weight * (target - clients @ np.concatenate([items, attributes]).T)
    gradient = error[:, :, None] * clients[:, None, :]
    kind = np.repeat(np.array([ITEM, ATTRIBUTE], np.int8), [n_items, n_attributes])
    index = np.concatenate([np.arange(n, dtype=np.int32) for n in (n_items, n_attributes)])
    return Rows(
        np.repeat(users.astype(np.int32), n_items + n_attributes),
        np.tile(kind, users.size),
        np.tile(index, users.size),
        gradient.reshape(-1, items.shape[1]),
    )
