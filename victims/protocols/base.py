"""The small interface between a victim protocol and everything that runs or records it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.data.ratings import Ratings
from victims.protocols.account import Account, Setting
from victims.transcript.manifest import Manifest

State = TypeVar("State")
PIECE_BYTES = 32 << 20  # gradients of one recorded piece


@dataclass(frozen=True)
class Rows:
    """Some uploaded rows, those of one client following each other.

    Attributes
    ----------
    sender, kind, index : (n_rows,) int32
    gradient : (n_rows, factors) float64
    """

    sender: Int[np.ndarray, " rows"]
    kind: Int[np.ndarray, " rows"]
    index: Int[np.ndarray, " rows"]
    gradient: Float[np.ndarray, "rows factors"]


def pieces(users: np.ndarray, counts: np.ndarray, factors: int) -> Iterator[np.ndarray]:
    """Users in memory-sized pieces.

    Parameters
    ----------
    users : (n_users,) int
    counts : (n_users,) int
        Rows that each of them uploads.
    factors : int
        Numbers in a row.
    """
    budget = max(1, PIECE_BYTES // (8 * factors))
    piece_of = (np.cumsum(counts) - 1) // budget
    for piece in np.split(users, np.flatnonzero(np.diff(piece_of)) + 1):
        if piece.size:
            yield piece


@dataclass(frozen=True, eq=False)
class Sample:
    """Unrated items that clients treat as rated zero, with the victim's weight alpha, in one round.

    Two samples are the same if they are one object.

    Attributes
    ----------
    user, item : (n_sampled,) int32
        Ascending by user, then item.
    """

    user: Int[np.ndarray, " sampled"]
    item: Int[np.ndarray, " sampled"]

    def of(self, users: Int[np.ndarray, " some"]) -> Sample:
        """Those of some users."""
        keep = np.isin(self.user, users)
        return Sample(self.user[keep], self.item[keep])


class Centralised(NamedTuple):
    """The model of a victim as one who holds every rating would fit it: r = p . q with ridge on both sides.

    factors is K; ridge counts once per row, or where ``per_rating`` once per rating of the row (Y. Zhou et
    al., AAIM 2008); unrated_weight is the weight of unrated items as zeros, 0 where they do not take part.
    """

    factors: int
    ridge: float
    unrated_weight: float = 0.0
    per_rating: bool = False


class Attacker(NamedTuple):
    """The name of an attack that adapts to a victim or a defense, and how many consecutive rounds it uses."""

    name: str
    rounds: int = 1


class Received(NamedTuple):
    """What reaches the server in one round: sums of the uploaded rows over clients.

    items (n_items, factors), attributes (n_attributes, factors). Where the server steps at every upload
    (``Victim.stepwise``) the sums are empty, and added (n_ratings, factors) is what defenses add to each.
    """

    items: Float[np.ndarray, "items factors"]
    attributes: Float[np.ndarray, "attributes factors"]
    added: Float[np.ndarray, "entries factors"] | None = None


@runtime_checkable
class Total(Protocol):
    """Sums of uploaded rows over clients, formed piece by piece as the server forms them."""

    def add(self, group: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows factors"]) -> None:
        """Add each row to the sum of its group."""
        ...

    def opened(self, wanted: Bool[np.ndarray, " groups"]) -> Float[np.ndarray, "groups factors"]:
        """The wanted sums in the clear, zeros elsewhere."""
        ...


@runtime_checkable
class Agreed(Protocol):
    """What clients agree on before they encrypt.

    ``min_contributors``: sums of fewer clients are not decrypted; ``decrypters``: clients who decrypt them,
    row j being the work of number j modulo their number.
    """

    @property
    def min_contributors(self) -> int:
        """Fewest clients whose sum is decrypted."""
        ...

    @property
    def decrypters(self) -> Int[np.ndarray, " decrypters"]:
        """Client numbers."""
        ...

    def rounded(self, values: Float[np.ndarray, "rows factors"]) -> Float[np.ndarray, "rows factors"]:
        """The numbers as the encoding represents them."""
        ...

    def exponents(self, values: Float[np.ndarray, "rows factors"]) -> Int[np.ndarray, " rows"] | None:
        """What an unsafe encoding publishes beside each row."""
        ...


@runtime_checkable
class Cipher(Protocol):
    """An additively homomorphic cipher and its key, for one recording."""

    @property
    def rules(self) -> Agreed:
        """What clients agree on."""
        ...

    def seal(self, values: Float[np.ndarray, "rows factors"]) -> list[bytes]:
        """One ciphertext per row."""
        ...

    def total(self, groups: int, factors: int) -> Total:
        """Sums under encryption, all zero."""
        ...

    def key(self) -> dict[str, str]:
        """What opens the ciphertexts; it goes beside the recording, never into it."""
        ...

    def public(self) -> dict[str, str]:
        """What everybody knows of the key; it goes into the manifest."""
        ...


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


class Unchanged:
    """The verbs of a defense that does nothing; a defense overrides those that it is about.

    What a defense changes follows from the verbs that it overrides, so that none can forget to declare it.
    """

    name: str

    @property
    def changes_uploads(self) -> bool:
        """Whether ``uploaded`` is overridden."""
        return type(self).uploaded is not Unchanged.uploaded

    @property
    def changes_predictions(self) -> bool:
        """Whether ``predicted`` is overridden."""
        return type(self).predicted is not Unchanged.predicted

    @property
    def additive(self) -> bool:
        """What is added to a row may depend on the row."""
        return False

    @property
    def attackers(self) -> tuple[Attacker, ...]:
        """No attack knows of it."""
        return ()

    def on_device(self, ratings: Ratings, seed: int) -> Ratings:
        """Clients train on what they rated."""
        return ratings

    def sampled(self, ratings: Ratings, round_: int, seed: int) -> Sample | None:
        """No choice of unrated items."""
        return None

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """Rows are not changed."""
        return rows

    def noise_scale(
        self, ratings: Ratings, factors: int, round_: int, seed: int
    ) -> Float[np.ndarray, "items factors"] | None:
        """No noise whose scale the server is told."""
        return None

    def predicted(
        self, values: Float[np.ndarray, " entries"], at: Ratings, seed: int
    ) -> Float[np.ndarray, " entries"]:
        """Predictions are used as they are."""
        return values

    def cipher(self, n_users: int, factors: int, seed: int) -> Cipher | None:
        """Uploads stay in the clear."""
        return None

    def account(self, ratings: Ratings, setting: Setting) -> Account | None:
        """Nothing is stated."""
        return None

    def public(self) -> dict[str, Any]:
        """The name alone."""
        return {"name": self.name}


@runtime_checkable
class Victim(Protocol[State]):
    """A recommender protocol: a frozen set of hyper-parameters with these verbs.

    ``round`` must be a pure function of the state and the ratings. What the server broadcasts before
    the uploads of a round and what the clients upload in it are read off the state before the round.
    States are named tuples with ``round``, how many rounds are done, and ``item_factors``.
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

    @property
    def factor_bound(self) -> float | None:
        """Largest Euclidean norm that a client's factor can have; None where nothing bounds it."""
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
        """One full exchange: uploads, the server's step and the clients' step.

        ``received`` are the sums that reach the server where defenses change the uploads; None means
        the sums of the uploads as they are. ``sample`` are unrated items that take part.

        Raises
        ------
        InputError
            If a factor is no longer finite, or the victim has no weight for unrated items.
        """
        ...

    def broadcast(
        self, state: State
    ) -> tuple[Float[np.ndarray, "items factors"], Float[np.ndarray, "attributes factors"]]:
        """Item and attribute factors that every client receives before it uploads."""
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
