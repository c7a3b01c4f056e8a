"""What victims, defenses and the server hand to each other, in the clear or under an additive cipher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.transcript.kinds import ITEM

PIECE_BYTES = 32 << 20  # gradients of one recorded piece


@dataclass(frozen=True)
class Rows:
    """Some uploaded rows, those of one client following each other.

    Attributes
    ----------
    sender, kind, index : (n_rows,) int32
        kind is ``ITEM`` or ``ATTRIBUTE``, or ``IMPLICIT`` of a second table of item factors.
    gradient : (n_rows, factors) float64
    sequence : (n_rows,) int32, or None
        Place of each row among those of its client, where clients send them in the order of their steps.
    reference : (n_rows, factors) float64, or None
        The factor that each row was computed at, where that is not what was broadcast.
    bias : (n_rows,) float64, or None
        The change of the item's bias that is sent beside each row, in stars; None where items have none.
    """

    sender: Int[np.ndarray, " rows"]
    kind: Int[np.ndarray, " rows"]
    index: Int[np.ndarray, " rows"]
    gradient: Float[np.ndarray, "rows factors"]
    sequence: Int[np.ndarray, " rows"] | None = None
    reference: Float[np.ndarray, "rows factors"] | None = None
    bias: Float[np.ndarray, " rows"] | None = None


def pieces(users: np.ndarray, counts: np.ndarray, factors: int) -> Iterator[np.ndarray]:
    """Users in memory-sized pieces."""
    budget = max(1, PIECE_BYTES // (8 * factors))
    piece_of = (np.cumsum(counts) - 1) // budget
    for piece in np.split(users, np.flatnonzero(np.diff(piece_of)) + 1):
        if piece.size:
            yield piece


def summed_by(
    group: Int[np.ndarray, " rows"], rows: Float[np.ndarray, "rows K"], n_groups: int
) -> Float[np.ndarray, "groups K"]:
    """Sum the rows of each group.

    Examples
    --------
    >>> summed_by(np.array([2, 0, 2]), np.array([[1.0], [2.0], [3.0]]), 3).ravel()
    array([2., 0., 4.])
    """
    sums = [np.bincount(group, column, minlength=n_groups) for column in rows.T]
    return np.stack(sums, axis=1).astype(np.float64, copy=False)  # of no groups they are whole numbers


def ranges(first: Int[np.ndarray, " groups"], size: Int[np.ndarray, " groups"]) -> Int[np.ndarray, " rows"]:
    """Numbers from the first of each group on, as many as it has, group by group.

    Examples
    --------
    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    return np.arange(size.sum()) + np.repeat(first - (np.cumsum(size) - size), size)


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

    Attributes
    ----------
    factors : int
        K.
    ridge : float
        Counts once per row.
    unrated_weight : float
        Weight of unrated items as zeros, 0 where they do not take part.
    per_rating : bool
        Ridge counts once per rating of the row instead (Y. Zhou et al., AAIM 2008).
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
    """What reaches the server, or neighbours, in one round.

    Attributes
    ----------
    items, attributes : (n_items, factors), (n_attributes, factors)
        Sums of the uploaded rows over clients; empty where there are none.
    added : (n_ratings, factors), optional
        What defenses add to each row, where the server steps at every upload.
    rows : Rows, optional
        Of all clients, where rows go to neighbours.
    copies : callable, optional
        From a receiver to what reaches it, where defenses treat every message anew.
    """

    items: Float[np.ndarray, "items factors"]
    attributes: Float[np.ndarray, "attributes factors"]
    added: Float[np.ndarray, "entries factors"] | None = None
    rows: Rows | None = None
    copies: Callable[[int], Rows] | None = None


@dataclass(frozen=True)
class Holding:
    """Item factors that one client alone knows, before the messages of a round."""

    holder: int | None  # the client; None is everybody, for a second table of item factors
    index: Int[np.ndarray, " rows"]  # the items, ascending
    factors: Float[np.ndarray, "rows factors"]
    kind: int = ITEM  # ``ITEM``, or ``IMPLICIT`` of a second table


@dataclass(frozen=True)
class SetUp:
    """Messages of one kind before the first round, or beside the rows of one, which are no gradients."""

    kind: str  # A declared kind of role other
    receiver: int | None  # the party of the manifest that they go to; None is everybody
    sender: Int[np.ndarray, " rows"]  # index is what the kind counts
    index: Int[np.ndarray, " rows"]  # index is what the kind counts
    # one number of each row, or K where the kind has no width; none where a row is its index alone
    value: Float[np.ndarray, " rows"] | Float[np.ndarray, "rows factors"] | None = None


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
    row j being the work of number j modulo their number; none where masks cancel in what a neighbour adds up.
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
        """What opens the ciphertexts, or nothing; it goes beside the recording, never into it."""
        ...

    def public(self) -> dict[str, str]:
        """What everybody knows of the key; it goes into the manifest."""
        ...
