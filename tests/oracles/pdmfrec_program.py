"""Algorithm 1 of paper 003 client by client, rating by rating, with a dense V for each; plain Python."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np


def weights_of(rated: Mapping[int, list[int]], threshold: int, variant: str) -> dict[tuple[int, int], float]:
    """W of every pair of neighbours, equations (5) and (6)."""
    out = {}
    for u, mine in rated.items():
        for v, others in rated.items():
            common = len(set(mine) & set(others))
            if u == v or (variant != "-sim,all" and common < threshold):
                continue
            out[u, v] = common / math.sqrt(len(mine) * len(others)) if variant == "full" else 1.0
    return out


class Program:
    """The parties, each with what it holds."""

    def __init__(self, table, clients, starts, rate, alpha, weights, *, twice, per_rating, own_step) -> None:
        self.table, self.rate, self.alpha, self.weights = table, rate, alpha, weights
        self.twice, self.per_rating = twice, per_rating
        self.own_step = own_step
        self.u = {i: [float(x) for x in row] for i, row in enumerate(clients)}
        self.v = {i: [[float(x) for x in row] for row in start] for i, start in enumerate(starts)}

    def gradients(self, client, order):
        """What a client sends of its items; its own factors move."""
        u, v, sent = self.u[client], self.v[client], {}
        before, total = list(u), [0.0] * len(u)
        for item in order:
            at = u if self.per_rating else before
            error = self.table[client][item] - sum(a * b for a, b in zip(at, v[item], strict=True))
            of_u = [-error * b + self.alpha * a for a, b in zip(at, v[item], strict=True)]
            of_v = [-error * a + self.alpha * b for a, b in zip(at, v[item], strict=True)]
            sent[item] = of_v
            if self.own_step:
                v[item] = [b - self.rate * g for b, g in zip(v[item], of_v, strict=True)]
            if self.per_rating:
                u[:] = [a - self.rate * g for a, g in zip(u, of_u, strict=True)]
            total = [t + g for t, g in zip(total, of_u, strict=True)]
        if not self.per_rating:
            u[:] = [a - self.rate * g for a, g in zip(before, total, strict=True)]
        return sent

    def round(self, orders):
        """All passes, then the barrier, then line 11; returns the unweighted gradients of each client."""
        sent = {client: self.gradients(client, order) for client, order in orders.items()}
        for receiver in self.v:
            about: dict[int, list[list[float]]] = {}
            for sender, rows in sent.items():
                w = self.weights.get((sender, receiver))
                if w is not None:
                    for item, row in rows.items():
                        message = [w * x for x in row]
                        again = [w * x for x in message] if self.twice else message
                        about.setdefault(item, []).append(again)
            for item, rows in about.items():
                mean = np.sum(rows, axis=0) / len(rows)
                self.v[receiver][item] = [
                    b - self.rate * m for b, m in zip(self.v[receiver][item], mean, strict=True)
                ]
        return sent
