"""A client that takes steps of Adam or its relatives over all its ratings, written as PyTorch has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import factorleak as fl

LEVELS = (1.0, 2.0, 3.0, 4.0, 5.0)


@dataclass(frozen=True)
class AdaptiveClient:
    """What ``torch.optim`` does with the gradients of a squared loss; each parameter has its own state."""

    optimizer: str = "adam"
    steps: int = 2
    rate: float = 0.01
    mean: bool = True
    decay: float = 0.0
    less: float = 0.0
    kept: float = 0.99  # of RMSprop's squares; Keras has 0.9

    def change(self, u: np.ndarray, r: np.ndarray, v: np.ndarray) -> np.ndarray:
        """What the client's copies of the items change by (n, K)."""
        return self.train(u, r, v)[0]

    def train(self, u: np.ndarray, r: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the client's copies of the items change by (n, K), and its factor after the last step."""
        parameters = [u.copy(), v.copy()]
        means, squares = ([np.zeros_like(one) for one in parameters] for _ in range(2))
        for t in range(1, self.steps + 1):
            p, q = parameters
            error = (r - self.less - q @ p) * 2 / (r.size if self.mean else 1)
            for number, g in enumerate((-error @ q, -np.outer(error, p))):
                x = parameters[number] * (1 - self.rate * self.decay)
                if self.optimizer == "adam":
                    means[number] = 0.9 * means[number] + 0.1 * g
                    squares[number] = 0.999 * squares[number] + 0.001 * g**2
                    root = np.sqrt(squares[number] / (1 - 0.999**t)) + 1e-8
                    step = means[number] / (1 - 0.9**t) / root
                elif self.optimizer == "rmsprop":
                    squares[number] = self.kept * squares[number] + (1 - self.kept) * g**2
                    step = g / (np.sqrt(squares[number]) + 1e-8)
                else:
                    squares[number] = squares[number] + g**2
                    step = g / (np.sqrt(squares[number]) + 1e-10)
                parameters[number] = x - self.rate * step
        return parameters[1] - v, parameters[0]

    def recorded(
        self,
        path: Path,
        n_users: int,
        seed: int,
        factors: int = 5,
        weights: bool = False,
        dtype: type = float,
    ) -> np.ndarray:
        """Record a round of clients with 8 to 24 of 60 items each; ratings (users, items), 0 unrated."""
        rng = np.random.default_rng(seed)
        v, truth = rng.normal(0, 0.3, (60, factors)).astype(dtype), np.zeros((n_users, 60))
        with fl.Recorder(path, rating_levels=list(LEVELS)) as recorder:
            recorder.broadcast(0, v)
            for user, own in enumerate(truth):
                items = rng.choice(60, rng.integers(8, 25), replace=False)
                own[items] = rng.choice(LEVELS, items.size)
                rows = self.change(rng.normal(0, 0.3, factors), own[items], v[items])
                recorder.upload(0, user, (rows + weights * v[items]).astype(dtype), items)
        return truth
