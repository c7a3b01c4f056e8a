"""Local training of any clients of a task, and the rows that they send: items ascending, then attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from victims.common.seeds import Purpose, generator
from victims.protocols.client_task import Task
from victims.protocols.exchanged import Rows, pieces
from victims.protocols.local_training import Habits, Local, Rule, SizeClass, size_classes, train
from victims.transcript.view import ATTRIBUTE, ITEM


class Piece(NamedTuple):
    """Some clients: their rows, and their factors afterwards."""

    users: Int[np.ndarray, " users"]
    rows: Rows
    clients: Float[np.ndarray, "users K"]


def trained_pieces(task: Task, users: Int[np.ndarray, " users"]) -> Iterator[Piece]:
    """Train some clients locally, in memory-sized pieces."""
    every = np.asarray(task.data.user)
    first, last = (np.searchsorted(every, users, side=side) for side in ("left", "right"))
    n_attributes, factors = task.attributes.shape
    order = _order(task, every)
    user_number = np.arange(users.size)
    for here in pieces(user_number, last - first + n_attributes, factors):
        yield _trained(task, users[here], first[here], (last - first)[here], order)


def _order(task: Task, user: np.ndarray) -> Int[np.ndarray, " entries"]:
    """Entries, client by client, as clients go through them."""
    if task.switches.shuffle == "never":
        return np.arange(user.size)
    numbers = () if task.switches.shuffle == "once" else (task.round,)
    drawn = generator(task.seed, Purpose.CLIENT_ORDER, *numbers).random(user.size)
    return np.lexsort((drawn, user))


def _trained(task: Task, users: np.ndarray, first: np.ndarray, count: np.ndarray, order: np.ndarray) -> Piece:
    """Local training of some clients, whose entries are taken as the only ones there are."""
    switches, factors = task.switches, task.items.shape[1]
    start = np.cumsum(count) - count
    place = np.repeat(first - start, count) + np.arange(count.sum())  # entry of each entry taken
    own_order = order[place] - np.repeat(first - start, count)
    index, value, weight = (np.asarray(a)[place] for a in (task.data.item, task.data.value, task.data.weight))
    own, items, attributes = _with_biases(task, users)
    columns = np.asarray(task.data.attributes)[users][:, : len(attributes)]
    clients = np.empty_like(own)
    sent, bias = np.empty((index.size, factors)), np.empty(index.size)
    sent_attributes = np.empty((*columns.shape, factors))
    for group in size_classes(start, count, own_order, switches.ratings_of_a_step):
        there = group.entry >= 0
        entry = np.maximum(group.entry, 0)
        at = group.place if group.place.size == len(entry) else np.resize(group.place, len(entry))
        copies = items[index[entry]] if index.size else np.zeros((*entry.shape, items.shape[1]))
        known = (np.where(there, a[entry] if a.size else 0.0, 0.0) for a in (value, weight))
        local = train(
            _habits(task, group),
            _rule(task, own.shape[1]),
            *map(jnp.asarray, (own[at], copies, *known, attributes, columns[at])),
        )
        n = group.place.size
        clients[group.place] = np.asarray(local.own)[:n]
        rows, change, said = _formed(task, local, copies, attributes, n)
        took = group.entry[there]
        sent[took], bias[took] = rows[there[:n]], change[there[:n]]
        sent_attributes[group.place] = said
    laid_out = _laid_out(task, users, start, count, own_order, index, sent, bias, sent_attributes)
    return Piece(users, laid_out, clients)


def _with_biases(task: Task, users: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(u, c, 1), (w, 1, b) and attributes with two zeros, or the factors as they are."""
    own = task.clients[users]
    if task.biases is None:
        return own, task.items, task.attributes
    ones = np.ones((len(task.items), 1))
    items = np.concatenate([task.items, ones, task.biases.items[:, None]], axis=1)
    own = np.concatenate([own, task.biases.clients[users][:, None], np.ones((users.size, 1))], axis=1)
    return own, items, np.pad(task.attributes, ((0, 0), (0, 2)))


def _habits(task: Task, group: SizeClass) -> Habits:
    switches = task.switches
    return Habits(
        steps=group.steps,
        passes=switches.local_steps,
        together=switches.ratings_of_a_step is None,
        mean=switches.reduction == "mean",
        moves_items=switches.sends != "gradient",
        unit_ball=task.step.unit_ball,
        ridge_per_rating=task.step.ridge_per_rating,
        after=switches.row_factor == "after",
        factors=task.items.shape[1],
    )


def _rule(task: Task, width: int) -> Rule:
    step, factors = task.step, task.items.shape[1]
    own, item = np.ones(width, bool), np.ones(width, bool)
    own[factors:] = item[factors:] = False
    if task.biases is not None:
        own[factors], item[factors + 1] = task.switches.biases == "both", True
    numbers = (step.rate, step.ridge, step.item_pull, step.attribute_weight)
    rate, ridge, pull, weight = (jnp.asarray(number, jnp.float64) for number in numbers)
    return Rule(rate, ridge, pull, weight, jnp.asarray(own), jnp.asarray(item))


def _formed(
    task: Task, local: Local, copies: np.ndarray, attributes: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows as they are sent, the change of the item's bias beside each, and rows of attributes."""
    step, factors = task.step, task.items.shape[1]
    before, sends = copies[:n], task.switches.sends
    if sends == "gradient":
        ascent, said = np.asarray(local.rows)[:n], np.asarray(local.attribute_rows)[:n]
        rows = step.scale * ascent + step.pull * before
        change = 2 * step.rate * (ascent - step.item_pull * before)
        said = step.scale * said
    else:
        rows, said = np.asarray(local.items)[:n], np.asarray(local.attributes)[:n]
        change = rows - before
        if sends == "delta":
            rows, said = change, said - attributes
    bias = change[..., -1] if task.biases is not None else np.zeros(change.shape[:2])
    return rows[..., :factors], bias, said[..., :factors]


def _laid_out(
    task: Task,
    users: np.ndarray,
    start: np.ndarray,
    count: np.ndarray,
    order: np.ndarray,
    index: np.ndarray,
    sent: np.ndarray,
    bias: np.ndarray,
    sent_attributes: np.ndarray,
) -> Rows:
    """Rows client by client, items ascending, then attributes."""
    n_attributes = len(task.attributes)
    client = np.repeat(np.arange(users.size), count)
    of_item = np.arange(index.size) + client * n_attributes
    of_attribute = (start + count + np.arange(users.size) * n_attributes)[:, None] + np.arange(n_attributes)
    n_rows = index.size + users.size * n_attributes
    kind = np.full(n_rows, ATTRIBUTE, np.int8)
    kind[of_item] = ITEM
    numbers = np.empty(n_rows, np.int32)
    numbers[of_item], numbers[of_attribute] = index, np.arange(n_attributes)
    gradient = np.empty((n_rows, sent.shape[1]))
    gradient[of_item], gradient[of_attribute] = sent, sent_attributes
    beside = None
    if task.biases is not None:
        beside = np.zeros(n_rows)
        beside[of_item] = bias
    sequence = None
    if task.switches.ratings_of_a_step is not None and task.switches.sends == "gradient":
        sequence = np.empty(n_rows, np.int32)
        sequence[of_item[order]] = np.arange(index.size) - np.repeat(start, count)
        sequence[of_attribute] = count[:, None] + np.arange(n_attributes)
    sender = np.repeat(users, count + n_attributes).astype(np.int32)
    return Rows(sender, kind, numbers, gradient, sequence=sequence, bias=beside)
