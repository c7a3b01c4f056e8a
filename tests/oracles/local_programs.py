"""A client of a program with any of the victims' switches, in plain loops: one rating, one item at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Round(NamedTuple):
    """A client's factor and bias after a round, and its rows, biases among them, of items and attributes."""

    own: np.ndarray
    bias: float
    rows: np.ndarray
    attribute_rows: np.ndarray


@dataclass(frozen=True)
class Client:
    """Constants of the program, and its switches.

    ``scale`` and ``pull`` make a gradient: scale c e p + pull q; ``ridge`` is lambda, once a step or once a
    rating; ``item_pull`` is mu of the copies; ``attributes`` is lambda 1.
    """

    rate: float
    ridge: float = 0.0
    scale: float = 1.0
    pull: float = 0.0
    item_pull: float = 0.0
    attributes: float = 0.0
    ridge_per_rating: bool = False
    unit_ball: bool = False
    local_steps: int = 1
    batch_size: int | None = None
    mean: bool = False
    upload: str = "gradient"
    after: bool = False
    own_bias: bool = False
    item_bias: bool = False

    def round(
        self,
        p: np.ndarray,
        own_bias: float,
        q: np.ndarray,
        biases: np.ndarray,
        r: np.ndarray,
        c: np.ndarray,
        order: np.ndarray,
        x: np.ndarray,
        a: np.ndarray,
    ) -> Round:
        """Ratings r with weights c of items with factors q and biases, gone through in an order."""
        p, q, biases, a = p.copy(), q.copy(), biases.copy(), a.copy()
        first_q, first_b, first_a = q.copy(), biases.copy(), a.copy()
        rows, said = np.zeros((r.size, p.size + 1)), np.zeros_like(a)
        size = self.batch_size or max(r.size, 1)
        for _ in range(self.local_steps):
            starts = [0] if self.batch_size is None else range(0, r.size, size)
            for start in starts:
                batch = order[start : start + size]
                parts = max(batch.size, 1) if self.mean else 1
                old, errors = p.copy(), {}
                step, bias_step = np.zeros_like(p), 0.0
                for j in batch:
                    errors[j] = c[j] * (r[j] - p @ q[j] - own_bias - biases[j]) / parts
                    step += errors[j] * q[j]
                    bias_step += errors[j]
                if self.batch_size is None:
                    said, more = self._of_attributes(old, x, a)
                    step += more
                times = batch.size / parts if self.ridge_per_rating else 1
                p = p - 2 * self.rate * self.ridge * times * p + 2 * self.rate * step
                if self.unit_ball and np.linalg.norm(p) > 1:
                    p = p / np.linalg.norm(p)
                if self.own_bias:
                    own_bias += 2 * self.rate * (bias_step - self.ridge * times * own_bias)
                for j in batch:
                    used = p if self.after else old
                    rows[j] = [*(self.scale * errors[j] * used + self.pull * q[j]), errors[j]]
                    if self.upload != "gradient":
                        q[j] = q[j] + 2 * self.rate * (errors[j] * old - self.item_pull * q[j])
                        if self.item_bias:
                            biases[j] += 2 * self.rate * (errors[j] - self.item_pull * biases[j])
            if self.batch_size is not None and len(a):
                said, more = self._of_attributes(p, x, a)
                p = p - 2 * self.rate * self.ridge * p + 2 * self.rate * more
                own_bias -= 2 * self.rate * self.ridge * own_bias if self.own_bias else 0
            if self.upload != "gradient":
                a = a + 2 * self.rate * said
        said = self.scale * said
        if self.upload != "gradient":
            less = (first_q, first_b, first_a) if self.upload == "delta" else (0 * q, 0 * biases, 0 * a)
            rows, said = np.column_stack([q - less[0], biases - less[1]]), a - less[2]
        return Round(p, own_bias, rows, said)

    def _of_attributes(self, p: np.ndarray, x: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        said, step = np.zeros_like(a), np.zeros_like(p)
        for column in range(x.size):
            error = x[column] - p @ a[column]
            said[column] = error * p
            step += self.attributes * error * a[column]
        return said, step
