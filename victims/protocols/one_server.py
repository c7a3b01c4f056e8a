"""What victims have in common whose clients talk to one server: the star, and predictions p . q."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from victims.data.ratings import Ratings
from victims.protocols.exchanged import Holding, Sample, SetUp
from victims.protocols.network import Network, Star
from victims.protocols.row_sums import Shape


@dataclass(frozen=True, eq=False)
class Products:
    """Predictions that are products of two tables."""

    clients: Float[np.ndarray, "users columns"]  # factors, and biases if any
    items: Float[np.ndarray, "items columns"]  # factors, and biases if any

    def pairs(self, users: Int[np.ndarray, " n"], items: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Predictions for pairs of a client and an item, in stars."""
        return np.einsum("rk,rk->r", self.clients[users], self.items[items])

    def scores(self, users: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some items"]:
        """Predictions of some clients for all items, in stars."""
        return self.clients[users] @ self.items.T


class OneServer:
    """Verbs of a victim with one server, by ``broadcast`` and ``user_factors``; victims inherit them."""

    def network(self, state: Any, ratings: Ratings) -> Network:
        """The star: every row goes to the server."""
        items, attributes = self.broadcast(state)  # type: ignore[attr-defined]
        return Star(Shape(items.shape[0], attributes.shape[0], items.shape[1]))

    def holdings(
        self, state: Any, ratings: Ratings, watched: Int[np.ndarray, " clients"]
    ) -> Iterator[Holding]:
        """Everybody knows the item factors, and nobody others."""
        yield from ()

    def set_up(self, state: Any, ratings: Ratings) -> Iterator[SetUp]:
        """Nothing is sent before the first round."""
        yield from ()

    def predictor(self, state: Any, ratings: Ratings, sample: Sample | None = None) -> Products:
        """p . q of this round."""
        clients = self.user_factors(state, ratings, sample)  # type: ignore[attr-defined]
        return Products(clients, self.broadcast(state)[0])  # type: ignore[attr-defined]
