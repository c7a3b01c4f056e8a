"""Clients that train for some steps on copies of their own, in plain NumPy: federated averaging."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from victims.transcript.recorder import Recorder

HALF_STARS = np.arange(1, 11) / 2


@dataclass(frozen=True)
class Client:
    """How one client trains."""

    steps: int = 3
    rate: float = 0.02  # of items and factor; divided by the number of ratings with ``mean``
    ratio: float = 1.0  # of the factor's rate to the items'
    decay: float = 0.0  # of both
    momentum: float = 0.0  # of both
    moves: bool = True  # whether it steps a copy of the items
    mean: bool = False
    nesterov: bool = False
    dtype: type = np.float64

    def train(self, p: np.ndarray, r: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The copy after the last step (or what its steps add up to), and the factor."""
        number = self.dtype
        rate = number(self.rate / (r.size if self.mean else 1))
        copy, factor = q.astype(number), p.astype(number)
        push, pull = np.zeros_like(copy), np.zeros_like(factor)
        for _ in range(self.steps):
            seen = copy if self.moves else q.astype(number)
            error = (r - seen @ factor).astype(number)
            items = rate * (error[:, None] * factor - number(self.decay) * seen)
            own = rate * number(self.ratio) * (error @ seen - number(self.decay) * factor)
            push, pull = number(self.momentum) * push + items, number(self.momentum) * pull + own
            if self.nesterov:
                copy = copy + items + number(self.momentum) * push
                factor = factor + own + number(self.momentum) * pull
            else:
                copy, factor = copy + push, factor + pull
        return copy, factor


@dataclass(frozen=True)
class Program:
    """Some clients, recorded."""

    client: Client = field(default_factory=Client)
    upload: str = "weights"  # ``weights``, ``delta``, or ``gradient``: minus the change over the rate
    factors: int = 5
    n_users: int = 15
    n_items: int = 60
    density: float = 0.3  # share of items that a client rated; every fifth has five ratings at most
    levels: tuple[float, ...] = tuple(HALF_STARS)
    biases: bool = False  # whether items have biases that are broadcast
    seed: int = 0

    def record(self, path: Path, rule: dict[str, Any] | None = None) -> np.ndarray:
        """One round; returns the ratings (users, items), 0 where unrated."""
        rng = np.random.default_rng(self.seed)
        number = self.client.dtype
        q = rng.normal(0, 0.4, (self.n_items, self.factors)).astype(number)
        bias = rng.normal(0, 0.4, self.n_items).astype(number) if self.biases else np.zeros(self.n_items)
        ratings = np.zeros((self.n_users, self.n_items))
        with Recorder(path, rating_levels=self.levels, rule=rule or {}) as recorder:
            recorder.broadcast(0, q, **({"biases": bias} if self.biases else {}))
            for user in range(self.n_users):
                n_rated = rng.binomial(self.n_items, self.density) if user % 5 else rng.integers(2, 6)
                items = np.sort(rng.choice(self.n_items, n_rated, replace=False))
                ratings[user, items] = rng.choice(self.levels, n_rated)
                p = rng.normal(0, 0.4, self.factors)
                copy, _ = self.client.train(p, ratings[user, items] - bias[items], q[items])
                recorder.upload(0, user, self._rows(copy, q[items], n_rated), items)
        return ratings

    def _rows(self, copy: np.ndarray, q: np.ndarray, n_rated: int) -> np.ndarray:
        if self.upload == "weights":
            return copy
        change = copy - q
        rate = self.client.rate / (n_rated if self.client.mean else 1)
        return change if self.upload == "delta" else (-2 * change / rate).astype(self.client.dtype)
