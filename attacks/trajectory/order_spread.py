"""What the order of a client's ratings adds to its factor, where it steps after each of them and nobody sees
the order.

On average over the orders a pass is nearly that of a few steps over all ratings
(``attacks.client_rules.client_update.one_by_one``). How far one order is from that follows from the client's
ratings and the broadcast factors: a few orders are drawn, and followed from the factors and ratings that a
fit found. No truth is used, and the order that the client took stays unknown.

References
----------
arXiv:2212.00306, Algorithm 1, whose published numbers need a step after every rating.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from attacks.client_rules.client_update import Step, gram_of, move, target_of
from attacks.trajectory.factor_trajectories import Packed

ORDERS = 4  # that are drawn
LEAST = 1e-6  # deviation, for a precision that can be computed with


def order_spread(
    packed: Packed,
    step: Step,
    path: Float[np.ndarray, "users T K"],
    value: Float[np.ndarray, "users n"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "users rounds"]:
    """How far a pass in one order ends from what ``move`` says, round by round."""
    used = packed.factors if packed.broadcast is None else packed.broadcast
    seen = (used[:, 1:] if bool(step.after) else used[:, :-1]) * packed.valid[:, None, :, None]
    shrink, pull = np.asarray(step.shrink)[:, :-1], np.asarray(step.pull)[:-1]
    middle = _at_once(step, path[:, :-1], seen, value, shrink, pull)
    n_rated = np.maximum(packed.valid.sum(axis=1), 1)
    keep = 1 - (1 - shrink) / n_rated[:, None]  # a rating's share of the regularisation
    square = np.zeros(middle.shape[:2])
    for _ in range(ORDERS):
        away = _one_by_one(step, path[:, :-1], seen, value, packed.valid, keep, pull, rng) - middle
        square += (away**2).mean(axis=2)
    return np.maximum(np.sqrt(square / ORDERS), LEAST)


def _at_once(
    step: Step,
    path: Float[np.ndarray, "users rounds K"],
    seen: Float[np.ndarray, "users rounds n K"],
    value: Float[np.ndarray, "users n"],
    shrink: Float[np.ndarray, "users rounds"],
    pull: Float[np.ndarray, " rounds"],
) -> Float[np.ndarray, "users rounds K"]:
    """As the fit takes it."""
    met = jnp.asarray(seen)
    gram, target = gram_of(met, met), jax.vmap(target_of)(met, jnp.asarray(value))
    by_round = jax.vmap(move, in_axes=(None, 0, 0, 0, 0, 0))
    by_client = jax.jit(jax.vmap(by_round, in_axes=(None, 0, 0, 0, 0, None)))
    return np.asarray(
        by_client(step, jnp.asarray(path), gram, target, jnp.asarray(shrink), jnp.asarray(pull))
    )


def _one_by_one(
    step: Step,
    path: Float[np.ndarray, "users rounds K"],
    seen: Float[np.ndarray, "users rounds n K"],
    value: Float[np.ndarray, "users n"],
    valid: np.ndarray,
    keep: Float[np.ndarray, "users rounds"],
    pull: Float[np.ndarray, " rounds"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "users rounds K"]:
    """One order of each client and round, drawn at random."""
    users, rounds, n, _ = seen.shape
    order = rng.random((users, rounds, n)).argsort(axis=2)
    factor, client = path, np.arange(users)[:, None]
    for number in range(n):
        row = order[:, :, number]
        t = np.take_along_axis(seen, row[:, :, None, None], axis=2)[:, :, 0]
        error = value[client, row] - np.einsum("urk,urk->ur", factor, t)
        moved = keep[:, :, None] * factor + (pull * error)[:, :, None] * t
        if bool(step.projected):
            moved = moved / np.maximum(np.linalg.norm(moved, axis=2, keepdims=True), 1.0)
        factor = np.where(valid[client, row][:, :, None], moved, factor)
    return factor
