"""A second PDMFRec (Duriakova et al. 2019), one client and one rating at a time, straight from its equations.

It shares no code with ``victims`` or ``attacks``: the victim, what it records and what peers read of it are
tested against something that none of them wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from victims.transcript.recorder import Recorder

LEVELS = np.arange(1.0, 6.0)


class Traffic(NamedTuple):
    """What was sent and held, round by round."""

    # of each round and client, in the order sent, before any weight
    rows: list[list[tuple[np.ndarray, np.ndarray]]]
    held: list[np.ndarray]  # everybody's copy of V before each round
    weight: np.ndarray  # W of each pair; 0 where they are no neighbours

    def received(self, receiver: int, round_: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Senders, items and rows that somebody receives, in no telling order."""
        parts = [
            (np.full(items.size, sender), items, self.weight[sender, receiver] * rows)
            for sender, (items, rows) in enumerate(self.rows[round_])
            if self.weight[sender, receiver] > 0
        ]
        sender, item, row = (np.concatenate(column) for column in zip(*parts, strict=True))
        mixed = np.random.default_rng([round_, receiver]).permutation(sender.size)
        return sender[mixed], item[mixed], row[mixed]


@dataclass(frozen=True)
class Pdmfrec:
    """Ratings, and what the paper leaves open."""

    n_users: int = 24
    n_items: int = 90
    factors: int = 8
    rounds: int = 2
    density: float = 0.2  # share of the items that a client rates
    rate: float = 0.02  # gamma and alpha of the paper
    ridge: float = 0.03  # gamma and alpha of the paper
    order: str = "per-rating"
    weights: str = "cosine"  # as printed; -sim; -sim,all
    threshold: int = 1  # least co-rated items of neighbours
    twice: bool = False  # whether the receiver multiplies by W again
    shared: bool = True  # whether all copies of V start equal
    # standard deviation of normal noise in every number of a row, drawn once for all receivers
    noise: float = 0.0
    seed: int = 0

    @property
    def ratings(self) -> np.ndarray:
        """(users, items), 0 where unrated."""
        rng = np.random.default_rng([self.seed, 1])
        shape = self.n_users, self.n_items
        share = np.minimum(self.density * 2 * rng.random(self.n_items), 1)  # some items are popular
        return np.where(rng.random(shape) < share, rng.choice(LEVELS, shape), 0.0)

    def run(self, ratings: np.ndarray | None = None) -> Traffic:
        """Train."""
        ratings = self.ratings if ratings is None else ratings
        n_users, n_items = ratings.shape
        rng = np.random.default_rng([self.seed, 2])
        size = 1.5 / np.sqrt(self.factors)
        u = size * np.abs(rng.normal(size=(n_users, self.factors)))
        v = size * np.abs(rng.normal(size=(1 if self.shared else n_users, n_items, self.factors)))
        v = np.repeat(v, n_users, axis=0) if self.shared else v
        weight = self.weight(ratings)
        everything, held = [], []
        for _ in range(self.rounds):
            held.append(v.copy())
            sent = []
            for user in range(n_users):
                items = rng.permutation(np.flatnonzero(ratings[user]))
                rows = self._pass(u[user], v[user], items, ratings[user, items])
                sent.append((items, rows + self.noise * rng.normal(size=rows.shape)))
            self._receive(v, sent, weight)
            everything.append(sent)
        return Traffic(everything, held, weight)

    def weight(self, ratings: np.ndarray) -> np.ndarray:
        """W of Eqs. (5) and (6)."""
        rated = (ratings > 0).astype(float)
        together, size = rated @ rated.T, rated.sum(axis=1)
        there = (together >= self.threshold) | (self.weights == "everybody")
        cosine = together / np.sqrt(np.maximum(np.outer(size, size), 1))
        out = np.where(there, cosine if self.weights == "cosine" else 1.0, 0.0)
        np.fill_diagonal(out, 0)
        return out

    def _pass(self, u: np.ndarray, v: np.ndarray, items: np.ndarray, ratings: np.ndarray) -> np.ndarray:
        """One pass of a client, which moves its u and v."""
        rows, step = [], np.zeros(self.factors)
        for item, rating in zip(items, ratings, strict=True):
            error = rating - u @ v[item]
            of_u, of_v = -error * v[item] + self.ridge * u, -error * u + self.ridge * v[item]
            rows.append(of_v)
            v[item] -= self.rate * of_v
            if self.order == "per-rating":
                u -= self.rate * of_u
            step += of_u
        if self.order == "batch":
            u -= self.rate * step
        return np.array(rows).reshape(items.size, self.factors)

    def _receive(self, v: np.ndarray, sent: list[tuple[np.ndarray, np.ndarray]], weight: np.ndarray) -> None:
        """Line 11 of Algorithm 1."""
        total, count = np.zeros_like(v), np.zeros(v.shape[:2])
        for sender, (items, rows) in enumerate(sent):
            for receiver in np.flatnonzero(weight[sender]):
                w = weight[sender, receiver] ** (2 if self.twice else 1)
                total[receiver, items] += w * rows
                count[receiver, items] += 1
        v -= self.rate * total / np.maximum(count, 1)[..., None]

    def record(
        self, path: Path, watched: tuple[int, ...] = (), anonymous: bool = True, **declared: Any
    ) -> Traffic:
        """Write the training as a transcript; returns what it holds."""
        ratings, traffic = self.ratings, self.run()
        with Recorder(path, rating_levels=LEVELS, n_items=self.n_items, **declared) as recorder:
            for user in range(self.n_users):  # numbered as here
                items = np.flatnonzero(ratings[user])
                recorder.truth(user, items, ratings[user, items])
            for sender, receiver in np.argwhere(traffic.weight):
                w = float(traffic.weight[sender, receiver])
                recorder.edge(int(sender), int(receiver), w, 0, self.rounds - 1)
            for round_, (held, sent) in enumerate(zip(traffic.held, traffic.rows, strict=True)):
                recorder.broadcast(round_, traffic.held[0][0])
                for user in watched:
                    recorder.broadcast(round_, held[user], to=user)
                for sender, (items, rows) in enumerate(sent):
                    recorder.upload(round_, sender, rows, items, to=recorder.NEIGHBOURS)
        manifest = json.loads((path / "manifest.json").read_text())
        manifest |= {"senders_hidden": anonymous}
        (path / "manifest.json").write_text(json.dumps(manifest))
        return traffic
