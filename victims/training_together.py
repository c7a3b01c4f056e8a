"""Trainings that differ in learning rate and regularization alone, at the cost of little more than one.

Every candidate of a search sees the same ratings, order and noise. Where the server of Hu & Fang 2023 steps
at every upload they are drawn once, and every step is made for all candidates together: the last axis of the
factors numbers them. Tables of steps are padded to powers of two, so that all folds of a search share their
compiled programs. Other orders are trained one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from victims.common.errors import InputError
from victims.common.limits import are_plausible
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.base import Received
from victims.protocols.decentralised_mf import DecentralisedMF, State, client_step, item_step
from victims.protocols.jax_ratings import Data, device_data
from victims.protocols.sequential import Chains, chains
from victims.training import Run, received

Table = Float[Array, "rows K candidates"]


def trained_together(runs: Sequence[Run], rounds: int) -> list[Run | InputError]:
    """Train runs of the same ratings, defenses and seed."""
    victims = _alike([run.victim for run in runs])
    if victims is None:
        return [_trained(run, rounds) for run in runs]
    ridges = np.array([victim.regularization for victim in victims])
    states = [run.state for run in runs]
    for number in range(rounds):
        arrived = received(runs[0], number)  # noise that does not depend on rows, so on no candidate
        rates = np.array([victim.rate(number) for victim in victims])
        states = _epoch_together(states, runs[0].ratings, rates, ridges, arrived)
    return [
        run._replace(state=state)
        if are_plausible(state.item_factors, state.client_factors)
        else _diverged(victim.learning_rate, rounds)
        for run, victim, state in zip(runs, victims, states, strict=True)
    ]


def _alike(victims: Sequence[object]) -> list[DecentralisedMF] | None:
    """The victims, where they differ in learning rate and regularization alone, of the order per-rating."""
    ours = [one for one in victims if isinstance(one, DecentralisedMF)]
    if len(ours) < len(victims):
        return None
    first = ours[0]
    if first.order == "batch" or first.participation < 1 or first.dropout > 0:
        return None
    rate, ridge = first.learning_rate, first.regularization
    same = (replace(one, learning_rate=rate, regularization=ridge) == first for one in ours)
    return ours if all(same) else None


def _diverged(rate: float, rounds: int) -> InputError:
    return InputError(
        f"the training diverged within {rounds} rounds: factors must stay finite; lower learning_rate (now "
        f"{rate:g})"
    )


def _trained(run: Run, rounds: int) -> Run | InputError:
    try:
        for number in range(rounds):
            run = run.trained(number)
    except InputError as error:
        return error
    return run


def _epoch_together(
    states: Sequence[State],
    ratings: Ratings,
    rates: Float[np.ndarray, " candidates"],
    ridges: Float[np.ndarray, " candidates"],
    received: Received | None,
) -> list[State]:
    """Make one epoch in the order per-rating for every candidate."""
    first = states[0]
    if {(state.seed, state.round) for state in states} != {(first.seed, first.round)}:
        raise InputError(
            "trainings that are made together must have one seed and one round; start them alike"
        )
    items, clients = (
        jnp.stack(tables, axis=2)
        for tables in zip(*((state.item_factors, state.client_factors) for state in states), strict=True)
    )
    rng = generator(first.seed, Purpose.RATING_ORDER, first.round)
    data, added = device_data(ratings), None if received is None else jnp.asarray(received.added)
    rate, ridge = jnp.asarray(rates), jnp.asarray(ridges)
    by_item = chains(ratings.items, ratings.n_items, rng)
    items = _walked(items, by_item, partial(_items_walk, clients, data, rate, ridge, added))
    by_user = chains(ratings.users, ratings.n_users, rng)
    clients = _walked(clients, by_user, partial(_clients_walk, items, data, rate, ridge))
    return [
        State(first.round + 1, first.seed, items[:, :, number], clients[:, :, number])
        for number in range(len(states))
    ]


def _walked(factors: Table, order: Chains, walk: Callable[[int, Array, Array], Array]) -> Table:
    """All steps of all groups, table by table."""
    n_rows = _power_of_two(order.groups.size)
    moved = jnp.pad(factors[order.groups], ((0, n_rows - order.groups.size), (0, 0), (0, 0)))
    for table in order.tables:
        steps = _padded(table)
        width = steps.shape[1]
        moved = moved.at[:width].set(walk(table.shape[0], jnp.asarray(steps), moved[:width]))
    return factors.at[order.groups].set(moved[: order.groups.size])


def _padded(table: Int[np.ndarray, "steps width"]) -> Int[np.ndarray, "more wider"]:
    more, wider = (_power_of_two(size) - size for size in table.shape)
    return np.pad(table, ((0, more), (0, wider)), constant_values=-1)


def _power_of_two(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


@jax.jit
def _items_walk(
    clients: Array, data: Data, rate: Array, ridge: Array, added: Array | None, steps: Array, table: Array,
    items: Array,
) -> Array:  # fmt: skip
    step = jax.vmap(item_step, in_axes=(2, None, 2, None, 0, 0, None), out_axes=2)
    return jax.lax.fori_loop(
        0, steps, lambda k, v: step(v, table[k], clients, data, rate, ridge, added), items
    )


@jax.jit
def _clients_walk(
    items: Array, data: Data, rate: Array, ridge: Array, steps: Array, table: Array, clients: Array
) -> Array:
    step = jax.vmap(client_step, in_axes=(2, None, 2, None, 0, 0), out_axes=2)
    return jax.lax.fori_loop(0, steps, lambda k, u: step(u, table[k], items, data, rate, ridge), clients)
