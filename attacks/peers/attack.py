"""What the neighbours of a client of a graph read of what it sends them, by name or without one.

Paper 003 (PDMFRec) sends W (-e u + alpha v) for every rating to all neighbours, one way and anonymously,
"so that rating behaviour is protected well"; DMF sends the same to users whom it knows. The attack

- sorts rows without a sender by sender (``attacks.peers.senders``),
- says who each sender is, where the weights tell (``attacks.peers.naming``),
- reads the ratings of each (``attacks.peers.reading``), and where the receiver holds another copy of the
  item factors than the sender, reads what that leaves (``attacks.peers.nearby``).

A coalition of neighbours names by the weights of all its members, and of rows under noise that is drawn
anew for each message takes the mean.

What it assumes: rows of rated items in the clear, four factors or more where senders are not told, the
rating grid. What it does not tell apart it leaves out.

References ---------- Paper 003: PDMFRec, E. Duriakova et al., RecSys 2019, doi:10.1145/3298689.3347035, as
reproduced in the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from jaxtyping import Int

from attacks.base import (
    Estimates,
    Identities,
    Linked,
    Outcome,
    Progress,
    Reconstruction,
    Scope,
    all_abstain,
    factors_hidden,
    silent,
)
from attacks.peers.claims import Claims, read_all
from attacks.peers.received import Arrived, arrived
from attacks.peers.senders import LARGEST, Sorted, sorted_by_sender
from attacks.peers.weights import names_of
from victims.common.errors import InputError
from victims.transcript.view import ITEM, UNTOLD, View

ANSWERS = ("claims", "ratings", "lists")
LEAST_FACTORS = 3
NO_PEER = "it reads what clients of a graph send each other, and the adversary is none of them"
NOTHING_LINKED = "no two of the rows without a sender are told to be of one"
NOT_NAMED = "no sender of rows without a sender is told to be this neighbour"
NOT_READ = "its rows do not put its ratings on the grid clearly better than chance"


@dataclass(frozen=True)
class Peers:
    """Hyper-parameters.

    Attributes
    ----------
    answers : {"claims", "ratings", "lists"}
        Of rows without a sender: what was read under pseudonyms; under names, of senders who are named;
        or of these which items they rated and nothing else.
    max_misfit : float
        Abstain where the distance of the answer from the grid exceeds this share of what random pairing
        gives, > 0.
    """

    answers: str = "claims"
    max_misfit: float = 0.25
    name: str = "peers"

    def __post_init__(self) -> None:
        if self.answers not in ANSWERS:
            raise InputError(
                f"answers of {self.name} must be one of {', '.join(ANSWERS)}, got {self.answers!r:.80}"
            )
        if not self.max_misfit > 0:
            raise InputError(
                f"max_misfit of {self.name} must be > 0, got {self.max_misfit}; the default is 0.25"
            )

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read the neighbours of the adversary.

        Parameters
        ----------
        view : View
        key : int
            Seeds the pairings that answers from near factors are held against.
        progress : callable

        Returns
        -------
        Reconstruction
            Diagnostics: ``misfit`` of ratings from equal factors, NaN where there are none.
        """
        options = {**asdict(self), "seed": key}
        scope = Scope.RATED_SET if self.answers == "lists" else Scope.RATINGS_AND_ATTRIBUTES
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options, scope=scope)
        rounds, told = arrived(view), _senders_told(view)
        found = sorted_by_sender(rounds, _users(view))
        progress(1, 3)
        claims = read_all(view.manifest, rounds, found, self.max_misfit, key)
        progress(2, 3)
        answer = _told(view, claims, scope) if told else _untold(view, rounds, found, claims, self.answers)
        progress(3, 3)
        return replace(answer, attack=self.name, options=options, scope=scope)

    def obstacle(self, view: View) -> str:
        """Why the attack does not apply, or nothing."""
        if view.copies is None:
            return NO_PEER
        return no_rows(view) or _too_many(view)


def no_rows(view: View) -> str:
    """Say why nothing can be read of what neighbours send, or nothing.

    Parameters
    ----------
    view : View
        With copies.
    """
    assert view.copies is not None
    if view.copies.round.size == 0:
        return "the adversary receives nothing from others"
    if view.manifest.rule.link == "sigmoid":
        return "predictions go through a sigmoid, which this attack does not model; use cofactors"
    return factors_hidden(view) or (
        "" if arrived(view) else "nothing arrived about items whose factors the adversary holds"
    )


def _too_many(view: View) -> str:
    """Say why rows without a sender are not sorted, or nothing."""
    assert view.copies is not None
    if _senders_told(view):
        return ""
    if view.manifest.factors < LEAST_FACTORS:
        return f"rows without a sender are not told apart in fewer than {LEAST_FACTORS} factors"
    if np.bincount(view.copies.round).max() > LARGEST * len(view.members):
        return f"it compares pairs of rows without a sender, and of at most {LARGEST:,} in a round"
    return ""


def _senders_told(view: View) -> bool:
    assert view.copies is not None
    return bool((view.copies.sender != UNTOLD).all())


def _users(view: View) -> Int[np.ndarray, " users"]:
    """Senders that are told."""
    assert view.copies is not None
    return np.unique(view.copies.sender[view.copies.sender != UNTOLD])


def _told(view: View, claims: Claims, scope: Scope) -> Reconstruction:
    """Answers about senders whom the receiver sees."""
    users = np.union1d(view.users, _users(view))
    at = _users(view)[claims.sender]
    read = np.unique(at[np.isfinite(claims.value) | (scope == Scope.RATED_SET)])
    abstained = dict.fromkeys(np.setdiff1d(users, read).tolist(), NOT_READ)
    misfit = np.full(users.size, np.nan)
    misfit[np.searchsorted(users, _users(view))] = claims.misfit
    blocks = (_block(claims._replace(sender=at), read, scope),) if read.size else ()
    outcome = Outcome.ANSWERED if read.size else Outcome.NOTHING_FOUND
    return Reconstruction("", users, blocks, abstained, outcome=outcome, diagnostics={"misfit": misfit})


def _untold(
    view: View, rounds: Sequence[Arrived], found: Sorted, claims: Claims, answers: str
) -> Reconstruction:
    """Answers about senders whom the receiver does not see."""
    base = rounds[found.base]
    name = names_of(view, base, found.label[found.base], found.pull[found.base], claims.scale)
    linked = Linked(_of_copies(view, rounds, found), name)
    if answers == "claims":
        return _of_pseudonyms(claims, found.n, linked)
    users = np.union1d(view.users, _neighbours(view))
    said = name >= 0
    here = said[claims.sender] & (np.isfinite(claims.value) | (answers == "lists"))
    mine = _some(claims, here)
    mine = mine._replace(sender=name[mine.sender])
    scope = Scope.RATED_SET if answers == "lists" else Scope.RATINGS_AND_ATTRIBUTES
    read = np.unique(mine.sender)
    reasons = dict.fromkeys(np.setdiff1d(users, read).tolist(), NOT_NAMED)
    reasons |= dict.fromkeys(np.setdiff1d(name[said], read).tolist(), NOT_READ)
    if not read.size:
        return Reconstruction("", users, (), reasons, outcome=Outcome.NOTHING_FOUND, linked=linked)
    return Reconstruction("", users, (_block(mine, read, scope),), reasons, linked=linked)


def _some(claims: Claims, at: np.ndarray) -> Claims:
    """Some of them, by number or mask."""
    names = ("sender", "item", "value", "probability")
    return claims._replace(**{name: getattr(claims, name)[at] for name in names})


def _neighbours(view: View) -> Int[np.ndarray, " neighbours"]:
    """Clients whose rows reach the adversary, as the graph tells it."""
    if view.links is None:
        return np.zeros(0, int)
    at = np.isin(view.links.receiver, view.members) & ~np.isin(view.links.sender, view.members)
    return np.unique(view.links.sender[at])


def _of_pseudonyms(claims: Claims, n: int, linked: Linked) -> Reconstruction:
    users = np.arange(max(n, 1))
    read = np.unique(claims.sender[np.isfinite(claims.value)])
    reasons = dict.fromkeys(np.setdiff1d(users, read).tolist(), NOT_READ if n else NOTHING_LINKED)
    blocks = (_block(claims, read, Scope.RATINGS_AND_ATTRIBUTES),) if read.size else ()
    outcome = Outcome.ANSWERED if read.size else Outcome.NOTHING_FOUND
    return Reconstruction(
        "", users, blocks, reasons, outcome=outcome, identities=Identities.PSEUDONYMS, linked=linked
    )


def _of_copies(view: View, rounds: Sequence[Arrived], found: Sorted) -> Int[np.ndarray, " copies"]:
    """The pseudonym of each row that arrived."""
    assert view.copies is not None
    out = np.full(view.copies.round.size, -1)
    for one, label in zip(rounds, found.label, strict=True):
        out[one.at] = label[one.message]
    return out


def _block(claims: Claims, users: Int[np.ndarray, " users"], scope: Scope) -> Estimates:
    """Flat claims as a table with a row for each of some clients."""
    claims = _some(claims, np.isin(claims.sender, users))
    order = np.lexsort((claims.item, claims.sender))
    sender, item, value, probability, *_ = _some(claims, order)
    row = np.searchsorted(users, sender)
    count = np.bincount(row, minlength=users.size)
    slot = np.arange(row.size) - (np.cumsum(count) - count)[row]
    table: list[np.ndarray] = [np.full((users.size, int(count.max())), np.nan) for _ in range(2)]
    items = np.zeros(table[0].shape, np.int32)
    if scope == Scope.RATED_SET:  # that there is a row is the answer
        value, probability = np.ones(value.size), np.ones(value.size)
    table[0][row, slot], table[1][row, slot], items[row, slot] = value, probability, item
    kind = np.full((1, items.shape[1]), ITEM, np.int8)
    rated = table[1] if scope == Scope.RATED_SET else None
    return Estimates(users.astype(np.int32), kind, items, table[0], table[1], rated_probability=rated)
