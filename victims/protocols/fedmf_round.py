"""One round of FedMF as a pure function of the state, and its rows; symbols as in ``fedmf``."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from victims.data.ratings import Ratings
from victims.protocols.base import Received, Rows, Sample
from victims.protocols.client_task import Biases
from victims.protocols.jax_ratings import Data
from victims.transcript.view import ITEM

jax.config.update("jax_enable_x64", True)


class Constants(NamedTuple):
    """The hyper-parameters that a round reads; ``fedmf.FedMF`` explains them."""

    lambda_factors: float
    item_regularization: float
    client_learning_rate: float


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: Int[Array, ""]
    item_factors: Float[Array, "items K"]
    client_factors: Float[Array, "users K"]
    seed: Int[Array, ""]
    biases: Biases | None = None
    gradient: tuple[float, float] | None = None  # norm of the last round's largest: of clients, of items


@partial(jax.jit, static_argnums=0)
def round_step(constants: Constants, state: State, data: Data, received: Received | None) -> State:
    """The state after a round."""
    rate = constants.client_learning_rate
    items, clients = state.item_factors, state.client_factors
    rated, raters = items[data.item], clients[data.user]
    error = data.value - jnp.sum(rated * raters, axis=1)
    ascent = jax.ops.segment_sum(error[:, None] * rated, data.user, clients.shape[0], indices_are_sorted=True)
    if received is None:
        pull = jax.ops.segment_sum(error[:, None] * raters, data.item, items.shape[0])
        raters_of = jax.ops.segment_sum(jnp.ones(data.item.shape), data.item, items.shape[0])
        sums = rate * (-2 * pull + 2 * constants.item_regularization * raters_of[:, None] * items)
    else:
        sums = jnp.asarray(received.items)
    clients = (1 - 2 * rate * constants.lambda_factors) * clients + 2 * rate * ascent
    return state._replace(round=state.round + 1, item_factors=items - sums, client_factors=clients)


def gradient_rows(
    constants: Constants, ratings: Ratings, users: np.ndarray, clients: np.ndarray, items: np.ndarray
) -> Rows:
    """Form gamma (-2 e u + 2 mu v) of every rating of some clients.

    References
    ----------
    Paper 001, arXiv:1906.05108, Eq. (6).
    """
    rated = np.diff(ratings.indptr)[users]
    sender = np.repeat(users, rated)
    entry = np.arange(sender.size) - np.repeat(np.cumsum(rated) - rated, rated)
    entry += np.repeat(ratings.indptr[users], rated)
    index = ratings.items[entry]
    u, v = clients[sender], items[index]
    error = ratings.values[entry] - np.einsum("rk,rk->r", u, v)
    gradient = -2 * error[:, None] * u + 2 * constants.item_regularization * v
    kind = np.full(sender.size, ITEM, np.int8)
    return Rows(
        sender.astype(np.int32), kind, index.astype(np.int32), constants.client_learning_rate * gradient
    )


def with_zeros(rows: Rows, users: np.ndarray, n_items: int) -> Rows:
    """Add rows of zeros for all items that a client has not rated."""
    slot = np.searchsorted(users, rows.sender) * n_items + rows.index
    gradient = np.zeros((users.size * n_items, rows.gradient.shape[1]))
    gradient[slot] = rows.gradient
    bias = None
    if rows.bias is not None:
        bias = np.zeros(len(gradient))
        bias[slot] = rows.bias
    return Rows(
        np.repeat(users.astype(np.int32), n_items),
        np.full(users.size * n_items, ITEM, np.int8),
        np.tile(np.arange(n_items, dtype=np.int32), users.size),
        gradient,
        bias=bias,
    )


def with_zeros_at(rows: Rows, sample: Sample) -> Rows:
    """Add rows of zeros for sampled unrated items, among the others by client and item."""
    sender = np.concatenate([rows.sender, sample.user.astype(np.int32)])
    index = np.concatenate([rows.index, sample.item.astype(np.int32)])
    zeros = np.zeros((sample.user.size, rows.gradient.shape[1]))
    order = np.lexsort((index, sender))
    kind = np.full(sender.size, ITEM, np.int8)
    return Rows(sender[order], kind, index[order], np.concatenate([rows.gradient, zeros])[order])


def largest_gradients(constants: Constants, before: State, after: State) -> tuple[float, float]:
    """The largest norm among the clients' gradients (5), and among the items' (6), of the round in between.

    Both are what moved the factors, over gamma: of items the sums as the server received them.

    References
    ----------
    Paper 001, arXiv:1906.05108, Eqs. (5) and (6).
    """
    moved = (
        (before.client_factors, after.client_factors),
        (before.item_factors, after.item_factors),
    )
    clients, items = (
        float(jnp.linalg.norm(new - old, axis=1).max()) / constants.client_learning_rate for old, new in moved
    )
    return clients, items
