"""Clients that go through their ratings in an order, with any loss, in plain loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

from victims.transcript.recorder import Recorder


@dataclass(frozen=True)
class Passer:
    """How one client trains."""

    rate: float = 0.01  # of its factor and its copies
    passes: int = 3  # ``batch`` 0: all ratings in one step
    batch: int = 1  # ``batch`` 0: all ratings in one step
    # ``squared``, ``sigmoid`` (squared error of a sigmoid), ``cross-entropy``, or ``clipped`` (squared error
    # of a prediction that is clipped to the range of ratings)
    loss: str = "squared"
    mean: bool = False
    # times the rate, of its factor (and bias) at each step and of the copies of a minibatch
    decay: float = 0.0
    # times the rate, of its factor (and bias) at each step and of the copies of a minibatch
    item_decay: float = 0.0
    own_bias: bool = False  # whether a bias of its own, from 0.3 on, moves as its factor does
    moves: bool = True  # whether its copies move; else errors are about the items as broadcast
    error_clip: float = 0.0  # bound of the absolute errors; 0 for none
    # of its factor in every step; with ``coasts`` of all copies, too, also in steps of others
    momentum: float = 0.0
    coasts: bool = True
    nesterov: bool = False

    def push(self, rating: float, product: float, levels: np.ndarray) -> float:
        """Minus the derivative of the loss."""
        low, high = float(levels[0]), float(levels[-1])
        if self.loss == "squared":
            return rating - product
        if self.loss == "clipped":
            return rating - min(max(product, low), high)
        p = 1 / (1 + exp(-product))
        return (rating / high - p) * (p * (1 - p) if self.loss == "sigmoid" else 1)

    def train(
        self, u: np.ndarray, v: np.ndarray, r: np.ndarray, levels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Changes of the copies, or what their steps add up to, and the factor; ratings in their order."""
        u, copy, change, bias = u.copy(), v.copy(), np.zeros_like(v), 0.3 if self.own_bias else 0.0
        kept_u, kept = np.zeros_like(u), np.zeros_like(v)
        m, of_items = self.momentum, self.momentum if self.coasts else 0.0
        for _ in range(self.passes):
            for start in range(0, r.size, self.batch or r.size):
                step = range(start, min(start + (self.batch or r.size), r.size))
                old, up, up_bias, gradient = u.copy(), np.zeros_like(u), 0.0, np.zeros_like(v)
                for j in step:
                    seen = copy[j] if self.moves else v[j]
                    error = self.push(r[j], seen @ old + bias, levels)
                    if self.error_clip:
                        error = min(max(error, -self.error_clip), self.error_clip)
                    error /= len(step) if self.mean else 1
                    up, up_bias = up + error * seen, up_bias + error
                    gradient[j] = self.rate * (error * old - self.item_decay * seen)
                up = self.rate * (up - self.decay * u)
                kept_u, kept = m * kept_u + up, of_items * kept + gradient
                moved = gradient + of_items * kept if self.nesterov else kept
                copy, change = copy + moved, change + moved
                u = u + (up + m * kept_u if self.nesterov else kept_u)
                if self.own_bias:
                    bias += self.rate * (up_bias - self.decay * bias)
        return change, u


@dataclass(frozen=True)
class Passes:
    """Some clients, recorded."""

    client: Passer = field(default_factory=Passer)
    factors: int = 4
    n_users: int = 6
    n_items: int = 40
    n_rated: tuple[int, int] = (10, 16)
    levels: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 5.0)
    spread: float = 0.4  # of the factors
    shuffled: bool = False  # whether clients go through their ratings in an order of their own, which is seen
    scale: float = 1.0
    dtype: type = np.float64
    seed: int = 0

    def record(self, path: Path, rule: dict[str, Any] | None = None) -> np.ndarray:
        """One round; returns the ratings (users, items), 0 where unrated."""
        rng = np.random.default_rng(self.seed)
        q = rng.normal(0, self.spread, (self.n_items, self.factors)).astype(self.dtype)
        ratings, levels = np.zeros((self.n_users, self.n_items)), np.array(self.levels)
        with Recorder(path, rating_levels=self.levels, rule=rule or {}) as recorder:
            recorder.broadcast(0, q)
            for user in range(self.n_users):
                items = rng.choice(
                    self.n_items, rng.integers(self.n_rated[0], self.n_rated[1] + 1), replace=False
                )
                items = items if self.shuffled else np.sort(items)
                ratings[user, items] = rng.choice(levels, items.size)
                u = rng.normal(0, self.spread, self.factors)
                rows, _ = self.client.train(u, q[items].astype(float), ratings[user, items], levels)
                recorder.upload(0, user, (self.scale * rows).astype(self.dtype), items)
        return ratings
