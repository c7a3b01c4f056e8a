"""Privacy accounts of a list of defenses: what each one states of itself, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Int

from audit.registry import recorded_name
from defenses.accounts import ROWS
from victims.data.ratings import Ratings
from victims.protocols.account import Account, Listeners, Setting
from victims.protocols.base import Defense, Edges, Victim
from victims.training import Run, start
from victims.transcript.adversaries import members_of

ONE, ALL = "one receiver", "all receivers together"


class Stated(NamedTuple):
    """The accounts of one defense, by title; none where it states nothing."""

    defense: str
    accounts: tuple[Account, ...]


def accounts_of(
    name: str,
    victims: Sequence[Victim],
    defenses: Sequence[Defense],
    ratings: Ratings,
    *,
    n_rounds: int,
    seed: int,
    adversary: str = "",
    on_received: bool = True,
) -> list[Stated]:
    """Ask each defense what it states about the setting that ran."""
    held = ratings
    for defense in defenses:
        held = defense.on_device(held, seed)
    stated: list[dict[str, Account]] = [{} for _ in defenses]
    for victim in victims if defenses else ():
        names = tuple(defense.name for defense in defenses)
        setting = Setting(recorded_name(name), *_options(victim), n_rounds, names, on_received, seed)
        if not ROWS.gap(setting):
            rows, listeners = _sent(victim, held, n_rounds, seed, adversary)
            setting = replace(setting, rows=rows, listeners=listeners)
        fresh = False
        for defense, accounts in zip(defenses, stated, strict=True):
            fresh |= defense.per_message  # and so is all that is done after it
            account = defense.account(held, replace(setting, fresh_messages=fresh))
            if account is not None:
                accounts[account.title] = account
    return [Stated(one.name, tuple(said.values())) for one, said in zip(defenses, stated, strict=True)]


def _options(victim: Victim) -> tuple[dict[str, Any], tuple[str, ...]]:
    """All options of a victim, and the names of those that do not have their default."""
    if not is_dataclass(victim):
        return {}, ()
    options = {field.name: getattr(victim, field.name) for field in fields(victim)}
    defaults = {field.name: field.default for field in fields(victim)}
    return options, tuple(name for name, value in options.items() if value != defaults[name])


def _sent(
    victim: Victim, ratings: Ratings, n_rounds: int, seed: int, adversary: str
) -> tuple[Int[np.ndarray, " users"], tuple[Listeners, ...]]:
    """Rows of each client in a round that its ratings or attributes enter, and clients who get them."""
    run, n_users = start(victim, ratings, (), seed), ratings.n_users
    if run.network.edges is None:
        every_item = getattr(victim, "weighting", "") == "include-unrated"
        rated = np.full(n_users, ratings.n_items) if every_item else np.diff(ratings.indptr)
        return rated + len(victim.broadcast(run.state)[1]), ()
    rows = np.zeros(n_users, np.int64)
    # a proof is for victims of ours, in whose rounds everybody may take part
    run = run._replace(victim=replace(cast(Any, victim), participation=1.0, dropout=0.0))
    for some in run.victim.uploads(run.state, ratings, np.arange(n_users)):
        rows += np.bincount(some.sender, minlength=n_users)
    every, members = np.zeros(n_users, np.int64), _members(adversary)
    coalition = every.copy()
    for graph in _graphs(run, n_rounds):
        inside = np.isin(graph.receiver, members) & ~np.isin(graph.sender, members)
        every = np.maximum(every, np.bincount(graph.sender, minlength=n_users))
        coalition = np.maximum(coalition, np.bincount(graph.sender[inside], minlength=n_users))
    told = Listeners(adversary, coalition) if members else Listeners(ONE, np.minimum(every, 1))
    return rows, tuple(one for one in (told, Listeners(ALL, every)) if one.copies.any())


def _members(adversary: str) -> tuple[int, ...]:
    """Clients who are the adversary; none where a name is no number, which recordings refuse."""
    numbers = adversary.rpartition(":")[2].split(",")
    return members_of(adversary) if all(part.isascii() and part.isdigit() for part in numbers) else ()


def _graphs(run: Run, n_rounds: int) -> Iterator[Edges]:
    """The graphs of all rounds: the one of all, or each one where it is drawn anew."""
    first = run.network.edges
    for round_ in range(n_rounds):
        graph = run._replace(state=run.state._replace(round=round_)).network.edges
        assert graph is not None
        yield graph
        if graph is first:  # it hangs on the start alone
            return
