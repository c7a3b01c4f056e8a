"""What clients do between broadcast and upload under the switches, and what becomes of what they send.

A victim says with a ``Task`` what its clients' step is and what a gradient is; everything else is here, once
for all victims with a server, and all clients go at once.

Every client goes ``local_steps`` times through its ratings, a minibatch at a time. One minibatch b moves its
factor u and, where it sends copies, its copies w_j of the item factors, both from the same point:

    u   <- P(shrink u + 2 gamma sum_b c_j e_j w_j)     w_j <- w_j + 2 gamma (c_j e_j u - mu w_j)

with errors e_j = r_j - u . w_j, the sums divided by the size of b where the reduction is a mean, and P the
projection that the protocol has. Attributes of FedMVMF take part in a step over all ratings, and otherwise
make the last step of a pass. Biases are two more coordinates of u and w: (u, c, 1) . (w, 1, b).

Clients of similar size share one array (users, ratings), padded to a power of two in both directions, so that
few shapes are compiled; scans go over minibatches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.exchanged import Received, Rows, pieces, ranges, summed_by
from victims.protocols.jax_ratings import Data
from victims.protocols.switches import Switches, present
from victims.transcript.kinds import ATTRIBUTE, ITEM

jax.config.update("jax_enable_x64", True)


class ClientStep(NamedTuple):
    """A protocol's step of its clients: p <- P(shrink p + 2 rate sum e q)."""

    rate: float  # gamma
    ridge: float  # lambda in shrink = 1 - 2 gamma lambda
    scale: float  # an uploaded gradient is scale c e p + pull q
    pull: float = 0.0
    item_pull: float = 0.0  # mu of the step of the client's copies of q
    attribute_weight: float = 0.0  # lambda_1
    ridge_per_rating: bool = False  # lambda counts once per rating
    unit_ball: bool = False  # p is projected


class Biases(NamedTuple):
    """Biases, in stars."""

    items: Float[np.ndarray, " items"]  # which are broadcast
    clients: Float[np.ndarray, " users"]  # zeros where they have none


def start_biases(switches: Switches, ratings: Ratings) -> Biases | None:
    """Start with the middle of the scale for every item, and with nothing for clients."""
    if switches.biases is None:
        return None
    middle = (ratings.levels[0] + ratings.levels[-1]) / 2
    return Biases(np.full(ratings.n_items, middle), np.zeros(ratings.n_users))


class Task(NamedTuple):
    """Everything that a round of the clients is a function of."""

    switches: Switches
    step: ClientStep
    data: Data  # what clients have rows of; by user, then item
    items: Float[np.ndarray, "items K"]  # as broadcast
    attributes: Float[np.ndarray, "attributes K"]  # as broadcast
    clients: Float[np.ndarray, "users K"]  # the clients' own
    seed: int
    round: int
    biases: Biases | None = None


def task_of(victim: Any, step: ClientStep, data: Data, state: Any, clients: Array | np.ndarray) -> Task:
    """The clients' side of a round of a victim with a server."""
    items, attributes = victim.broadcast(state)
    own, seed, round_ = np.asarray(clients), int(state.seed), int(state.round)
    return Task(victim, step, data, items, attributes, own, seed, round_, state.biases)


class Habits(NamedTuple):
    """What is compiled: numbers and choices that are fixed for a training."""

    steps: int  # minibatches of a pass
    passes: int
    together: bool  # attributes are part of the one step over all ratings
    mean: bool  # the reduction
    moves_items: bool  # the copies move
    unit_ball: bool  # u is projected
    ridge_per_rating: bool  # the ridge of u counts once per rating
    after: bool  # a row has u after its step
    factors: int  # K, without the coordinates of biases


class Rule(NamedTuple):
    """A step of a client on its own factor and its copies."""

    rate: Float[Array, ""]  # gamma
    ridge: Float[Array, ""]  # lambda of u
    item_pull: Float[Array, ""]  # mu of the copies
    attribute_weight: Float[Array, ""]  # lambda_1 of attributes
    own_moves: Bool[Array, " K"]  # which coordinates of u move
    item_moves: Bool[Array, " K"]  # which of w


class Local(NamedTuple):
    """Clients of one size, before and after."""

    own: Float[Array, "users K"]  # u
    items: Float[Array, "users ratings K"]  # w
    # copies of the attribute factors; one row for all users where they do not move
    attributes: Float[Array, "users attributes K"]
    # c e u of the last pass, over the size of the minibatch where that is a mean
    rows: Float[Array, "users ratings K"]
    attribute_rows: Float[Array, "users attributes K"]


@partial(jax.jit, static_argnums=0)
def train(
    habits: Habits,
    rule: Rule,
    own: Float[Array, "users K"],
    items: Float[Array, "users ratings K"],
    value: Float[Array, "users ratings"],
    weight: Float[Array, "users ratings"],
    attributes: Float[Array, "attributes K"],
    columns: Float[Array, "users attributes"],
) -> Local:
    """Train some clients locally."""
    users, ratings = value.shape
    copies = jnp.broadcast_to(attributes, (users, *attributes.shape))
    together = habits.together
    factors_move = rule.item_moves & (jnp.arange(own.shape[1]) < habits.factors)

    def blocks(table: Array) -> Array:
        return jnp.moveaxis(
            table.reshape(users, habits.steps, ratings // habits.steps, *table.shape[2:]), 1, 0
        )

    def joined(table: Array) -> Array:
        return jnp.moveaxis(table, 0, 1).reshape(users, ratings, *table.shape[3:])

    def step(
        carried: tuple[Array, Array], block: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        u, a = carried
        w, r, c = block
        some = jnp.sum(c > 0, axis=1)
        parts = jnp.maximum(some, 1) if habits.mean else jnp.ones_like(some)
        error = c * (r - jnp.einsum("uk,unk->un", u, w)) / parts[:, None]
        ascent = jnp.einsum("un,unk->uk", error, w)
        if together:
            ascent = ascent + _attribute_ascent(rule, u, a, columns)
        counted = (some / parts if habits.ridge_per_rating else jnp.ones_like(some))[:, None]
        moved = _moved(habits, rule, u, ascent, counted)
        moved = moved if together else jnp.where(some[:, None] > 0, moved, u)
        row = error[..., None] * (moved if habits.after else u)[:, None]
        if habits.moves_items:
            pulled = jnp.where((c > 0)[..., None], rule.item_pull * w, 0)
            w = jnp.where(rule.item_moves, w + 2 * rule.rate * (row - pulled), w)
        return (moved, a), (w, row)

    def one_pass(carried: Any, _: None) -> tuple[Any, None]:
        u, w, a, _rows, _said = carried
        before = u
        (u, a), (w, rows) = jax.lax.scan(step, (u, a), (w, blocks(value), blocks(weight)))
        before = before if together else u  # attributes come with the ratings, or after them
        said = (columns - jnp.einsum("uk,uak->ua", before, a))[..., None] * before[:, None]
        if not together and columns.shape[1]:
            ascent = _attribute_ascent(rule, u, a, columns)
            u = _moved(habits, rule, u, ascent, jnp.ones((users, 1)))
        if habits.moves_items:
            a = jnp.where(factors_move, a + 2 * rule.rate * said, a)
        return (u, w, a, rows, said), None

    start = own, blocks(items), copies, jnp.zeros_like(blocks(items)), jnp.zeros_like(copies)
    (u, w, a, rows, said), _ = jax.lax.scan(one_pass, start, None, length=habits.passes)
    return Local(u, joined(w), a, joined(rows), said)


def _attribute_ascent(rule: Rule, u: Array, a: Array, columns: Array) -> Array:
    error = columns - jnp.einsum("uk,uak->ua", u, a)
    return rule.attribute_weight * jnp.einsum("ua,uak->uk", error, a)


def _moved(habits: Habits, rule: Rule, u: Array, ascent: Array, counted: Array) -> Array:
    shrunk = (1 - 2 * rule.rate * rule.ridge * counted) * u + 2 * rule.rate * ascent
    moved = jnp.where(rule.own_moves, shrunk, u)
    if not habits.unit_ball:
        return moved
    length = jnp.linalg.norm(moved[:, : habits.factors], axis=1, keepdims=True)
    return jnp.where(jnp.arange(u.shape[1]) < habits.factors, moved / jnp.maximum(length, 1.0), moved)


SMALLEST = 16  # ratings of a class: padding them is cheaper than a program for each smaller power of two


class SizeClass(NamedTuple):
    """Clients of similar size."""

    place: Int[np.ndarray, " n"]  # which of the clients asked for; the rest of the users are padding
    # their ratings, in the order in which they go through them; -1 on padding
    entry: Int[np.ndarray, "users ratings"]
    steps: int  # minibatches


def size_classes(
    first: Int[np.ndarray, " users"],
    count: Int[np.ndarray, " users"],
    order: Int[np.ndarray, " entries"],
    of_step: int | None,
) -> Iterator[SizeClass]:
    """Group clients by the next power of two of how many ratings they have, ``SMALLEST`` and more."""
    size = 2 ** np.ceil(np.log2(np.maximum(count, SMALLEST))).astype(np.int64)
    for width in np.unique(size).tolist():
        position = np.flatnonzero(size == width)
        at_once = width if of_step is None else min(of_step, width)
        steps = -(-width // at_once)
        rank = np.arange(steps * at_once)
        users = 1 << (position.size - 1).bit_length()
        entry = np.full((users, rank.size), -1, np.int64)
        here = rank < count[position][:, None]
        entry[: position.size][here] = order[(first[position][:, None] + rank)[here]]
        yield SizeClass(position, entry, steps)


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
    place = ranges(first, count)  # entry of each entry taken
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


class Outcome(NamedTuple):
    """A round, as the server and the clients have it."""

    items: Float[np.ndarray, "items K"]  # sums of what arrived, as gradients of the protocol
    attributes: Float[np.ndarray, "attributes K"]  # sums of what arrived, as gradients of the protocol
    senders: Float[np.ndarray, " items"]  # rows that arrived about each item
    clients: Float[np.ndarray, "users K"]  # their factors after the round
    stepping: Bool[np.ndarray, " users"]  # who took part
    biases: Biases | None  # after the round


def rows_of_round(task: Task, users: Int[np.ndarray, " some"]) -> Iterator[Rows]:
    """Compute the rows of those of some clients who are heard in the round."""
    heard = present(task.switches, len(task.clients), task.seed, task.round).heard
    for piece in trained_pieces(task, users[heard[users]]):
        yield piece.rows


def after_round(task: Task, received: Received | None) -> Outcome:
    """Compute what becomes of the clients, and the sums that the server has of them."""
    stepping, heard = present(task.switches, len(task.clients), task.seed, task.round)
    items, attributes = np.zeros_like(task.items), np.zeros_like(task.attributes)
    senders, bias = np.zeros(len(items)), np.zeros(len(items))
    clients = np.array(task.clients)
    biases = None if task.biases is None else np.array(task.biases.clients)
    for piece in trained_pieces(task, np.flatnonzero(stepping)):
        clients[piece.users] = piece.clients[:, : clients.shape[1]]
        if biases is not None:
            biases[piece.users] = piece.clients[:, clients.shape[1]]
        arrived = heard[piece.rows.sender]
        for kind, total in ((ITEM, items), (ATTRIBUTE, attributes)):
            rows = arrived & (piece.rows.kind == kind)
            total[:] += summed_by(piece.rows.index[rows], piece.rows.gradient[rows], len(total))
        arrived &= piece.rows.kind == ITEM
        index = piece.rows.index[arrived]
        senders += np.bincount(index, minlength=senders.size)
        if piece.rows.bias is not None:
            bias += np.bincount(index, piece.rows.bias[arrived], minlength=bias.size)
    if received is not None:
        items, attributes = received.items, received.attributes
    n_heard = float(heard.sum())
    items = _as_gradients(task, items, task.items, senders[:, None])
    attributes = _as_gradients(task, attributes, task.attributes, n_heard)
    moved = None
    if task.biases is not None and biases is not None:
        moved = Biases(task.biases.items + bias, biases)
    return Outcome(items, attributes, senders, clients, stepping, moved)


def _as_gradients(
    task: Task, sums: np.ndarray, factors: np.ndarray, senders: float | np.ndarray
) -> Float[np.ndarray, "rows K"]:
    """Sums of the rows as if these were gradients, which the server's step is written for."""
    sends = task.switches.sends
    if sends == "gradient":
        return sums
    change = sums - senders * factors if sends == "weights" else sums
    return change * (task.step.scale / (2 * task.step.rate))
