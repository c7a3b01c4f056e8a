"""Passes of PDMFRec's clients over their ratings, all clients at once; symbols as in ``pdmfrec``.

A client rates an item once, so that a pass meets each of its V_i once, as it was before the pass. The
published orders have a function each; minibatches and means, of which they are cases, have their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings


class Pass(NamedTuple):
    """What one pass of clients over their ratings comes to."""

    clients: Float[np.ndarray, "users K"]  # U after it
    gradient: Float[np.ndarray, "ratings K"]  # the gradient of V_i^u of each rating


def pass_in_order(
    ratings: Ratings,
    order: Int[np.ndarray, " ratings"],
    clients: Float[np.ndarray, "users K"],
    items: Float[np.ndarray, "ratings K"],
    rate: float,
    alpha: float,
) -> Pass:
    """Equations (2) to (4) after each rating, all clients at once: the k-th rating of each in step k."""
    count = np.diff(ratings.indptr)
    largest = np.argsort(-count, kind="stable")
    busy = np.searchsorted(-count[largest], -np.arange(count.max(initial=0)), side="left")
    first = ratings.indptr[largest]
    u, gradient = clients[largest], np.empty_like(items)
    for step, width in enumerate(busy.tolist()):
        entry = order[first[:width] + step]
        now, v = u[:width], items[entry]
        error = (ratings.values[entry] - np.einsum("uk,uk->u", now, v))[:, None]
        gradient[entry] = alpha * v - error * now
        u[:width] = (1 - rate * alpha) * now + rate * error * v
    after = np.empty_like(u)
    after[largest] = u
    return Pass(after, gradient)


def pass_at_once(
    ratings: Ratings,
    clients: Float[np.ndarray, "users K"],
    items: Float[np.ndarray, "ratings K"],
    rate: float,
    alpha: float,
) -> Pass:
    """Equations (2) to (4) with all gradients at the state before the round."""
    users = ratings.users
    u = clients[users]
    error = (ratings.values - np.einsum("rk,rk->r", u, items))[:, None]
    of_users = alpha * u - error * items
    total = np.stack([np.bincount(users, c, minlength=len(clients)) for c in of_users.T], axis=1)
    return Pass(clients - rate * total, alpha * items - error * u)


def order_of_pass(ratings: Ratings, shuffle: str, seed: int, round_: int) -> Int[np.ndarray, " ratings"]:
    """Numbers of ratings, by client: as they are, in an order of its own, or in a new one each round."""
    if shuffle == "never":
        return np.arange(ratings.n_ratings)
    draw = round_ if shuffle == "rounds" else 0
    keys = generator(seed, Purpose.CLIENT_ORDER, draw).random(ratings.n_ratings)
    return np.lexsort((keys, ratings.users))


def pass_in_steps(
    ratings: Ratings,
    order: Int[np.ndarray, " ratings"],
    clients: Float[np.ndarray, "users K"],
    items: Float[np.ndarray, "ratings K"],
    rate: float,
    alpha: float,
    size: int | None,
    mean: bool,
) -> Pass:
    """Equations (2) to (4) after each minibatch: the k-th minibatch of each client in step k."""
    user = ratings.users[order]
    place = np.arange(user.size) - ratings.indptr[user]
    step = place // size if size is not None else np.zeros_like(place)
    by_step = np.argsort(step, kind="stable")
    u, gradient = clients.copy(), np.empty_like(items)
    for at in np.split(by_step, np.flatnonzero(np.diff(step[by_step])) + 1):
        entry, who = order[at], user[at]
        now, v = u[who], items[entry]
        parts = np.bincount(who, minlength=len(u))[who] if mean else np.ones(who.size)
        error = ((ratings.values[entry] - np.einsum("rk,rk->r", now, v)) / parts)[:, None]
        gradient[entry] = alpha * v - error * now
        of_users = alpha * now / parts[:, None] - error * v
        u -= rate * np.stack([np.bincount(who, c, minlength=len(u)) for c in of_users.T], axis=1)
    return Pass(u, gradient)
