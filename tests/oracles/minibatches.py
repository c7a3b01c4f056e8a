"""Clients that train on minibatches for some epochs, in plain NumPy, and an oracle that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attacks.linear_forms.forms import Forms, forms_of


class Round(NamedTuple):
    """What the server broadcast, and what each client sent back."""

    factors: np.ndarray
    rows: list[np.ndarray]


@dataclass(frozen=True)
class Minibatches:
    """How clients train."""

    batch: int = 4
    epochs: int = 2
    rate: float = 0.05
    decay: float = 0.01
    factors: int = 8
    rounds: int = 1
    users: int = 40
    fewest: int = 5  # ratings of a client
    most: int = 79
    items: int = 120
    start: float = 0.1  # deviation of all factors at the start
    mean: bool = False  # whether a minibatch is averaged
    half_stars: bool = False
    upload: str = "change"  # or ``gradient``: the change over minus the rate
    noise: float = 0.0  # Laplace, of the share of each client's largest entry
    digits: type = np.float64  # in which rows are sent
    centred: float = 0.0  # taken off all ratings
    centred_by_client: bool = False  # by the mean of its own ones
    user_bias: float = 0.0  # deviation of a bias that each client has and keeps to itself
    adam: bool = False
    numbers: str = "ratings"  # or ``uniform`` ones, or ``clipped``: not rounded, cut off at the ends
    seed: int = 7

    @property
    def levels(self) -> np.ndarray:
        """Of ratings."""
        return np.arange(1, 11) / 2 if self.half_stars else np.arange(1.0, 6.0)

    def tables(self, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Items and ratings of each client: three tastes, and people who rate more high than low."""
        levels, taste = self.levels, rng.normal(size=(self.users, 3))
        liked = (
            3.4
            + 0.7 * taste @ rng.normal(size=(3, self.items))
            + rng.normal(0, 0.4, (self.users, self.items))
        )
        lists = [
            np.sort(rng.choice(self.items, rng.integers(self.fewest, self.most + 1), replace=False))
            for _ in range(self.users)
        ]
        step = levels[1] - levels[0]
        if self.numbers == "uniform":
            liked = rng.uniform(levels[0], levels[-1], liked.shape)
        at = np.round(liked / step) * step if self.numbers == "ratings" else liked
        stars = np.clip(at, levels[0], levels[-1])
        return lists, [stars[user, items] for user, items in enumerate(lists)]

    def trained(self) -> tuple[list[np.ndarray], list[np.ndarray], list[Round]]:
        """Items and ratings of each client, and all rounds."""
        rng = np.random.default_rng(self.seed)
        lists, ratings = self.tables(rng)
        p = rng.normal(0, self.start, (self.users, self.factors))
        q = rng.normal(0, self.start, (self.items, self.factors))
        own = rng.normal(0, self.user_bias, self.users)
        rounds = []
        for _ in range(self.rounds):
            total, count, sent = np.zeros_like(q), np.zeros(self.items), []
            for user, items in enumerate(lists):
                target = ratings[user] - self.centred - own[user]
                target -= target.mean() * self.centred_by_client
                p[user], change = self.client(p[user], q[items], target, rng)
                total[items] += change
                count[items] += 1
                row = change / -self.rate if self.upload == "gradient" else change
                row = row + rng.laplace(0, 1, row.shape) * self.noise * np.abs(row).max()
                sent.append(row.astype(self.digits).astype(float))
            rounds.append(Round(q.copy(), sent))
            q = q + total / np.maximum(count, 1)[:, None]
        return lists, ratings, rounds

    def client(
        self, p: np.ndarray, q: np.ndarray, ratings: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """One client's factor after a round, and how far its copies moved."""
        p, copy = p.copy(), q.copy()
        first, second = np.zeros_like(copy), np.zeros_like(copy)
        turn = 0
        for _ in range(self.epochs):
            for some in self.passes(ratings.size, rng):
                error = ratings[some] - copy[some] @ p
                slope = -error[:, None] * p / (some.size if self.mean else 1) + self.decay * copy[some]
                p = p + self.rate * ((error[:, None] * copy[some]).mean(0) - self.decay * p)
                if self.adam:
                    turn += 1
                    whole = np.zeros_like(copy)
                    whole[some] = slope
                    first, second = 0.9 * first + 0.1 * whole, 0.999 * second + 0.001 * whole**2
                    at = first / (1 - 0.9**turn) / (np.sqrt(second / (1 - 0.999**turn)) + 1e-8)
                    copy = copy - self.rate * at
                else:
                    copy[some] -= self.rate * slope
        return p, copy - q

    def passes(self, n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Minibatches of one epoch; the last one may be smaller."""
        order = rng.permutation(n)
        return (order[start : start + self.batch] for start in range(0, n, self.batch))


def stacked(parts: list[np.ndarray], room: int) -> np.ndarray:
    """What clients have, one after the other, 0 where they have no more."""
    out = np.zeros((len(parts), room, *parts[0].shape[1:]))
    for place, part in enumerate(parts):
        out[place, : len(part)] = part
    return out


def forms(lists: list[np.ndarray], sent: Round, room: int) -> Forms:
    """All clients' rows of a round as the engine takes them, with room for so many."""
    factors = [sent.factors[items] for items in lists]
    there = stacked([np.ones(items.size) for items in lists], room) > 0
    return forms_of(stacked(sent.rows, room), stacked(factors, room), there, np.zeros(there.shape))


def oracle(
    lists: list[np.ndarray],
    ratings: list[np.ndarray],
    sent: Round,
    levels: np.ndarray,
    *,
    offset: bool = False,
) -> list[np.ndarray]:
    """Which ratings someone reads who is told two or three numbers a client by least squares."""
    right = []
    for items, truth, rows in zip(lists, ratings, sent.rows, strict=True):
        direction = np.linalg.svd(rows, full_matrices=False)[2][0]
        columns = [rows @ direction, sent.factors[items] @ direction, *[np.ones(len(rows))] * offset]
        known = np.stack(columns, axis=1)
        said = known @ np.linalg.lstsq(known, truth, rcond=None)[0]
        right.append(levels[np.abs(said[:, None] - levels).argmin(axis=1)] == truth)
    return right
