"""Programs whose clients send some entries of their rows alone, in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from victims.transcript.recorder import Recorder

Rows = np.ndarray
RATE = 0.01


def largest_of_each_row(rows: Rows, share: float, rng: np.random.Generator) -> Rows:
    """Top-k of every row."""
    k = max(1, round(share * rows.shape[1]))
    least = np.sort(np.abs(rows), axis=1)[:, -k:][:, :1]
    return np.where(np.abs(rows) >= least, rows, 0)


def largest_of_all(rows: Rows, share: float, rng: np.random.Generator) -> Rows:
    """Top-k of the upload, as libraries do."""
    k = max(1, round(share * rows.size))
    return np.where(np.abs(rows) >= np.sort(np.abs(rows).ravel())[-k], rows, 0)


def at_random(rows: Rows, share: float, rng: np.random.Generator) -> Rows:
    """Each entry with a probability, and scaled up so that its mean is what it was."""
    return np.where(rng.random(rows.shape) < share, rows / share, 0)


def one_step(u: Rows, r: Rows, v: Rows) -> Rows:
    """The gradient of a mean of squared errors."""
    return 2 * (v @ u - r)[:, None] * u / r.size


def in_turn(u: Rows, r: Rows, v: Rows) -> Rows:
    """A step of the client's factor after every rating."""
    out = np.zeros_like(v)
    for j in range(r.size):
        error = r[j] - v[j] @ u
        out[j] = error * u
        u = u + RATE * error * v[j]
    return out


def three_steps(u: Rows, r: Rows, v: Rows) -> Rows:
    """Three steps over all ratings: how far copies of the items moved."""
    copy = v.copy()
    for _ in range(3):
        error = r - copy @ u
        copy, u = copy + RATE * error[:, None] * u, u + RATE * error @ copy
    return copy - v


@dataclass(frozen=True)
class GapProgram:
    """Some clients, recorded."""

    step: Callable[[Rows, Rows, Rows], Rows] = one_step  # what they compute, and what of it they send
    # what they compute, and what of it they send
    sent: Callable[[Rows, float, np.random.Generator], Rows] = largest_of_all
    share: float = 0.5  # of the entries, that are sent
    factors: int = 10
    n_users: int = 30
    n_items: int = 200
    density: float = 0.1
    levels: tuple[float, ...] = tuple(np.arange(1, 11) / 2)
    dtype: type = np.float64
    seed: int = 0

    def record(self, path: Path) -> Rows:
        """One round with nothing declared; returns the ratings (users, items), 0 where unrated."""
        rng = np.random.default_rng(self.seed)
        v = rng.normal(0, 0.3, (self.n_items, self.factors)).astype(self.dtype)
        shape = (self.n_users, self.n_items)
        ratings = np.where(rng.random(shape) < self.density, rng.choice(self.levels, shape), 0)
        with Recorder(path, rating_levels=self.levels) as recorder:
            recorder.broadcast(0, v)
            for user, own in enumerate(ratings):
                items = rng.permutation(np.flatnonzero(own))
                rows = self.step(rng.normal(0, 0.3, self.factors), own[items], v[items].astype(float))
                recorder.upload(0, user, self.sent(rows, self.share, rng).astype(self.dtype), items)
        return ratings
