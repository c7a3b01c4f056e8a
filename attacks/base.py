"""What an attack is, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from victims.common.errors import InputError
from victims.transcript.view import View

Progress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Report progress to nobody."""


class Outcome(StrEnum):
    """What became of an attack as a whole; why single clients have no answer is in ``abstained``."""

    ANSWERED = "answered"  # clients without an answer are counted as abstained
    NOTHING_FOUND = "nothing found"  # it applied, and whoever has no answer could not be told from noise
    NOT_APPLICABLE = "not applicable"  # nobody is answered, for a reason that is about the view


class Scope(StrEnum):
    """What the answers are about."""

    RATINGS_AND_ATTRIBUTES = "ratings and attributes"
    RATED_SET = "rated set"  # which items are rated; values of ratings and attributes mean nothing
    DIFFERENCES = "rating differences"  # levels; by how many all of a client are to be shifted is open
    SIZES = "sizes of rating differences"  # and whether all of them are upside down
    LIST_LENGTHS = "list lengths"  # how many items are rated: a diagnostic of that name, and no blocks


#: Of answers that tell a client's ratings relative to each other alone.
RELATIVE = (Scope.DIFFERENCES, Scope.SIZES)


class Identities(StrEnum):
    """What ``users`` of a reconstruction are."""

    CLIENTS = "clients"  # of the view
    PSEUDONYMS = "pseudonyms"  # 0, 1, ...: rows of one client each, without saying which


@dataclass(frozen=True)
class Estimates:
    """Answers about some clients, one row per item or attribute.

    Attributes
    ----------
    users : (n_users,)
    kind, index : (1 or n_users, n_rows)
        One row when shared by all clients of the block.
    value : (n_users, n_rows) float32 or float64
        Estimated rating in stars, 0 for unrated; estimated attribute. Not rounded. NaN marks
        padding and clients that the attack abstains on.
    probability : (n_users, n_rows), optional
        The attack's own probability that ``value``, rounded to the grid, is right.
    rated_probability : (n_users, n_rows), optional
        The attack's own probability that the item is rated at all.
    rating_if_rated : (n_users, n_rows), optional
        The most probable rating in stars, given that the item is rated; not rounded. Without it ``value``
        answers that question, too.
    median_if_rated : (n_users, n_rows), optional
        The median of the same posterior in stars, which has the least expected absolute error.

    The last three are about items and may be NaN anywhere; each metric uses the answer to its own question
    (``audit.scoring.metrics``).
    """

    users: Int[np.ndarray, " users"]
    kind: Int[np.ndarray, "a rows"]
    index: Int[np.ndarray, "b rows"]
    value: Float[np.ndarray, "users rows"]
    probability: Float[np.ndarray, "users rows"] | None = None
    rated_probability: Float[np.ndarray, "users rows"] | None = None
    rating_if_rated: Float[np.ndarray, "users rows"] | None = None
    median_if_rated: Float[np.ndarray, "users rows"] | None = None

    def __repr__(self) -> str:
        """One line: of how many clients and rows."""
        return f"Estimates(users={self.users.size}, rows={self.value.shape[-1]})"


@dataclass(frozen=True)
class ClientFactors:
    """The factors p_i of some clients, as an attack read them.

    Attributes
    ----------
    users : (n_users,) ascending
    round : (n_users,)
        The round whose uploads the factor made.
    value : (n_users, K)
        With length and sign.

    Raises
    ------
    InputError
        If a client is named twice.
    """

    users: Int[np.ndarray, " users"]
    round: Int[np.ndarray, " users"]
    value: Float[np.ndarray, "users K"]

    def __post_init__(self) -> None:
        if (np.diff(self.users) <= 0).any():
            raise InputError("users of the factors must ascend, each client once; see attacks.base.joined")

    def __repr__(self) -> str:
        """One line: of how many clients."""
        return f"ClientFactors(users={self.users.size}, factors={self.value.shape[1]})"

    def of(self, users: Int[np.ndarray, " some"]) -> ClientFactors:
        """Those of some clients."""
        keep = np.isin(self.users, users)
        return ClientFactors(self.users[keep], self.round[keep], self.value[keep])


def joined(parts: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> ClientFactors | None:
    """The factors of several batches of different clients; None where no factor is finite."""
    given = list(parts)
    if not given:
        return None
    users, round_, value = (np.concatenate(columns) for columns in zip(*given, strict=True))
    known = np.flatnonzero(np.isfinite(value).all(axis=1))
    if not known.size:
        return None
    known = known[np.argsort(users[known])]
    return ClientFactors(users[known].astype(np.int32), round_[known].astype(np.int32), value[known])


@dataclass(frozen=True)
class Linked:
    """Who an attack says sent the rows that an adversary received (``View.copies``)."""

    # pseudonym of each row's sender, in the order of the view; -1 where it is linked to nobody
    label: Int[np.ndarray, " rows"]
    # the client that each pseudonym is said to be; -1 where it is not named
    name: Int[np.ndarray, " pseudonyms"]
    # the round of each row, which tells of what part of a recording the view was; without it, of all
    round: Int[np.ndarray, " rows"] | None = None
    adversary: str = ""  # whose view it was; empty where that is not told


OPTIONAL = ("probability", "rated_probability", "rating_if_rated", "median_if_rated")  # of Estimates


@dataclass(frozen=True)
class Reconstruction:
    """What an attack read out of a view.

    Attributes
    ----------
    attack : str
    users : (n_users,)
        Every client that the attack looked at, ascending.
    blocks : tuple of Estimates
    abstained : mapping of client to reason
    options : mapping
        The attack's hyper-parameters and seed, as recorded in the file.
    diagnostics : mapping of name to (n_users,) array
        Per client, in the order of ``users``.
    outcome : Outcome
        Keyword only, as all that follow.
    obstacle : str
        Why nobody is answered, where ``outcome`` is ``NOT_APPLICABLE``; otherwise empty.
    scope : Scope
    identities : Identities
    answered_by : str
        Name of the attack whose answer was taken over; otherwise empty.
    factors : ClientFactors or None
        The clients' factors, where the attack knows them.
    linked : Linked, or None
        Who sent what, where senders were not told; it is not kept in files.

    Raises
    ------
    InputError
        If ``outcome``, ``obstacle`` and ``abstained`` contradict each other, or a factor is of nobody.
    """

    attack: str
    users: Int[np.ndarray, " users"]
    blocks: tuple[Estimates, ...]
    abstained: Mapping[int, str] = field(default_factory=dict)
    outcome: Outcome = field(default=Outcome.ANSWERED, kw_only=True)
    obstacle: str = field(default="", kw_only=True)
    scope: Scope = field(default=Scope.RATINGS_AND_ATTRIBUTES, kw_only=True)
    identities: Identities = field(default=Identities.CLIENTS, kw_only=True)
    answered_by: str = field(default="", kw_only=True)
    factors: ClientFactors | None = field(default=None, kw_only=True)
    linked: Linked | None = field(default=None, kw_only=True)
    options: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Mapping[str, Shaped[np.ndarray, " users"]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line: who read how many clients, and how many were left out."""
        return (
            f"Reconstruction(attack={self.attack!r}, users={self.users.size}, blocks={len(self.blocks)}, "
            f"abstained={len(self.abstained)})"
        )

    def __post_init__(self) -> None:
        inapplicable = self.outcome == Outcome.NOT_APPLICABLE
        if inapplicable and len(self.abstained) < self.users.size:
            raise InputError(
                f"a reconstruction whose outcome is {self.outcome.value!r} must abstain on all "
                f"{self.users.size} clients, got {len(self.abstained)}; use attacks.base.all_abstain"
            )
        if self.obstacle and not inapplicable:
            raise InputError(
                f"obstacle of a reconstruction must be empty unless its outcome is "
                f"{Outcome.NOT_APPLICABLE.value!r}, got {self.outcome.value!r}"
            )
        if self.factors is not None and not np.isin(self.factors.users, self.users).all():
            raise InputError(
                "factors of a reconstruction must be of clients among its users; use ClientFactors.of"
            )

    @property
    def applies(self) -> bool:
        """Whether there is something to score: an answer, links, or that there is nothing to read."""
        if self.users.size == 0:
            return False
        if self.linked is not None and self.outcome != Outcome.NOT_APPLICABLE:
            return True
        return self.outcome == Outcome.NOTHING_FOUND or len(self.abstained) < self.users.size

    def rows(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Iterate over columns user, kind, index, value, probability, block by block, without padding."""
        for columns in self.columns():
            yield tuple(columns[name] for name in ("user", "kind", "index", "value", "probability"))

    def columns(self) -> Iterator[dict[str, np.ndarray]]:
        """Iterate over all flat columns by name, block by block; NaN where the attack says nothing.

        Yields
        ------
        dict of str to (n_rows,) array
            ``user``, ``kind``, ``index``, ``value`` and those of ``OPTIONAL``; rows of padding are left out.
        """
        for block in self.blocks:
            shape = block.value.shape
            keep = ~np.isnan(block.value)
            found = {
                "user": np.broadcast_to(block.users[:, None], shape)[keep],
                "kind": np.broadcast_to(block.kind, shape)[keep],
                "index": np.broadcast_to(block.index, shape)[keep],
                "value": block.value[keep].astype(np.float64),
            }
            for name in OPTIONAL:
                given = getattr(block, name)
                found[name] = np.full(keep.sum(), np.nan) if given is None else given[keep].astype(np.float64)
            yield found


def all_abstain(
    name: str,
    users: Int[np.ndarray, " users"],
    reason: str,
    options: Mapping[str, Any],
    *,
    outcome: Outcome = Outcome.NOT_APPLICABLE,
    scope: Scope = Scope.RATINGS_AND_ATTRIBUTES,
    identities: Identities = Identities.CLIENTS,
) -> Reconstruction:
    """Abstain on every client for one reason.

    Parameters
    ----------
    name : str
        Of the attack.
    users : (n_users,)
    reason : str
        What a person can act on.
    options : mapping
    outcome : Outcome
        ``NOT_APPLICABLE``, or ``NOTHING_FOUND`` where the attack looked and saw noise alone.
    scope : Scope
    identities : Identities

    Returns
    -------
    Reconstruction
        Without blocks.
    """
    return Reconstruction(
        name,
        users,
        (),
        dict.fromkeys(users.tolist(), reason),
        options,
        outcome=outcome,
        obstacle=reason if outcome == Outcome.NOT_APPLICABLE else "",
        scope=scope,
        identities=identities,
    )


def silent_about(found: Reconstruction, whom: Bool[np.ndarray, " users"], reason: str) -> Reconstruction:
    """Take back the answers about some clients."""
    left = found.users[whom]
    looked = found.outcome == Outcome.NOTHING_FOUND
    taken_back = looked and (~np.isin(left, list(found.abstained))).sum() > found.users.size / 2
    abstained = {**found.abstained, **dict.fromkeys(left.tolist(), reason)}
    kept = found.users[~np.isin(found.users, list(abstained))]
    return replace(
        found,
        blocks=tuple(_without(block, left) for block in found.blocks),
        abstained=abstained,
        factors=None if found.factors is None else found.factors.of(kept),
        outcome=Outcome.ANSWERED if taken_back else found.outcome,
    )


def _without(block: Estimates, users: Int[np.ndarray, " some"]) -> Estimates:
    """The block with nothing said about some users."""
    silenced, if_rated = np.isin(block.users, users)[:, None], block.rating_if_rated
    return replace(
        block,
        value=np.where(silenced, np.nan, block.value),
        rating_if_rated=None if if_rated is None else np.where(silenced, np.nan, if_rated),
    )


@runtime_checkable
class Attack(Protocol):
    """A frozen set of hyper-parameters with a name and one verb.

    ``attack`` is deterministic for a view and key, never raises on a valid view and abstains, with a
    reason a person can act on, where the view does not determine the answer.
    """

    @property
    def name(self) -> str:
        """The name in the registry and in results."""
        ...

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read what the view gives away; ``key`` seeds every random choice."""
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """What an attack may have beside its verb: it tells beforehand that it does not apply."""

    def obstacle(self, view: View) -> str:
        """Why ``attack`` would abstain on every client for one reason; empty where it has to be run."""
        ...
