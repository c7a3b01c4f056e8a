"""Privacy accounts of a list of defenses: what each one states of itself, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from victims.data.ratings import Ratings
from victims.protocols.account import Account, Setting
from victims.protocols.base import Defense, Victim


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
    n_rounds: int,
    seed: int,
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
    n_rounds : int
        Rounds of uploads.
    seed : int

    Returns
    -------
    list of Stated
        One per defense, in their order.
    """
    held = ratings
    for defense in defenses:
        held = defense.on_device(held, seed)
    found = []
    for defense in defenses:
        stated: dict[str, Account] = {}
        for weighting in weightings:
            account = defense.account(held, Setting(name, weighting, n_rounds, victim.factor_bound, seed))
            if account is not None:
                stated[account.title] = account
        found.append(Stated(defense.name, tuple(stated.values())))
    return found
