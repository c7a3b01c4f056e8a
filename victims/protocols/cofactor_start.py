"""Start of users who learn shared tables together (paper 004), which the paper does not give.

The model has no biases and a logistic link, so that a user who hears nothing of an item predicts from the
shared start: with zero-mean factors that is 1/2, far below a mean rating. ``positive`` starts U and V from
uniform numbers in s / sqrt(K) (1 -+ spread), whose products have the mean s^2 at every K. The spread decides
how much items differ that nobody told the user of.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.cofactor_round import State, Table
from victims.protocols.cofactor_steps import explicit_counts
from victims.protocols.feedback import EXPLICIT, Samples
from victims.protocols.network import Edges
from victims.protocols.own_copies import Copies, copies_of


class Start(NamedTuple):
    """How factors start."""

    factors: int  # K
    kind: Literal["positive", "normal"]  # of U and V: uniform as above, or N(0, scale)
    scale: float  # s, or the standard deviation
    spread: float  # of ``positive``, in 0..1
    implicit_scale: float  # standard deviation of Z and Q, which start around zero
    # whether v_q and z_q start at zero, or each user's at its own draw: then no pair of user and item is left
    # where the start is, and a copy of both tables is held for every user
    personal: Literal["zero", "private"]
    personal_scale: float  # standard deviation of that draw


def start_state(start: Start, ratings: Ratings, samples: Samples, edges: Edges | None, seed: int) -> State:
    """The state before round 0."""
    n_users, n_items = ratings.n_users, ratings.n_items
    clients = _main(start, n_users, seed, 0)
    shared = _main(start, n_items, seed, 1), _small(start, n_items, seed, 2)
    items, implicit = (
        Table(copies_of(table), _personal(start, n_users, n_items, seed, number))
        for number, table in enumerate(shared)
    )
    user = samples.user[samples.kind == EXPLICIT]
    drawn = _small(start, user.size, seed, 3)
    sums = np.stack([np.bincount(user, column, minlength=n_users) for column in drawn.T], axis=1)
    offsets = sums / np.maximum(explicit_counts(samples, n_users), 1)[:, None]
    return State(0, seed, clients, offsets, items, implicit, samples, edges)


def _main(start: Start, n_rows: int, seed: int, number: int) -> Float[np.ndarray, "rows K"]:
    rng = generator(seed, Purpose.DPMF_START, number)
    if start.kind == "normal":
        return start.scale * rng.normal(size=(n_rows, start.factors))
    middle = start.scale / np.sqrt(start.factors)
    return middle * rng.uniform(1 - start.spread, 1 + start.spread, (n_rows, start.factors))


def _small(start: Start, n_rows: int, seed: int, number: int) -> Float[np.ndarray, "rows K"]:
    rng = generator(seed, Purpose.DPMF_START, number)
    return start.implicit_scale * rng.normal(size=(n_rows, start.factors))


def _personal(start: Start, n_users: int, n_items: int, seed: int, number: int) -> Copies:
    zero = np.zeros((n_items, start.factors))
    if start.personal == "zero":
        return copies_of(zero)
    keys = np.arange(n_users * n_items, dtype=np.int64)
    drawn = generator(seed, Purpose.PERSONAL_START, number).normal(size=(keys.size, start.factors))
    return Copies(zero, keys, start.personal_scale * drawn)
