"""Algorithm 1 of Duriakova et al. 2019 rating by rating, with a dense V for each client; plain Python."""

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
    """The parties, each with what it holds.

    ``size`` ratings make a step (None: all of them), ``passes`` passes a round; ``mean`` divides errors by
    the ratings of a step; ``upload`` is what a row is.
    """

    def __init__(
        self, table, clients, starts, rate, alpha, weights, *, twice, size, own_step, passes=1, mean=False,
        upload="gradient",
    ) -> None:  # fmt: skip
        self.table, self.rate, self.alpha, self.weights = table, rate, alpha, weights
        self.twice, self.size, self.own_step = twice, size, own_step
        self.passes, self.mean, self.upload = passes, mean, upload
        self.u = {i: [float(x) for x in row] for i, row in enumerate(clients)}
        self.v = {i: [[float(x) for x in row] for row in start] for i, start in enumerate(starts)}

    def step(self, client, items):
        """One step over some ratings: the client's factors move; the gradients of their V."""
        u, v, sent = self.u[client], self.v[client], {}
        parts, total = len(items) if self.mean else 1, [0.0] * len(u)
        for item in items:
            error = self.table[client][item] - sum(a * b for a, b in zip(u, v[item], strict=True))
            of_u = [(-error * b + self.alpha * a) / parts for a, b in zip(u, v[item], strict=True)]
            of_v = [-error / parts * a + self.alpha * b for a, b in zip(u, v[item], strict=True)]
            sent[item] = of_v
            if self.own_step:
                v[item] = [b - self.rate * g for b, g in zip(v[item], of_v, strict=True)]
            total = [t + g for t, g in zip(total, of_u, strict=True)]
        u[:] = [a - self.rate * g for a, g in zip(u, total, strict=True)]
        return sent

    def passed(self, client, order):
        """All passes of a round; what the client sends."""
        before = {item: list(self.v[client][item]) for item in order}
        sent, size = {}, self.size or max(len(order), 1)
        for _ in range(self.passes):
            for first in range(0, len(order), size):
                sent |= self.step(client, order[first : first + size])
        if self.upload == "gradient":
            return sent
        after = {item: list(self.v[client][item]) for item in order}
        if self.upload == "weights":
            return after
        return {item: [a - b for a, b in zip(after[item], before[item], strict=True)] for item in order}

    def round_of_arrivals(self, orders):
        """No barrier: client by client and rating by rating, line 11 for every row before the next one."""
        for sender, item in ((client, item) for client, order in orders.items() for item in order):
            row = self.step(sender, [item])[item]
            for receiver in self.v:
                w = self.weights.get((sender, receiver), 0.0) ** (2 if self.twice else 1)
                own = self.v[receiver][item]
                self.v[receiver][item] = [b - self.rate * w * x for b, x in zip(own, row, strict=True)]

    def round(self, orders, stepping=None, heard=None):
        """All passes, then the barrier, then line 11; returns the unweighted rows of those who are heard."""
        stepping = set(orders) if stepping is None else stepping
        heard = stepping if heard is None else heard
        sent = {client: self.passed(client, order) for client, order in orders.items() if client in stepping}
        sent = {client: rows for client, rows in sent.items() if client in heard}
        for receiver in self.v:
            about: dict[int, list[list[float]]] = {}
            times: dict[int, list[float]] = {}
            for sender, rows in sent.items():
                w = self.weights.get((sender, receiver))
                if w is not None and receiver in stepping:
                    for item, row in rows.items():
                        message = [w * x for x in row]
                        again = [w * x for x in message] if self.twice else message
                        about.setdefault(item, []).append(again)
                        times.setdefault(item, []).append(w * w if self.twice else w)
            for item, rows in about.items():
                mean, own = np.sum(rows, axis=0) / len(rows), self.v[receiver][item]
                if self.upload == "gradient":
                    new = [b - self.rate * m for b, m in zip(own, mean, strict=True)]
                elif self.upload == "delta":
                    new = [b + m for b, m in zip(own, mean, strict=True)]
                else:
                    all_of_them = 1 + sum(times[item]) / len(rows)
                    new = [(b + m) / all_of_them for b, m in zip(own, mean, strict=True)]
                self.v[receiver][item] = new
        return sent
