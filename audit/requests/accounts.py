"""Privacy accounts of a list of defenses: what each one states of itself, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from victims.data.ratings import Ratings
from victims.protocols.account import Account, Listeners, Setting
from victims.protocols.base import Defense, Edges, Victim
from victims.transcript.client_names import members_of

ONE, ALL = "one receiver", "all receivers together"


class Stated(NamedTuple):
    """The accounts of one defense, by title; none where it states nothing."""

    defense: str
    accounts: tuple[Account, ...]


def accounts_of(
    name: str,
    victim: Victim,
    defenses: Sequence[Defense],
    ratings: Ratings,
    *,
    weightings: Sequence[str],
    rounds: Sequence[int],
    seed: int,
    adversary: str = "",
) -> list[Stated]:
    """Ask each defense what it states about a recording of a victim.

    Parameters
    ----------
    name : str
        Of the victim.
    victim : Victim
    defenses : sequence of Defense
    ratings : Ratings
        As they were rated; defenses on the devices are applied here.
    weightings : sequence of str
        Scenarios that are recorded.
    rounds : sequence of int
        Rounds of uploads, counted from 0; one at least.
    seed : int
    adversary : str
        Who receives rows where they go along a graph: ``neighbour:N`` or ``neighbours:N,M``; of anybody
        else, and of nobody, the account is that of one receiver, and of all.

    Returns
    -------
    list of Stated
        One per defense, in their order.
    """
    held = ratings
    for defense in defenses:
        held = defense.on_device(held, seed)
    rows, listeners = _sent(victim, held, rounds, seed, adversary) if defenses else (None, ())
    found = []
    for defense in defenses:
        stated: dict[str, Account] = {}
        for weighting in weightings:
            told = weighting, len(rounds), victim.factor_bound, seed, rows, listeners
            account = defense.account(held, Setting(name, *told))
            if account is not None:
                stated[account.title] = account
        found.append(Stated(defense.name, tuple(stated.values())))
    return found


def _sent(
    victim: Victim, ratings: Ratings, rounds: Sequence[int], seed: int, adversary: str
) -> tuple[Int[np.ndarray, " users"] | None, tuple[Listeners, ...]]:
    """Rows that each client sends in a round, and to whom; None where a server receives them."""
    state = victim.init(ratings, seed)
    edges = victim.network(state, ratings).edges
    if edges is None:
        return None, ()
    n_users = ratings.n_users
    rows = np.zeros(n_users, np.int64)
    for some in victim.uploads(state, ratings, np.arange(n_users)):
        rows += np.bincount(some.sender, minlength=n_users)
    every, members = np.zeros(n_users, np.int64), _members(adversary)
    coalition = every.copy()
    for graph in _graphs(victim, state, ratings, rounds):
        inside = np.isin(graph.receiver, members) & ~np.isin(graph.sender, members)
        every = np.maximum(every, np.bincount(graph.sender, minlength=n_users))
        coalition = np.maximum(coalition, np.bincount(graph.sender[inside], minlength=n_users))
    told = Listeners(adversary, coalition) if members else Listeners(ONE, np.minimum(every, 1))
    return rows, tuple(one for one in (told, Listeners(ALL, every)) if one.copies.any())


def _members(adversary: str) -> tuple[int, ...]:
    """Clients who are the adversary; none where a name is no number, which recordings refuse."""
    numbers = adversary.rpartition(":")[2].split(",")
    return members_of(adversary) if all(part.isascii() and part.isdigit() for part in numbers) else ()


def _graphs(victim: Victim, state: Any, ratings: Ratings, rounds: Sequence[int]) -> Iterator[Edges]:
    """The graphs of some rounds: the one of all, or each one where it is drawn anew."""
    first = victim.network(state, ratings).edges
    for round_ in rounds:
        graph = victim.network(state._replace(round=round_), ratings).edges
        assert graph is not None
        yield graph
        if graph is first:  # it hangs on the start alone
            return
