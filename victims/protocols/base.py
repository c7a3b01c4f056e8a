"""The small interfaces between victim protocols, defenses, and everything that runs or records them.

What they hand to each other is in ``exchanged``, ciphers are in ``ciphers``, and a defense that does nothing
is in ``unchanged``; all of it is imported from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from victims.data.ratings import Ratings
from victims.protocols.account import Account, Setting
from victims.protocols.ciphers import Agreed, Cipher, Total
from victims.protocols.exchanged import (
    Attacker,
    Centralised,
    Holding,
    Received,
    Rows,
    Sample,
    SetUp,
    pieces,
)
from victims.protocols.network import Edges, Graph, Network, Star
from victims.protocols.no_server import NoServer
from victims.protocols.one_server import OneServer, Products
from victims.protocols.row_sums import Shape
from victims.protocols.unchanged import Unchanged
from victims.transcript.manifest import Manifest

__all__ = [
    "Agreed",
    "Attacker",
    "Centralised",
    "Choosy",
    "Cipher",
    "Defense",
    "Edges",
    "Graph",
    "Holding",
    "InTurn",
    "Network",
    "NoServer",
    "OneServer",
    "Predictor",
    "Products",
    "Received",
    "Rows",
    "Sample",
    "SetUp",
    "Shape",
    "Star",
    "State",
    "Stopping",
    "Total",
    "Unchanged",
    "Victim",
    "WithFoldIn",
    "WithItemServer",
    "pieces",
]


State = TypeVar("State")


@runtime_checkable
class Defense(Protocol):
    """What clients do before anybody sees their uploads; ``Unchanged`` does nothing.

    All verbs are pure functions and treat each client by itself, except for what is public. ``ratings`` are
    those that clients train on (``on_device``); ``public`` is the manifest's entry: a name and what the
    adversary is taken to know.
    """

    @property
    def name(self) -> str:
        """The name in the registry and in the manifest."""
        ...

    @property
    def additive(self) -> bool:
        """What is added to a row does not depend on the row."""
        ...

    @property
    def per_message(self) -> bool:
        """Whether every message is changed anew; else a row is the same for all who receive it."""
        ...

    @property
    def sums_of_neighbours(self) -> bool:
        """Whether its cipher shows each client the sum over its neighbours of an item, and no row."""
        ...

    @property
    def changes_uploads(self) -> bool:
        """Whether ``uploaded`` does anything; where no defense does, no rows are formed in training."""
        ...

    @property
    def changes_predictions(self) -> bool:
        """Whether ``predicted`` does anything."""
        ...

    @property
    def attackers(self) -> tuple[Attacker, ...]:
        """Attacks that know of this defense, the strongest first; none where nobody has written one."""
        ...

    def on_device(self, ratings: Ratings, seed: int) -> Ratings:
        """The ratings that clients train on."""
        ...

    def sampled(self, ratings: Ratings, round_: int, seed: int) -> Sample | None:
        """Unrated items that take part in round ``round_``; None leaves the choice to the victim."""
        ...

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The rows as they leave the clients in round ``round_``; those of a client are together."""
        ...

    def noise_scale(
        self, ratings: Ratings, factors: int, round_: int, seed: int
    ) -> Float[np.ndarray, "items factors"] | None:
        """Standard deviation of Gaussian noise in every upload about an item, where the server knows it."""
        ...

    def predicted(
        self, values: Float[np.ndarray, " entries"], at: Ratings, seed: int
    ) -> Float[np.ndarray, " entries"]:
        """Predictions for the entries of ``at`` as the clients use them."""
        ...

    def cipher(self, n_users: int, factors: int, seed: int) -> Cipher | None:
        """What the uploads are encrypted with, under a new key; None leaves them in the clear."""
        ...

    def account(self, ratings: Ratings, setting: Setting) -> Account | None:
        """What is proved about this defense on these ratings; None where it states nothing."""
        ...

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        ...


@runtime_checkable
class Predictor(Protocol):
    """What a victim predicts in one round."""

    def pairs(self, users: Int[np.ndarray, " n"], items: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Predictions for pairs of a client and an item, in stars."""
        ...

    def scores(self, users: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some items"]:
        """Predictions of some clients for all items, in stars."""
        ...


@runtime_checkable
class Victim(Protocol[State]):
    """A recommender protocol: parties, what each holds, and the messages of a round.

    It is a frozen set of hyper-parameters with these verbs. Clients send rows (``uploads``); ``network``
    says to whom: to a server, or to neighbours along a graph. What everybody knows before the rows of a
    round is ``broadcast``, what one client alone knows are its ``holdings``; ``set_up`` is what is sent
    once, before the first round. ``OneServer`` has the verbs that need no thought where there is a server.

    ``round`` must be a pure function of the state and the ratings. What is known before the rows of a round
    and what the clients send in it are read off the state before the round. States are named tuples with
    ``round``, how many rounds are done, and where there is a server ``item_factors``.
    """

    @property
    def blind_server(self) -> bool:
        """The server only adds the sums to the item factors, so under encryption it never sees either."""
        ...

    @property
    def stepwise(self) -> bool:
        """The server steps at every single upload, so that no sums are formed."""
        ...

    @property
    def has_item_server(self) -> bool:
        """A third party sends the server rows about items: the victim is a ``WithItemServer``."""
        ...

    @property
    def folds_in(self) -> bool:
        """New clients and items have factors, from attributes and features: it is a ``WithFoldIn``."""
        ...

    @property
    def centralised(self) -> Centralised:
        """The same model without the federation; what a client's own step adds to it is left out."""
        ...

    @property
    def attackers(self) -> tuple[Attacker, ...]:
        """Attacks that know its clients' rule, the strongest first."""
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
            If a factor is no longer finite, or the victim has no weight for unrated items.
        """
        ...

    def broadcast(
        self, state: State
    ) -> tuple[Float[np.ndarray, "items factors"], Float[np.ndarray, "attributes factors"]]:
        """Item and attribute factors that everybody knows before the rows of a round; may be none."""
        ...

    def network(self, state: State, ratings: Ratings) -> Network:
        """Whom the rows of this round go to."""
        ...

    def holdings(
        self, state: State, ratings: Ratings, watched: Int[np.ndarray, " clients"]
    ) -> Iterator[Holding]:
        """Item factors that each of some clients alone knows before the rows of this round.

        Only those that differ from what everybody knows; ``watched`` ascends.
        """
        ...

    def set_up(self, state: State, ratings: Ratings) -> Iterator[SetUp]:
        """What is sent once, before the first round, and is no row of factors."""
        ...

    def predictor(self, state: State, ratings: Ratings, sample: Sample | None = None) -> Predictor:
        """What the clients predict in this round."""
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


@runtime_checkable
class InTurn(Protocol[State]):
    """A victim whose server steps at every upload (``stepwise``)."""

    def uploads_in_turn(
        self, state: State, ratings: Ratings, users: np.ndarray, received: Received | None
    ) -> Iterator[Rows]:
        """What the given clients upload, each row with the factor of its moment as its reference.

        ``received`` is what defenses add, which moves the factors, too.
        """
        ...


@runtime_checkable
class Stopping(Protocol[State]):
    """A victim whose training may be over before the last round that was asked for."""

    def stopped(self, state: State) -> bool:
        """Whether the round that led to this state was the last one."""
        ...


@runtime_checkable
class Choosy(Protocol):
    """A victim that says before any training whether unrated items may be sampled."""

    def sampling_obstacle(self) -> str:
        """Why they must not be; empty where they may."""
        ...


@runtime_checkable
class WithItemServer(Protocol[State]):
    """A victim with a third party, who sends the server rows about items that are no client's upload."""

    def item_server_rows(self, state: State, ratings: Ratings) -> Float[np.ndarray, "items factors"]:
        """What the item server sends in this round."""
        ...


@runtime_checkable
class WithFoldIn(Protocol[State]):
    """A victim that has factors for clients and items who were not there in training."""

    def new_clients(
        self, state: State, attributes: Float[np.ndarray, "users attributes"]
    ) -> Float[np.ndarray, "users factors"]:
        """Factors of clients of whom attributes alone are known."""
        ...

    def new_items(
        self, state: State, features: Float[np.ndarray, "items features"]
    ) -> Float[np.ndarray, "items factors"]:
        """Factors of items of which features alone are known."""
        ...
