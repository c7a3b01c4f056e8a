"""What PDMFRec carries from one round to the next, and every client's own V; symbols as in ``pdmfrec``.

V of rated items is carried as it is. V of other items follows from the sums of what was sent
(``pdmfrec_round``), or, where every message is changed anew or the senders are others in each round, from the
sums of what arrived (``pdmfrec_copies``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.data.ratings import Ratings
from victims.protocols.network import Edges
from victims.protocols.pdmfrec_round import ByItem, entry_of, item_factors_at
from victims.protocols.pdmfrec_start import Start
from victims.protocols.switches import Switches


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: int
    seed: int
    clients: Float[np.ndarray, "users K"]  # U
    rated: Float[np.ndarray, "ratings K"]  # V_i^u of rated items
    # for each rating the sum over rounds of what left its client, as gradients
    sent: Float[np.ndarray, "ratings K"]
    by_item: ByItem
    weight: Float[np.ndarray, "users users"]  # W
    edges: Edges
    # where receivers' means are their own: for each client the sum over rounds of the means of line 11, as
    # gradients
    arrived: Float[np.ndarray, "users items K"] | None = None


class Rules(NamedTuple):
    """How clients step."""

    rate: float  # gamma > 0, alpha >= 0
    alpha: float  # gamma > 0, alpha >= 0
    twice: bool  # whether the receiver multiplies by W again (line 11)
    own_step: bool  # whether clients step their own V_i by their own gradient (line 5)
    on_arrival: bool  # whether receivers step at every row that arrives
    switches: Switches


def moved_items(state: State, ratings: Ratings, client: int) -> Int[np.ndarray, " items"]:
    """List the items whose factor a client has moved or been told to move."""
    if state.round == 0:
        return np.zeros(0, np.int64)
    told = state.weight[client] != 0
    told[client] = True
    return np.unique(ratings.items[told[ratings.users]])


@dataclass(frozen=True, eq=False)
class OwnItems:
    """Each client's own V, and predictions with it."""

    rules: Rules
    start: Start
    state: State
    ratings: Ratings  # of the training

    def factors(
        self, users: Int[np.ndarray, " pairs"], items: Int[np.ndarray, " pairs"]
    ) -> Float[np.ndarray, "pairs K"]:
        """V_j^u of pairs of a client and an item."""
        state, rules = self.state, self.rules
        start = partial(self.start.at, state.seed, self.ratings)
        if state.arrived is not None:
            moved = start(users, items) - rules.rate * state.arrived[users, items]
            entry = entry_of(self.ratings, users, items)
            moved[entry >= 0] = state.rated[entry[entry >= 0]]
            return moved
        return item_factors_at(
            self.ratings,
            state.by_item,
            state.weight,
            rules.twice,
            rules.rate,
            state.rated,
            state.sent,
            start,
            users,
            items,
            rules.on_arrival,
        )

    def pairs(self, users: Int[np.ndarray, " n"], items: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """U_u . V_j^u, in stars."""
        return np.einsum("nk,nk->n", self.state.clients[users], self.factors(users, items))

    def scores(self, users: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some items"]:
        """U_u . V_j^u of all items, in stars."""
        everything = np.tile(np.arange(self.ratings.n_items), users.size)
        each = np.repeat(users, self.ratings.n_items)
        return self.pairs(each, everything).reshape(users.size, self.ratings.n_items)
