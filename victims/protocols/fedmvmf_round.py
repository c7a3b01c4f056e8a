"""One round of FedMVMF as a pure function of the state; symbols and equations as in ``fedmvmf``.

A round is bound by its sums over ratings, which are products of sparse matrices: as a compressed matrix the
entries are read once, in order, and what is added to lies in the caches; a scatter of one row per entry,
which XLA makes of a segment sum on processors, took twenty times as long on ML-1M.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.sparse as sp
from jaxtyping import Array, Float, Int

from victims.protocols.base import Received
from victims.protocols.jax_ratings import Data
from victims.protocols.local_training import Biases

jax.config.update("jax_enable_x64", True)

COLUMN_BYTES = 1 << 26  # of the products of factors that are formed at a time


class Constants(NamedTuple):
    """The hyper-parameters that a round reads; ``fedmvmf.FedMVMF`` explains them."""

    update: Literal["semi-als", "sgd"]
    weighting: Literal["observed-only", "include-unrated"]
    factors: int
    lambda_attributes: float
    lambda_factors: float
    alpha: float
    server_learning_rate: float
    beta_1: float
    beta_2: float
    epsilon: float
    client_learning_rate: float


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: Int[Array, ""]
    item_factors: Float[Array, "items K"]
    attribute_factors: Float[Array, "attributes K"]
    feature_factors: Float[Array, "features K"]
    client_factors: Float[Array, "users K"]
    adam: optax.OptState
    seed: Int[Array, ""]
    biases: Biases | None = None


def optimizer(constants: Constants) -> optax.GradientTransformation:
    """Make the Adam with which the server steps."""
    return optax.adam(
        constants.server_learning_rate, b1=constants.beta_1, b2=constants.beta_2, eps=constants.epsilon
    )


def _unrated_weight(constants: Constants, sampled: bool) -> float:
    """Weight of all unrated items at once; sampled ones have theirs in the data."""
    return constants.alpha if constants.weighting == "include-unrated" and not sampled else 0.0


def client_factors(
    constants: Constants, state: State, data: Data, sampled: bool = False
) -> Float[Array, "users K"]:
    """Compute P as this round uses it: Eq. (8) in semi-als; in sgd it stays that of the state.

    References
    ----------
    Paper 000 (arXiv:2210.07775), Eq. (8).
    """
    if constants.update == "sgd":
        return state.client_factors
    return _solve_clients(constants, sampled, state.item_factors, state.attribute_factors, data)


def _solve_clients(
    constants: Constants,
    sampled: bool,
    items: Float[Array, "items K"],
    attributes: Float[Array, "attributes K"],
    data: Data,
) -> Float[Array, "users K"]:
    """Eq. (8), with what it sums over entries formed first."""
    gram, right = normal_equations(data, np.asarray(items))
    return _solved(constants, sampled, items, attributes, data.attributes, gram, right)


@partial(jax.jit, static_argnums=(0, 1))
def _solved(
    constants: Constants,
    sampled: bool,
    items: Float[Array, "items K"],
    attributes: Float[Array, "attributes K"],
    clients_attributes: Float[Array, "users attributes"],
    gram: Float[Array, "users pairs"],
    right: Float[Array, "users K"],
) -> Float[Array, "users K"]:
    """Eq. (8). Q'CQ = alpha Q'Q + (1 - alpha) sum over rated items of q q', so that unrated items
    cost nothing per user; of that sum only the upper triangle is given.
    """
    n_users, k = right.shape
    upper = jnp.triu_indices(k)
    alpha = _unrated_weight(constants, sampled)
    square = jnp.zeros((n_users, k, k)).at[:, upper[0], upper[1]].set((1 - alpha) * gram)
    square = square.at[:, upper[1], upper[0]].set((1 - alpha) * gram)
    common = alpha * items.T @ items + constants.lambda_attributes * attributes.T @ attributes
    right += constants.lambda_attributes * clients_attributes @ attributes
    square = square + common + constants.lambda_factors * jnp.eye(k)
    return jnp.linalg.solve(square, right[..., None])[..., 0]


def feature_factors(
    constants: Constants, state: State, table: Float[Array, "items features"]
) -> Float[Array, "features K"]:
    """Compute V as this round uses it: Eq. (11) in semi-als; in sgd it stays that of the state.

    It stays, too, where items have no features.

    References
    ----------
    Paper 000 (arXiv:2210.07775), Eq. (11).
    """
    if constants.update == "sgd" or not table.shape[1]:
        return state.feature_factors
    ridge = constants.lambda_factors / max(constants.lambda_attributes, 1e-12)
    return _solved_features(ridge, state.item_factors, table)


@jax.jit
def _solved_features(
    ridge: float | Array, items: Float[Array, "items K"], table: Float[Array, "items features"]
) -> Float[Array, "features K"]:
    square = items.T @ items + ridge * jnp.eye(items.shape[1])
    return jnp.linalg.solve(square, items.T @ table).T


def round_step(
    constants: Constants, state: State, data: Data, received: Received | None, sampled: bool = False
) -> State:
    """Compute the state after one round of Algorithm 1.

    References
    ----------
    Paper 000 (arXiv:2210.07775), Algorithm 1.
    """
    clients = client_factors(constants, state, data, sampled)
    items, to_clients = state.item_factors, None
    to_items = received.items if received is not None else None
    if to_items is None or constants.update == "sgd":
        excess = weighted_errors(items, clients, data, _unrated_weight(constants, sampled))
        if to_items is None:
            to_items = summed_by_item(data, excess, np.asarray(clients), items.shape[0])
        if constants.update == "sgd":
            to_clients = summed_by_user(data, excess, np.asarray(items))
    features = feature_factors(constants, state, data.item_features)
    tables = data.attributes, data.item_features
    arrived = received.attributes if received is not None else None
    return _stepped(constants, sampled, state, clients, features, tables, to_items, to_clients, arrived)


@partial(jax.jit, static_argnums=(0, 1))
def _stepped(
    constants: Constants,
    sampled: bool,
    state: State,
    clients: Float[Array, "users K"],
    features: Float[Array, "features K"],
    tables: tuple[Float[Array, "users attributes"], Float[Array, "items features"]],
    to_items: Float[Array, "items K"],
    to_clients: Float[Array, "users K"] | None,
    arrived: Float[Array, "attributes K"] | None,
) -> State:
    """The steps of all parties, given the sums over entries, and over attributes where those arrived."""
    items, attributes = state.item_factors, state.attribute_factors
    alpha = _unrated_weight(constants, sampled)
    residual = tables[0] - clients @ attributes.T
    to_attributes = residual.T @ clients
    if arrived is None:
        to_items -= alpha * items @ (clients.T @ clients)
    else:
        to_attributes = arrived

    misfit = tables[1] - items @ features.T
    item_gradient = (
        -2 * to_items
        - 2 * constants.lambda_attributes * misfit @ features
        + 2 * constants.lambda_factors * items
    )
    attribute_gradient = (
        -2 * constants.lambda_attributes * to_attributes + 2 * constants.lambda_factors * attributes
    )
    step, adam = optimizer(constants).update((item_gradient, attribute_gradient), state.adam)
    new_items, new_attributes = optax.apply_updates((items, attributes), step)

    if to_clients is not None:  # sgd: Eq. (9), (10) for P and (12), (13) for V
        rate = constants.client_learning_rate
        ascent = to_clients - alpha * clients @ (items.T @ items)
        ascent += constants.lambda_attributes * residual @ attributes
        clients = (1 - 2 * rate * constants.lambda_factors) * clients + 2 * rate * ascent
        features = (1 - 2 * rate * constants.lambda_factors) * features
        features += 2 * rate * constants.lambda_attributes * misfit.T @ items
    return state._replace(
        round=state.round + 1,
        item_factors=new_items,
        attribute_factors=new_attributes,
        feature_factors=features,
        client_factors=clients,
        adam=adam,
    )


def normal_equations(
    data: Data, items: Float[np.ndarray, "items K"]
) -> tuple[Float[np.ndarray, "users pairs"], Float[np.ndarray, "users K"]]:
    """Sum c q q' and c r q over the entries of each client.

    References
    ----------
    Paper 000 (arXiv:2210.07775), Eq. (8).
    """
    n_items, k = items.shape
    weights = _matrix(data, data.weight, n_items)
    first, second = np.triu_indices(k)
    gram = np.empty((data.start.size - 1, first.size))
    width = max(1, COLUMN_BYTES // (8 * max(n_items, 1)))
    for start in range(0, first.size, width):
        some = slice(start, start + width)
        gram[:, some] = weights @ (items[:, first[some]] * items[:, second[some]])
    return gram, _matrix(data, data.value, n_items) @ items


@partial(jax.jit, static_argnums=3)
def weighted_errors(
    items: Float[Array, "items K"], clients: Float[Array, "users K"], data: Data, alpha: float
) -> Float[Array, " entries"]:
    """Compute c e of every entry, without its part of the sum over all items.

    c e over all items = alpha (0 - p . q) everywhere + (r - (1 - alpha) p . q) where rated.

    References
    ----------
    Paper 000 (arXiv:2210.07775), Algorithm 1.
    """
    by_item, by_user = items.T, clients.T

    def added(factor: Array, predicted: Array) -> Array:
        return predicted + by_item[factor][data.item] * by_user[factor][data.user]

    predicted = jax.lax.fori_loop(0, items.shape[1], added, jnp.zeros(data.value.shape))
    return data.weight * (data.value - (1 - alpha) * predicted)


def summed_by_item(
    data: Data, values: Float[Array, " entries"], clients: Float[np.ndarray, "users K"], n_items: int
) -> Float[np.ndarray, "items K"]:
    """Sum a number of each entry times its client's factor over the entries of each item."""
    return _matrix(data, values, n_items).T @ clients


def summed_by_user(
    data: Data, values: Float[Array, " entries"], items: Float[np.ndarray, "items K"]
) -> Float[np.ndarray, "users K"]:
    """Sum a number of each entry times its item's factor over the entries of each client."""
    return _matrix(data, values, items.shape[0]) @ items


def _matrix(data: Data, values: Float[Array, " entries"], n_items: int) -> sp.csr_array:
    """Clients by items; the arrays are those of the data, not copies."""
    shape = data.start.size - 1, n_items
    return sp.csr_array((np.asarray(values), np.asarray(data.item), np.asarray(data.start)), shape=shape)
