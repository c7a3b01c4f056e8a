"""What clients do between broadcast and upload under the switches, all of them at once.

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

jax.config.update("jax_enable_x64", True)


class Habits(NamedTuple):
    """What is compiled: numbers and choices that are fixed for a training."""

    steps: int  # minibatches of a pass
    passes: int
    # whether attributes are part of the one step over all ratings; reduction; whether the copies move;
    # whether u is projected; whether its ridge counts once per rating; whether a row has u after its step
    together: bool
    # whether attributes are part of the one step over all ratings; reduction; whether the copies move;
    # whether u is projected; whether its ridge counts once per rating; whether a row has u after its step
    mean: bool
    # whether attributes are part of the one step over all ratings; reduction; whether the copies move;
    # whether u is projected; whether its ridge counts once per rating; whether a row has u after its step
    moves_items: bool
    # whether attributes are part of the one step over all ratings; reduction; whether the copies move;
    # whether u is projected; whether its ridge counts once per rating; whether a row has u after its step
    unit_ball: bool
    # whether attributes are part of the one step over all ratings; reduction; whether the copies move;
    # whether u is projected; whether its ridge counts once per rating; whether a row has u after its step
    ridge_per_rating: bool
    # whether attributes are part of the one step over all ratings; reduction; whether the copies move;
    # whether u is projected; whether its ridge counts once per rating; whether a row has u after its step
    after: bool
    factors: int  # K, without the coordinates of biases


class Rule(NamedTuple):
    """A step of a client on its own factor and its copies."""

    rate: Float[Array, ""]  # gamma, lambda of u, mu of the copies, lambda_1 of attributes
    ridge: Float[Array, ""]  # gamma, lambda of u, mu of the copies, lambda_1 of attributes
    item_pull: Float[Array, ""]  # gamma, lambda of u, mu of the copies, lambda_1 of attributes
    attribute_weight: Float[Array, ""]  # gamma, lambda of u, mu of the copies, lambda_1 of attributes
    own_moves: Bool[Array, " K"]  # which coordinates of u and w move
    item_moves: Bool[Array, " K"]  # which coordinates of u and w move


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
