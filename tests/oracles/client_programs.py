"""Programs with every rule that ``identify`` knows, and some that it does not, in plain NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from victims.transcript.recorder import Recorder

RULES = ("semi-als", "sgd", "sgd-mean", "per-rating", "fresh", "logistic", "noise")
LEVELS = np.arange(1.0, 6.0)


@dataclass(frozen=True)
class Program:
    """One of ``RULES``, its size and constants."""

    rule: str
    factors: int = 5
    n_users: int = 20
    n_items: int = 60
    rate: float = 0.01  # of the clients' step; ``ridge`` is lambda of semi-als, too
    ridge: float = 0.1  # of the clients' step; ``ridge`` is lambda of semi-als, too
    scale: float = -2.0  # what rows are multiplied by
    pull: float = 0.0  # multiple of its factor in every row, in units of ``scale``
    dtype: type = np.float64
    seed: int = 0
    rounds: int = 2

    def record(self, path: Path, declared: dict[str, Any] | None = None) -> np.ndarray:
        """A few rounds; returns the ratings (users, items), 0 where unrated."""
        rng = np.random.default_rng(self.seed)
        shape = self.n_users, self.n_items
        ratings = np.where(rng.random(shape) < 0.25, rng.choice(LEVELS, shape), 0)
        ratings[:, 0] = rng.choice(LEVELS, self.n_users)  # everybody has one
        q = rng.normal(0, 0.4, (self.n_items, self.factors)).astype(self.dtype).astype(float)
        p = rng.normal(0, 0.4, (self.n_users, self.factors))
        with Recorder(path, rating_levels=LEVELS, **(declared or {})) as recorder:
            for round_ in range(self.rounds):
                recorder.broadcast(round_, q.astype(self.dtype))
                for user in range(self.n_users):
                    (items,) = np.nonzero(ratings[user])
                    rows, p[user] = self.step(rng, p[user], ratings[user, items], q[items])
                    recorder.upload(round_, user, rows.astype(self.dtype), items)
                q = (q + rng.normal(0, 0.02, q.shape)).astype(self.dtype).astype(float)
        return ratings

    def step(
        self, rng: np.random.Generator, p: np.ndarray, r: np.ndarray, v: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What a client uploads, and its factor after it."""
        n = r.size
        if self.rule == "per-rating":
            rows = np.empty_like(v)
            for place in rng.permutation(n):
                error = r[place] - v[place] @ p
                rows[place] = self.scale * (error * p + self.pull * v[place])
                p = (1 - 2 * self.rate * self.ridge) * p + 2 * self.rate * error * v[place]
            return rows, p
        if self.rule == "semi-als":
            p = np.linalg.solve(v.T @ v + self.ridge * np.eye(p.size), v.T @ r)
        if self.rule == "fresh":
            p = rng.normal(0, 0.4, p.size)
        predicted = v @ p
        error = r - predicted
        if self.rule == "logistic":
            likely = 1 / (1 + np.exp(-predicted))
            error = (r - 1) / 4 - likely
        rows = self.scale * (error[:, None] * p + self.pull * v)
        if self.rule == "noise":
            rows = rows + rng.laplace(0, 1, rows.shape)
        if self.rule == "sgd-mean":
            rows, error = rows / n, error / n
        return rows, (1 - 2 * self.rate * self.ridge) * p + 2 * self.rate * error @ v
