"""What a round of the clients is a function of, under switches: their step, and everything that they hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from victims.data.ratings import Ratings
from victims.protocols.jax_ratings import Data
from victims.protocols.switches import Switches


class ClientStep(NamedTuple):
    """A protocol's step of its clients: p <- P(shrink p + 2 rate sum e q).

    Attributes
    ----------
    rate, ridge : float
        gamma, and lambda in shrink = 1 - 2 gamma lambda.
    scale, pull : float
        An uploaded gradient is scale c e p + pull q.
    item_pull : float
        mu of the step of the client's copies of q.
    attribute_weight : float
        lambda_1.
    ridge_per_rating, unit_ball : bool
        Whether lambda counts once per rating; whether p is projected.
    """

    rate: float
    ridge: float
    scale: float
    pull: float = 0.0
    item_pull: float = 0.0
    attribute_weight: float = 0.0
    ridge_per_rating: bool = False
    unit_ball: bool = False


class Biases(NamedTuple):
    """Biases, in stars.

    Attributes
    ----------
    items : (n_items,)
        Which are broadcast.
    clients : (n_users,)
        Zeros where they have none.
    """

    items: Float[np.ndarray, " items"]
    clients: Float[np.ndarray, " users"]


def start_biases(switches: Switches, ratings: Ratings) -> Biases | None:
    """Start with the middle of the scale for every item, and with nothing for clients.

    Parameters
    ----------
    switches : Switches
    ratings : Ratings

    Returns
    -------
    Biases or None
        In stars; None where ``switches`` ask for no biases.
    """
    if switches.biases is None:
        return None
    middle = (ratings.levels[0] + ratings.levels[-1]) / 2
    return Biases(np.full(ratings.n_items, middle), np.zeros(ratings.n_users))


class Task(NamedTuple):
    """Everything that a round of the clients is a function of.

    Attributes
    ----------
    switches : Switches
    step : ClientStep
    data : Data
        What clients have rows of; by user, then item.
    items, attributes, clients : (n_items, K), (n_attributes, K), (n_users, K)
        As broadcast, and the clients' own.
    seed, round : int
    biases : Biases, optional
    """

    switches: Switches
    step: ClientStep
    data: Data
    items: Float[np.ndarray, "items K"]
    attributes: Float[np.ndarray, "attributes K"]
    clients: Float[np.ndarray, "users K"]
    seed: int
    round: int
    biases: Biases | None = None
