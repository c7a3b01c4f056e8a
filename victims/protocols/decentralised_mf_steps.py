"""The two orders of an epoch of paper 002's protocol; symbols and equations as in ``decentralised_mf``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.base import Received, Rows, pieces
from victims.protocols.client_task import Biases
from victims.protocols.jax_ratings import Data
from victims.protocols.presence import Present
from victims.protocols.sequential import chains
from victims.transcript.view import ITEM

Scalar = float | Array


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: int
    seed: int
    item_factors: Float[Array, "items K"]
    client_factors: Float[Array, "users K"]
    biases: Biases | None = None


def projected(clients: Float[Array, "users K"]) -> Float[Array, "users K"]:
    """Shorten rows that are longer than 1 to length 1.

    References
    ----------
    Paper 002 (arXiv:2212.00306), Algorithm 1.
    """
    return clients / jnp.maximum(jnp.linalg.norm(clients, axis=1, keepdims=True), 1.0)


@partial(jax.jit, static_argnames="each")
def step_at_once(
    items: Array, clients: Array, data: Data, rate: Scalar, ridge: Scalar, sums: Array | None, each: bool
) -> tuple[Array, Array]:
    """Make a round of Algorithm 1: one step of V, then one of U with the new V.

    References
    ----------
    Paper 002 (arXiv:2212.00306), Algorithm 1, Eq. (4).
    """
    if sums is None:
        raters = clients[data.user]
        error = jnp.sum(raters * items[data.item], axis=1) - data.value
        sums = jax.ops.segment_sum(2 * error[:, None] * raters, data.item, items.shape[0])
    counted = jnp.ones(data.item.shape)
    of_items = jax.ops.segment_sum(counted, data.item, items.shape[0])[:, None] if each else 1.0
    items = items - rate * (sums + 2 * ridge * of_items * items)
    rated = items[data.item]
    error = jnp.sum(clients[data.user] * rated, axis=1) - data.value

    def over_users(values: Array) -> Array:
        return jax.ops.segment_sum(values, data.user, clients.shape[0], indices_are_sorted=True)

    of_clients = over_users(counted)[:, None] if each else 1.0
    gradient = over_users(2 * error[:, None] * rated) + 2 * ridge * of_clients * clients
    return items, projected(clients - rate * gradient)


def step_one_by_one(
    state: State,
    ratings: Ratings,
    data: Data,
    rate: float,
    ridge: float,
    received: Received | None,
    there: Present,
) -> tuple[Array, Array]:
    """Step with v_j for each rating, in random order, then with u_i for each in another."""
    rng = generator(state.seed, Purpose.RATING_ORDER, state.round)
    added = None if received is None else jnp.asarray(received.added)
    items, clients = state.item_factors, state.client_factors
    by_item = chains(ratings.items, ratings.n_items, rng)
    moved = items[by_item.groups]
    for table in _of(by_item.tables, ratings, there.heard):
        stepped = _item_steps(moved[: table.shape[1]], table, clients, data, rate, ridge, added, False)[0]
        moved = moved.at[: table.shape[1]].set(stepped)
    items = items.at[by_item.groups].set(moved)
    by_user = chains(ratings.users, ratings.n_users, rng)
    moved = clients[by_user.groups]
    for table in _of(by_user.tables, ratings, there.stepping):
        stepped = _client_steps(moved[: table.shape[1]], table, items, data, rate, ridge)
        moved = moved.at[: table.shape[1]].set(stepped)
    stepped = clients.at[by_user.groups].set(moved)
    if there.stepping.all():
        return items, stepped
    return items, jnp.where(
        there.stepping[:, None], stepped, clients
    )  # a projection may move others by an ulp


def references_one_by_one(
    state: State,
    ratings: Ratings,
    data: Data,
    rate: float,
    ridge: float,
    received: Received | None,
    there: Present,
) -> Float[np.ndarray, "entries K"]:
    """Find the v_j that each rating meets in ``step_one_by_one``."""
    rng = generator(state.seed, Purpose.RATING_ORDER, state.round)
    added = None if received is None else jnp.asarray(received.added)
    by_item = chains(ratings.items, ratings.n_items, rng)
    moved = state.item_factors[by_item.groups]
    found = np.array(state.item_factors)[ratings.items]
    for table in _of(by_item.tables, ratings, there.heard):
        width = table.shape[1]
        stepped, met = _item_steps(moved[:width], table, state.client_factors, data, rate, ridge, added, True)
        found[table[table >= 0]] = np.asarray(met)[table >= 0]
        moved = moved.at[:width].set(stepped)
    return found


def _of(tables: list[np.ndarray], ratings: Ratings, users: np.ndarray) -> list[np.ndarray]:
    """The same steps without the ratings of other users."""
    if users.all():
        return tables
    return [np.where((table >= 0) & users[ratings.users[table]], table, -1) for table in tables]


@partial(jax.jit, static_argnums=7)
def _item_steps(
    items: Array,
    table: Array,
    clients: Array,
    data: Data,
    rate: Scalar,
    ridge: Scalar,
    added: Array | None,
    keep: bool,
) -> tuple[Array, Array | None]:
    """The factors after all steps, and before each where they are to be kept."""

    def step(v: Array, entry: Array) -> tuple[Array, Array | None]:
        return item_step(v, entry, clients, data, rate, ridge, added), v if keep else None

    return jax.lax.scan(step, items, table)


def item_step(
    v: Array, entry: Array, clients: Array, data: Data, rate: Scalar, ridge: Scalar, added: Array | None
) -> Array:
    """Step once with the factor of each of some items."""
    rating = jnp.maximum(entry, 0)
    u = clients[data.user[rating]]
    error = jnp.sum(u * v, axis=1) - data.value[rating]
    gradient = 2 * error[:, None] * u + 2 * ridge * v
    gradient = gradient if added is None else gradient + added[rating]
    return v - rate * jnp.where(entry[:, None] >= 0, gradient, 0)


@jax.jit
def _client_steps(
    clients: Array, table: Array, items: Array, data: Data, rate: Scalar, ridge: Scalar
) -> Array:
    def step(u: Array, entry: Array) -> tuple[Array, None]:
        return client_step(u, entry, items, data, rate, ridge), None

    return jax.lax.scan(step, clients, table)[0]


def client_step(u: Array, entry: Array, items: Array, data: Data, rate: Scalar, ridge: Scalar) -> Array:
    """Step once with the factor of each of some clients, and project it to the unit ball."""
    rating = jnp.maximum(entry, 0)
    v = items[data.item[rating]]
    error = jnp.sum(u * v, axis=1) - data.value[rating]
    gradient = 2 * error[:, None] * v + 2 * ridge * u
    return projected(u - rate * jnp.where(entry[:, None] >= 0, gradient, 0))


def gradient_rows(
    ratings: Ratings, users: np.ndarray, state: State, met: Float[np.ndarray, "entries K"] | None = None
) -> Iterator[Rows]:
    """Compute the uploads of some clients, items ascending, in memory-sized pieces.

    References
    ----------
    Paper 002 (arXiv:2212.00306), Eq. (4).
    """
    items, clients = np.asarray(state.item_factors), np.asarray(state.client_factors)
    for piece in pieces(users, np.diff(ratings.indptr)[users], items.shape[1]):
        chosen = np.isin(ratings.users, piece) if piece.size < ratings.n_users else slice(None)
        sender, index = ratings.users[chosen], ratings.items[chosen]
        u, reference = clients[sender], None if met is None else met[chosen]
        at = items[index] if reference is None else reference
        error = np.einsum("rk,rk->r", u, at) - ratings.values[chosen]
        u *= 2 * error[:, None]
        yield Rows(sender, np.full(sender.size, ITEM, np.int8), index, u, reference=reference)
