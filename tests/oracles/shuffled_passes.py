"""Clients that go several times through their ratings, each time in another order, in plain NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from victims.transcript.recorder import Recorder

LEVELS = np.arange(1.0, 6.0)


@dataclass(frozen=True)
class ShuffledPasses:
    """How clients train."""

    rate: float = 0.01  # of factor and copies
    passes: int = 2  # of the ratings; ratings of a minibatch
    batch: int = 1  # of the ratings; ratings of a minibatch
    mean: bool = False  # whether a minibatch is averaged

    def rows(self, p: np.ndarray, v: np.ndarray, ratings: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """How far the copies of the items moved; ``ratings`` less biases, if there are."""
        u, copy = p.copy(), v.copy()
        for _ in range(self.passes):
            order = rng.permutation(ratings.size)
            for start in range(0, ratings.size, self.batch):
                at = order[start : start + self.batch]
                error = ratings[at] - copy[at] @ u
                error = error / at.size if self.mean else error
                u, copy[at] = u + self.rate * error @ copy[at], copy[at] + self.rate * error[:, None] * u
        return copy - v


def made_up(n_users: int, n_items: int, *, factors: int, seed: int) -> tuple[np.ndarray, ...]:
    """Users, items and stars about factors near whose products these lie, those factors, and no biases."""
    rng = np.random.default_rng(seed)
    users, items = np.nonzero(rng.random((n_users, n_items)) < 0.3)
    middle = np.sqrt(3.5 / factors)
    p, q = rng.normal(middle, 0.3, (n_users, factors)), rng.normal(middle, 0.3, (n_items, factors))
    score = (p[users] * q[items]).sum(axis=1) + rng.normal(0, 0.8, users.size)
    return users, items, np.clip(np.rint(score), 1, 5), p, q, np.zeros(n_items)


def recorded(
    path: Path, client: ShuffledPasses, data: tuple[np.ndarray, ...], some: range, seed: int
) -> np.ndarray:
    """One round of some users; returns ratings (users, items), 0 where unrated."""
    users, items, ratings, p, q, bias = data
    rng = np.random.default_rng(seed)
    table = np.zeros((len(some), len(q)))
    with Recorder(path, rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, q, **({"biases": bias} if bias.any() else {}))
        for number, user in enumerate(some):
            own, stars = items[users == user], ratings[users == user]
            table[number, own] = stars
            recorder.upload(0, number, client.rows(p[user], q[own], stars - bias[own], rng), own)
    return table
