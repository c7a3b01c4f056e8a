"""Claims about senders as a reconstruction: under their names, pseudonyms, or names that were found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from attacks.base import Estimates, Identities, Linked, Reconstruction, Scope
from attacks.peers.claims import Claims
from attacks.peers.received import Arrived
from attacks.peers.senders import Sorted
from attacks.peers.weights import names_of
from victims.transcript.view import ITEM, UNTOLD, View

NOTHING_LINKED = "no two of the rows without a sender are told to be of one"
NOT_NAMED = "no sender of rows without a sender is told to be this neighbour"
NOT_READ = "its rows do not put its ratings on the grid clearly better than chance"


def scope_of(answers: str) -> Scope:
    """What the answers of an attack of this room are about, by its option of that name."""
    return Scope.RATED_SET if answers == "lists" else Scope.RATINGS_AND_ATTRIBUTES


def told_users(view: View) -> Int[np.ndarray, " users"]:
    """Senders that are told, of rows about either table of item factors."""
    assert view.copies is not None
    told = np.unique(view.copies.sender[view.copies.sender != UNTOLD])
    return told if view.implicit is None else np.union1d(told, told_users(view.implicit)).astype(told.dtype)


def of_told(view: View, claims: Claims, scope: Scope) -> Reconstruction:
    """Answers about senders whom the receiver sees."""
    users = np.union1d(view.users, told_users(view))
    at = told_users(view)[claims.sender]
    read = np.unique(at[np.isfinite(claims.value) | (scope == Scope.RATED_SET)])
    abstained = dict.fromkeys(np.setdiff1d(users, read).tolist(), NOT_READ)
    misfit = np.full(users.size, np.nan)
    misfit[np.searchsorted(users, told_users(view))] = claims.misfit
    blocks = (_block(claims._replace(sender=at), read, scope),) if read.size else ()
    return Reconstruction("", users, blocks, abstained, diagnostics={"misfit": misfit})


def of_untold(
    view: View, rounds: Sequence[Arrived], found: Sorted, claims: Claims, answers: str
) -> Reconstruction:
    """Answers about senders whom the receiver does not see."""
    base = rounds[found.base]
    name = names_of(view, base, found.label[found.base], found.pull[found.base], claims.scale)
    assert view.copies is not None
    linked = Linked(_of_copies(view, rounds, found), name, view.copies.round, view.adversary)
    if answers == "claims":
        return _of_pseudonyms(claims, found.n, linked)
    users = np.union1d(view.users, _neighbours(view))
    said = name >= 0
    here = said[claims.sender] & (np.isfinite(claims.value) | (answers == "lists"))
    mine = _some(claims, here)
    mine = mine._replace(sender=name[mine.sender])
    scope = scope_of(answers)
    read = np.unique(mine.sender)
    reasons = dict.fromkeys(np.setdiff1d(users, read).tolist(), NOT_NAMED)
    reasons |= dict.fromkeys(np.setdiff1d(name[said], read).tolist(), NOT_READ)
    if not read.size:
        return Reconstruction("", users, (), reasons, linked=linked)
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
    return Reconstruction("", users, blocks, reasons, identities=Identities.PSEUDONYMS, linked=linked)


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
