"""Of whom how much is recovered, by which attack, and what the attack itself claims: a line for each client.

Beside a cell of an audit lies a table of numbers, ``TABLE``; ``strongest`` takes for each client the attack
that recovers most of it, and where there is no truth the one that claims most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.base import RELATIVE, Identities, Reconstruction
from audit.scoring.metrics import DIFFERENCES, SIZES
from audit.scoring.truth import Truth
from audit.scoring.verdicts import Score
from victims.transcript.view import ITEM

TABLE = ("client", "items", "recovered", "guess", "claim", "what")
WHAT = {  # metric of the share that is recovered -> its name; the first that an attack answers
    "rated_rating_accuracy": "ratings",
    DIFFERENCES: "differences of ratings",
    SIZES: "sizes of differences",
    "rated_set_f1": "rated items (F1)",
}


class Client(NamedTuple):
    """What is recovered of a client."""

    client: int
    items: int  # that it rated; without truth, that it is said to have rated
    recovered: float  # share of what it gave away that is right; NaN without truth or an answer
    guess: float
    claim: float  # the attack's own probability that its ratings are right; NaN where it gives none
    what: str
    attack: str


def claims(answer: Reconstruction) -> tuple[Int[np.ndarray, " some"], Float[np.ndarray, " some"]]:
    """The attack's own probability of its ratings, mean of each client that has some."""
    users, means = [np.zeros(0, int)], [np.zeros(0)]
    for block in answer.blocks:
        if block.probability is None or answer.scope in RELATIVE:
            continue
        items = np.broadcast_to(block.kind == ITEM, block.value.shape) & ~np.isnan(block.probability)
        some = items.any(axis=1)
        users.append(block.users[some])
        means.append(np.mean(block.probability[some], axis=1, where=items[some]))
    return np.concatenate(users), np.concatenate(means)


def client_table(
    answer: Reconstruction, truth: Truth | None = None, scores: Sequence[Score] = ()
) -> Float[np.ndarray, "6 clients"]:
    """The columns of ``TABLE``; no client where answers are about nobody by name."""
    users = np.unique(answer.users) if answer.identities == Identities.CLIENTS else np.zeros(0, int)
    table = np.full((len(TABLE), users.size), np.nan)
    items, recovered, guess, claim, what = table[1:]
    table[0], what[:] = users, 0
    if not users.size:
        return table
    if truth is None:
        items[:] = 0
        for block in answer.blocks:
            rated = np.broadcast_to(block.kind == ITEM, block.value.shape) & (np.nan_to_num(block.value) > 0)
            np.add.at(items, np.searchsorted(users, block.users), rated.sum(axis=1))
    else:
        items[:] = np.diff(truth.ratings.indptr)[truth.rows(users)]
    found = {one.metric: one for one in scores if one.clients is not None and not np.isnan(one.summary.value)}
    for number, metric in enumerate(WHAT):
        if (one := found.get(metric)) is not None and (each := one.clients) is not None:
            recovered[:] = np.where(each.silent, np.nan, each.values)
            guess[:], what[:] = each.guesses[one.baseline_name], number
            break
    answered, means = claims(answer)
    claim[np.searchsorted(users, answered)] = means
    return table


def clients_of(attack: str, table: Float[np.ndarray, "6 clients"]) -> Iterator[Client]:
    """The lines of one attack's table."""
    for client, items, recovered, guess, claim, what in table.T:
        yield Client(int(client), int(items), recovered, guess, claim, list(WHAT.values())[int(what)], attack)


def strongest(tables: Mapping[str, Float[np.ndarray, "6 clients"]]) -> list[Client]:
    """For each client the attack that recovers most of it, ratings before what is less; ascending."""
    best: dict[int, Client] = {}
    order = list(WHAT.values())
    for one in (line for attack, table in tables.items() for line in clients_of(attack, table)):
        if one.client not in best or _strength(one, order) > _strength(best[one.client], order):
            best[one.client] = one
    return [best[client] for client in sorted(best)]


def _strength(one: Client, order: Sequence[str]) -> tuple[bool, int, float, float]:
    known = not np.isnan(one.recovered)
    return known, -order.index(one.what) if known else 0, *np.nan_to_num([one.recovered, one.claim], nan=-1)


def as_records(lines: Iterable[Client], names: Mapping[int, str] | None = None) -> list[dict[str, object]]:
    """Lines as rows of a table; ``names`` of clients only where they were asked for."""
    return [
        {**({} if names is None else {"name": names.get(one.client, "")}), **one._asdict()} for one in lines
    ]
