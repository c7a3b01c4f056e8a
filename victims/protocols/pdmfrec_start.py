"""Start factors of PDMFRec, which paper 003 does not give: one V for all clients, or each client's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings

SHARED, PRIVATE, CLIENTS = range(3)  # what is drawn


@dataclass(frozen=True)
class Start:
    """How factors start."""

    factors: int  # K
    items: Literal["shared", "private"]  # one start of V for all clients, or one for each
    # entries are uniform on 0..``scale``, or normal with that standard deviation
    law: Literal["uniform", "normal"]
    scale: float  # > 0

    def clients(self, seed: int, n_users: int) -> Float[np.ndarray, "users K"]:
        """U^0."""
        return self._draw(seed, n_users, CLIENTS)

    def shared(self, seed: int, n_items: int) -> Float[np.ndarray, "items K"]:
        """V^0 of all clients, where it is one."""
        return self._draw(seed, n_items, SHARED)

    def at(
        self,
        seed: int,
        ratings: Ratings,
        users: Int[np.ndarray, " pairs"],
        items: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, "pairs K"]:
        """V^0 of pairs of a client and an item."""
        if self.items == "shared":
            return self.shared(seed, ratings.n_items)[items]
        out = np.empty((users.size, self.factors))
        order = np.argsort(users, kind="stable")
        cuts = np.searchsorted(users[order], np.arange(ratings.n_users + 1))
        for client in np.flatnonzero(np.diff(cuts)).tolist():
            pairs = order[cuts[client] : cuts[client + 1]]
            out[pairs] = self._draw(seed, ratings.n_items, PRIVATE, client)[items[pairs]]
        return out

    def _draw(self, seed: int, rows: int, *which: int) -> Float[np.ndarray, "rows K"]:
        rng = generator(seed, Purpose.PDMFREC_START, *which)
        if self.law == "uniform":
            return self.scale * rng.random((rows, self.factors))
        return self.scale * rng.standard_normal((rows, self.factors))
