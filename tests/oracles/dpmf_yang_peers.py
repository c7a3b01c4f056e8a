"""A second DPMF-Yang (Yang et al. 2022), one sample at a time, straight from its corrected gradients.

Its algorithms are images: a pass goes over the explicit samples, then over positives and negatives, and moves
everything after each sample, or once at its end. It shares no code with ``victims`` or ``attacks``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from victims.transcript.recorder import Recorder

STARS = np.arange(0.5, 4.01, 0.5)


class Sent(NamedTuple):
    """What one client sent in a round, in the order sent: explicit rows, and implicit ones with whether they
    are about positives.
    """

    explicit: np.ndarray
    explicit_rows: np.ndarray
    implicit: np.ndarray
    implicit_rows: np.ndarray
    positive: np.ndarray


class Traffic(NamedTuple):
    """What was sent and held."""

    sent: list[list[Sent]]  # of each round and client
    held_v: list[np.ndarray]  # everybody's V and Z before each round
    held_z: list[np.ndarray]  # everybody's V and Z before each round
    trusted: list[np.ndarray]  # receivers of each client


@dataclass(frozen=True)
class DpmfYang:
    """Ratings, and what the paper leaves open."""

    n_users: int = 12
    n_items: int = 80
    factors: int = 4
    rounds: int = 3
    density: float = 0.25
    trusted: int = 3
    order: str = "per-sample"
    mapping: str = "by-the-largest"  # of stars to 0..1
    spread: float = 0.5  # standard deviation of the start of public parts, which all share
    own_spread: float = 0.0  # the same of personal parts, which are everybody's own
    implicit: float = 0.02  # lambda and W of the paper
    negative: float = 0.5  # lambda and W of the paper
    ridge: float = 0.01  # lambda_U = lambda_V = lambda_Z = lambda_Q, for each sample; theta
    rate: float = 0.1  # lambda_U = lambda_V = lambda_Z = lambda_Q, for each sample; theta
    redrawn: bool = True  # whether negatives are drawn anew in each round
    seed: int = 0

    @property
    def ratings(self) -> np.ndarray:
        """(users, items) in stars, 0 where unrated; more high ones than low ones."""
        rng = np.random.default_rng([self.seed, 1])
        shape = self.n_users, self.n_items
        share = STARS / STARS.sum()
        return np.where(rng.random(shape) < self.density, rng.choice(STARS, shape, p=share), 0.0)

    @property
    def levels(self) -> np.ndarray:
        """Of R."""
        low = STARS[0] if self.mapping == "min-max" else 0.0
        return (STARS - low) / (STARS[-1] - low)

    @property
    def positives(self) -> np.ndarray:
        """(users, items) bool: the half of the pairs that is taken for implicit feedback."""
        rng = np.random.default_rng([self.seed, 2])
        return (self.ratings > 0) & (rng.random((self.n_users, self.n_items)) < 0.5)

    def run(self) -> Traffic:
        """Train."""
        rng = np.random.default_rng([self.seed, 3])
        shape = self.n_users, self.n_items, self.factors
        u = 0.5 * rng.normal(size=(self.n_users, self.factors))
        q = 0.1 * rng.normal(size=shape)
        v, z = (
            self.spread * rng.normal(size=shape[1:]) + self.own_spread * rng.normal(size=shape)
            for _ in range(2)
        )
        others = [np.delete(np.arange(self.n_users), user) for user in range(self.n_users)]
        trusted = [np.sort(rng.choice(o, self.trusted, replace=False)) for o in others]
        negatives = [self._negatives(rng, user) for user in range(self.n_users)]
        out, held_v, held_z = [], [], []
        for _ in range(self.rounds):
            held_v.append(v.copy())
            held_z.append(z.copy())
            if self.redrawn:
                negatives = [self._negatives(rng, user) for user in range(self.n_users)]
            sent = [self._pass(rng, user, u, q[user], v[user], z[user], negatives[user])
                    for user in range(self.n_users)]  # fmt: skip
            for user, one in enumerate(sent):
                for receiver in trusted[user]:
                    v[receiver, one.explicit] -= self.rate / self.trusted * one.explicit_rows
                    z[receiver, one.implicit] -= self.rate / self.trusted * one.implicit_rows
            out.append(sent)
        return Traffic(out, held_v, held_z, trusted)

    def record(self, path: Path, watched: tuple[int, ...] = (), **declared: Any) -> Traffic:
        """Write the training as a transcript."""
        traffic = self.run()
        rule = {"rule": "dpmf-yang", "link": "sigmoid"}
        with Recorder(path, rating_levels=STARS, n_items=self.n_items, rule=rule, **declared) as recorder:
            for user, row in enumerate(self.ratings):
                recorder.truth(user, np.flatnonzero(row), row[row > 0])
            for sender, trusted in enumerate(traffic.trusted):
                for receiver in trusted.tolist():
                    recorder.edge(sender, receiver, 1.0, 0, self.rounds - 1)
            for round_, sent in enumerate(traffic.sent):
                for kind, held in (("item", traffic.held_v), ("item-implicit", traffic.held_z)):
                    recorder.broadcast(round_, held[0][0], kind=kind)
                    for user in watched:
                        recorder.broadcast(round_, held[round_][user], kind=kind, to=user)
                for user, one in enumerate(sent):
                    to = recorder.NEIGHBOURS
                    recorder.upload(round_, user, one.explicit_rows, one.explicit, to=to)
                    second = one.implicit_rows, one.implicit
                    recorder.upload(round_, user, *second, kind="item-implicit", to=to)
        return traffic

    def _negatives(self, rng: np.random.Generator, user: int) -> np.ndarray:
        n = int(self.positives[user].sum())
        return rng.choice(np.flatnonzero(self.ratings[user] == 0), n, replace=False)

    def _pass(
        self,
        rng: np.random.Generator,
        user: int,
        factors: np.ndarray,
        q: np.ndarray,
        v: np.ndarray,
        z: np.ndarray,
        negatives: np.ndarray,
    ) -> Sent:
        """One pass of a client, which moves its U, Q, V and Z."""
        u = factors[user]
        observed, chosen = self.ratings[user] > 0, self.positives[user]
        low = STARS[0] if self.mapping == "min-max" else 0.0
        mapped = (self.ratings[user] - low) / (STARS[-1] - low)
        rated = np.flatnonzero(observed & ~chosen)
        step_u, step_q, rows = np.zeros_like(u), np.zeros_like(q), []
        explicit = rng.permutation(rated)
        for j in explicit:
            whole = u + q[rated].mean(axis=0)
            g = 1 / (1 + np.exp(-whole @ v[j]))
            error = g * (1 - g) * (g - mapped[j])
            of_u, of_v = error * v[j] + self.ridge * u, error * whole + self.ridge * v[j]
            of_q = error * v[j] / rated.size + self.ridge * q[rated]
            rows.append(of_v)
            v[j] -= 2 * self.rate * of_v  # the public and the personal part
            if self.order == "per-sample":
                u -= self.rate * of_u
                q[rated] -= self.rate * of_q
            step_u += of_u
            step_q[rated] += of_q
        pairs = [(k, True) for k in np.flatnonzero(chosen)] + [(k, False) for k in negatives]
        mixed = [pairs[at] for at in rng.permutation(len(pairs))]
        others = []
        for k, positive in mixed:
            g, w = 1 / (1 + np.exp(-u @ z[k])), self.negative
            error = -self.implicit * (1 - g) if positive else self.implicit * w * g * (1 - g) / (1 - w * g)
            of_u, of_z = error * z[k] + self.ridge * u, error * u + self.ridge * z[k]
            others.append(of_z)
            z[k] -= 2 * self.rate * of_z
            if self.order == "per-sample":
                u -= self.rate * of_u
            step_u += of_u
        if self.order == "batch":
            u -= self.rate * step_u
            q -= self.rate * step_q
        implicit, positive = (
            np.array([pair[at] for pair in mixed], kind) for at, kind in ((0, int), (1, bool))
        )
        shape = -1, self.factors
        return Sent(
            explicit, np.array(rows).reshape(shape), implicit, np.array(others).reshape(shape), positive
        )
