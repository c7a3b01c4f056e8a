"""Probabilistic matrix factorisation with every rating in one place: explicit, Gaussian, on raw ratings.

R. Salakhutdinov and A. Mnih, NIPS 2007: the reference of paper 003's Table 2. Loss and steps are those of
``victims.protocols.pdmfrec`` with one V: e = r - u.v, u <- u - gamma (-e v + alpha u), v <- v - gamma (-e u +
alpha v), rating by rating. Ratings that share neither a client nor an item do not meet each other's factors,
so a batch of such is one step of arrays, and the same as its ratings one after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.base import Products


class Factors(NamedTuple):
    """U (n_users, K) and V (n_items, K)."""

    clients: Float[np.ndarray, "users K"]
    items: Float[np.ndarray, "items K"]

    def predictor(self) -> Products:
        """U V'."""
        return Products(*self)


def pmf_start(ratings: Ratings, factors: int, init_scale: float, seed: int) -> Factors:
    """Entries uniform on 0..``init_scale``."""
    rng = generator(seed, Purpose.PMF_START)
    shapes = (ratings.n_users, factors), (ratings.n_items, factors)
    return Factors(*(init_scale * rng.random(shape) for shape in shapes))


def disjoint_batches(ratings: Ratings, seed: int) -> list[Int[np.ndarray, " _"]]:
    """Numbers of ratings, cut so that no two of a batch share a client or an item.

    Ratings in random order, each into the first batch that has neither its client nor its item.
    """
    order = generator(seed, Purpose.PMF_START, 1).permutation(ratings.n_ratings)
    of_user, of_item = [0] * ratings.n_users, [0] * ratings.n_items  # a bit for each batch they are in
    batch = np.empty(ratings.n_ratings, np.int64)
    for entry, user, item in zip(
        order.tolist(), ratings.users[order].tolist(), ratings.items[order].tolist(), strict=True
    ):
        free = ~(of_user[user] | of_item[item])
        first = free & -free
        of_user[user] |= first
        of_item[item] |= first
        batch[entry] = first.bit_length() - 1
    by_batch = np.argsort(batch, kind="stable")
    return np.split(by_batch, np.flatnonzero(np.diff(batch[by_batch])) + 1)


def pmf_epoch(
    now: Factors,
    ratings: Ratings,
    batches: list[Int[np.ndarray, " _"]],
    rate: float,
    alpha: float,
    seed: int,
    epoch: int,
) -> Factors:
    """One pass over all ratings, batches in a new random order."""
    clients, items, users = now.clients.copy(), now.items.copy(), ratings.users
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        for at in generator(seed, Purpose.PMF_START, 2, epoch).permutation(len(batches)).tolist():
            entry = batches[at]
            user, item = users[entry], ratings.items[entry]
            u, v = clients[user], items[item]
            error = (ratings.values[entry] - np.einsum("nk,nk->n", u, v))[:, None]
            clients[user] = u + rate * (error * v - alpha * u)
            items[item] = v + rate * (error * u - alpha * v)
    if not (np.isfinite(clients).all() and np.isfinite(items).all()):
        raise InputError(f"pmf diverged in epoch {epoch}; lower learning_rate (now {rate:g})")
    return Factors(clients, items)
