"""What a victim is and what a defense is, for everything that runs or records them.

What they hand to each other is in ``exchanged``, whom it goes to in ``network``, and what a defense proves in
``account``; all of it is imported from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from victims.data.ratings import Ratings
from victims.protocols.account import Account, Setting
from victims.protocols.exchanged import (
    Agreed,
    Attacker,
    Centralised,
    Cipher,
    Holding,
    Received,
    Rows,
    Sample,
    SetUp,
    Total,
    pieces,
)
from victims.protocols.network import Edges, Graph, Network, Shape, Star
from victims.transcript.manifest import Manifest

__all__ = [
    "Agreed",
    "Attacker",
    "Capabilities",
    "Centralised",
    "Cipher",
    "Defense",
    "Edges",
    "Graph",
    "Holding",
    "Network",
    "Predictor",
    "Products",
    "Received",
    "Rows",
    "Sample",
    "SetUp",
    "Shape",
    "Star",
    "State",
    "Total",
    "Victim",
    "changes",
    "pieces",
]


State = TypeVar("State")


class Defense:
    """What clients do before anybody sees what they send; this one does nothing, and others override verbs.

    There is a verb for each place where something of a client leaves it, and each is given all that leaves
    there: ``set_up`` what is sent once before the first round, ``uploaded`` the rows of a round. All verbs
    are pure functions and treat each client by itself, except for what is public. ``ratings`` are those that
    clients train on (``on_device``).

    Attributes
    ----------
    name : str
        In the registry and in the manifest.
    attackers : tuple of Attacker
        Attacks that know of this defense, the strongest first; where there are none, ``likelihood`` and
        ``rated-set`` are tried, which may not read what it sends.
    per_message : bool
        Whether every message is changed anew; else a row is the same for all who receive it.
    """

    name: str
    attackers: tuple[Attacker, ...] = ()
    per_message: bool = False

    @property
    def additive(self) -> bool:
        """Whether what is added to a row does not depend on the row."""
        return False

    def agreed(self, victim: Victim[Any]) -> Victim[Any]:
        """The protocol with what its clients agree on beside it, for which a server has to step otherwise."""
        return victim

    def on_device(self, ratings: Ratings, seed: int) -> Ratings:
        """The ratings that clients train on."""
        return ratings

    def sampled(self, ratings: Ratings, round_: int, seed: int) -> Sample | None:
        """Unrated items that take part in round ``round_``; None leaves the choice to the victim."""
        return None

    def set_up(self, sent: SetUp, ratings: Ratings, seed: int) -> SetUp:
        """What clients send before the first round, as it leaves them: item sets, or counts of them."""
        return sent

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The rows as they leave the clients in round ``round_``; those of a client are together."""
        return rows

    def summed(self, arrived: Received, round_: int, seed: int) -> Received:
        """What a trusted aggregator makes of the sums of round ``round_`` before anybody sees them."""
        return arrived

    def noise_scale(
        self, ratings: Ratings, factors: int, round_: int, seed: int
    ) -> Float[np.ndarray, "items factors"] | None:
        """Standard deviation of Gaussian noise in every upload about an item, where the server knows it."""
        return None

    def predicted(
        self, values: Float[np.ndarray, " entries"], at: Ratings, seed: int
    ) -> Float[np.ndarray, " entries"]:
        """Predictions for the entries of ``at`` as the clients use them."""
        return values

    def cipher(self, n_users: int, factors: int, seed: int) -> Cipher | None:
        """What the uploads are encrypted with, under a new key; None leaves them in the clear."""
        return None

    def account(self, ratings: Ratings, setting: Setting) -> Account | None:
        """What is proved about this defense on these ratings; None where it states nothing."""
        return None

    def public(self) -> dict[str, Any]:
        """The manifest's entry: the name, and what the adversary is taken to know."""
        return {"name": self.name}


def changes(defense: Defense, verb: str) -> bool:
    """Tell whether a defense does anything where a verb is asked.

    Examples
    --------
    >>> changes(Defense(), "uploaded")
    False
    """
    return getattr(type(defense), verb) is not getattr(Defense, verb)


@runtime_checkable
class Predictor(Protocol):
    """What a victim predicts in one round."""

    def pairs(self, users: Int[np.ndarray, " n"], items: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Predictions for pairs of a client and an item, in stars."""
        ...

    def scores(self, users: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some items"]:
        """Predictions of some clients for all items, in stars."""
        ...


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


@dataclass(frozen=True)
class Capabilities:
    """What is otherwise than with one server who adds up rows, and what a victim can do beyond its verbs.

    A function is None where there is nothing of the kind. Those of a state are pure functions of it.

    Attributes
    ----------
    centralised : Centralised
        The same model without the federation; what a client's own step adds to it is left out.
    attackers : tuple of Attacker
        Attacks that know its clients' rule, the strongest first.
    sampling_obstacle : str
        Why unrated items must not be sampled; empty where they may.
    blind_server : bool
        The server only adds the sums to the item factors, so under encryption it never sees either.
    implicit : bool
        It learns that an item is rated, and not how: ratings are interactions to it, and predictions scores.
    has_biases : bool
        Predictions have biases (``state.biases``), and the rows a column of them.
    network : callable, optional
        (state, ratings) -> whom the rows of this round go to; without it to one server.
    holdings : callable, optional
        (state, ratings, watched) -> item factors that each of some clients (ascending) alone knows before the
        rows of this round: those that differ from what everybody knows.
    set_up : callable, optional
        (state, ratings) -> what is sent once, before the first round, and is no row of factors.
    shared_rows : callable, optional
        (state, ratings, users) -> what is sent in each round about parameters that all share beside the item
        factors, of a declared kind of role other: as broadcast by the server, and by the given clients. No
        defense changes it.
    predictor : callable, optional
        (state, ratings, sample) -> ``Predictor``; without it p . q, and the biases if there are any.
    stopped : callable, optional
        (state) -> whether the round that led to it was the last one, whatever was asked for.
    uploads_in_turn : callable, optional
        (state, ratings, users, received) -> ``Rows`` with the factor of its moment as the reference of each,
        where the server steps at every single upload, so that no sums are formed. ``received`` is what
        defenses add, which moves the factors, too.
    item_server_rows : callable, optional
        (state, ratings) -> (items, factors), what a third party sends the server, which is no client's
        upload.
    new_clients, new_items : callable, optional
        (state, attributes) and (state, features) -> factors of those who were not there in training.
    """

    centralised: Centralised
    attackers: tuple[Attacker, ...] = ()
    sampling_obstacle: str = ""
    blind_server: bool = False
    implicit: bool = False
    has_biases: bool = False
    network: Callable[[Any, Ratings], Network] | None = None
    holdings: Callable[[Any, Ratings, Int[np.ndarray, " clients"]], Iterator[Holding]] | None = None
    set_up: Callable[[Any, Ratings], Iterator[SetUp]] | None = None
    shared_rows: Callable[[Any, Ratings, Int[np.ndarray, " users"]], Iterator[SetUp]] | None = None
    predictor: Callable[[Any, Ratings, Sample | None], Predictor] | None = None
    stopped: Callable[[Any], bool] | None = None
    uploads_in_turn: Callable[[Any, Ratings, np.ndarray, Received | None], Iterator[Rows]] | None = None
    item_server_rows: Callable[[Any, Ratings], Float[np.ndarray, "items factors"]] | None = None
    new_clients: Callable[[Any, np.ndarray], Float[np.ndarray, "users factors"]] | None = None
    new_items: Callable[[Any, np.ndarray], Float[np.ndarray, "items factors"]] | None = None


@runtime_checkable
class Victim(Protocol[State]):
    """A recommender protocol: a frozen set of hyper-parameters with these verbs.

    What everybody knows before the rows of a round is ``broadcast``; clients send rows (``uploads``) to a
    server, or to whom its ``capabilities`` say, and in ``round`` everybody steps with what arrived.

    ``round`` must be a pure function of the state and the ratings. What is known before the rows of a round
    and what the clients send in it are read off the state before the round. States are named tuples with
    ``round``, how many rounds are done, and where there is a server ``item_factors``.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What is otherwise than with one server, and what else it can do."""
        ...

    def init(self, ratings: Ratings, seed: int) -> State:
        """The state before round 0."""
        ...

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One full exchange: rows are sent, and whoever receives them, and the clients, step.

        ``received`` is what arrives where defenses change the rows (``Network.arrived``); None means
        the rows as they are. ``sample`` are unrated items that take part.

        Raises
        ------
        InputError
            If a factor is no longer finite.
        """
        ...

    def broadcast(
        self, state: State
    ) -> tuple[Float[np.ndarray, "items factors"], Float[np.ndarray, "attributes factors"]]:
        """Item and attribute factors that everybody knows before the rows of a round; may be none."""
        ...

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """What the given clients (ascending) upload in this round, in memory-sized pieces."""
        ...

    def user_factors(
        self, state: State, ratings: Ratings, sample: Sample | None = None
    ) -> Float[np.ndarray, "users factors"]:
        """The clients' factors that this round's uploads and predictions use."""
        ...

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """What is public about a recording of these rounds."""
        ...
