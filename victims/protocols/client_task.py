"""What a round of the clients is a function of, under switches: their step, and everything that they hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from victims.data.ratings import Ratings
from victims.protocols.jax_ratings import Data
from victims.protocols.switches import Switches


class ClientStep(NamedTuple):
    """A protocol's step of its clients: p <- P(shrink p + 2 rate sum e q)."""

    rate: float  # gamma, and lambda in shrink = 1 - 2 gamma lambda
    ridge: float  # gamma, and lambda in shrink = 1 - 2 gamma lambda
    scale: float  # an uploaded gradient is scale c e p + pull q
    pull: float = 0.0  # an uploaded gradient is scale c e p + pull q
    item_pull: float = 0.0  # mu of the step of the client's copies of q
    attribute_weight: float = 0.0  # lambda_1
    ridge_per_rating: bool = False  # whether lambda counts once per rating; whether p is projected
    unit_ball: bool = False  # whether lambda counts once per rating; whether p is projected


class Biases(NamedTuple):
    """Biases, in stars."""

    items: Float[np.ndarray, " items"]  # which are broadcast
    clients: Float[np.ndarray, " users"]  # zeros where they have none


def start_biases(switches: Switches, ratings: Ratings) -> Biases | None:
    """Start with the middle of the scale for every item, and with nothing for clients."""
    if switches.biases is None:
        return None
    middle = (ratings.levels[0] + ratings.levels[-1]) / 2
    return Biases(np.full(ratings.n_items, middle), np.zeros(ratings.n_users))


class Task(NamedTuple):
    """Everything that a round of the clients is a function of."""

    switches: Switches
    step: ClientStep
    data: Data  # what clients have rows of; by user, then item
    items: Float[np.ndarray, "items K"]  # as broadcast, and the clients' own
    attributes: Float[np.ndarray, "attributes K"]  # as broadcast, and the clients' own
    clients: Float[np.ndarray, "users K"]  # as broadcast, and the clients' own
    seed: int
    round: int
    biases: Biases | None = None
