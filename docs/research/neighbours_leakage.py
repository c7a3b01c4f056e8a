"""Leakage among neighbours against four things: ``python docs/research/neighbours_leakage.py SHARED OUT``.

Writes OUT/neighbours-leakage.csv: the share of ratings that an adversary claims rightly against how many
send to it, the size of a coalition, the steps between it and the client who is read, and the one round that
it watches. ``draw.py`` draws them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from neighbours import (
    DMF,
    ONE,
    PDMFREC,
    YANG,
    Protocol,
    Recording,
    adversary_of,
    append,
    graph_of,
    known,
    members_of,
    ratings_of,
    recorded,
)
from scipy.sparse.csgraph import dijkstra

from attacks.base import Identities, Reconstruction
from audit.experiments.answers import answered
from audit.keys import view_of
from audit.scoring.answers import round_ratings
from audit.scoring.pseudonyms import clients_of, senders_of
from victims.data.ratings import Ratings
from victims.transcript.view import ITEM

RESAMPLES = 1000


class Read(NamedTuple):
    """Ratings of each client; how many are claimed rightly, under whatever name and under its own."""

    n_ratings: np.ndarray
    right: np.ndarray
    by_name: np.ndarray


def read_of(made: Recording, attack: str, name: str, rounds: Sequence[int]) -> Read:
    """Attack some rounds of a recording, and count what is right, client by client."""
    view = view_of(made.transcript, name).during(rounds)
    truth, whose = made.truth, senders_of(made.transcript, view)
    found = answered(attack, {}, view, 0)
    n_users, members = truth.users.size, list(view.members)
    n_ratings = np.diff(truth.ratings.indptr)
    owner = np.arange(n_users)
    named = owner
    if found.identities == Identities.PSEUDONYMS and found.linked is not None and whose is not None:
        known = clients_of(found.linked.label, whose.sender)
        owner = np.array([known.get(p, -1) for p in range(found.users.max() + 1)])
        named = np.pad(
            found.linked.name, (0, max(0, owner.size - found.linked.name.size)), constant_values=-1
        )
    right = _right(found, made, owner)
    by_name = _right(found, made, named)
    for counts in (right, by_name):
        counts[members] = 0
    n_ratings = n_ratings.copy()
    n_ratings[members] = 0
    return Read(n_ratings, right, by_name)


def _right(found: Reconstruction, made: Recording, owner: np.ndarray) -> np.ndarray:
    """Distinct items of each client whose rating is claimed rightly."""
    ratings, levels = made.truth.ratings, made.transcript.manifest.rating_levels
    cells = []
    for user, kind, index, value, _ in found.rows():
        here = (kind == ITEM) & (owner[user] >= 0) & (index < ratings.shape[1])
        who, item, answer = owner[user][here], index[here], round_ratings(value[here], levels)
        good = (answer > 0) & (np.asarray(ratings[who, item]).ravel() == answer)
        cells.append(np.unique(who[good].astype(np.int64) * ratings.shape[1] + item[good]))
    every = np.unique(np.concatenate(cells)) if cells else np.zeros(0, np.int64)
    return np.bincount(every // ratings.shape[1], minlength=ratings.shape[0]).astype(float)


HEAD = (
    "panel",
    "protocol",
    "x",
    "clients",
    "ratings",
    "right",
    "by name",
    "low",
    "high",
    "guess",
    "adversary",
)


def summed(read: Read, clients: np.ndarray, guess: float, seed: int = 0) -> list[str]:
    """Shares of the ratings of some clients that are right, with an interval by bootstrap over clients.

    Ratings without a right claim count as the guess does: right with its probability.
    """
    n, right, by_name = (part[clients] for part in read)
    if not n.sum():
        return ["0", "0", "", "", "", "", f"{guess:.4f}"]

    def share(of: np.ndarray, at: np.ndarray) -> float:
        read_share = of[at].sum() / n[at].sum()
        return float(read_share + (1 - read_share) * guess)

    every = np.arange(clients.size)
    rng = np.random.default_rng(seed)
    drawn = [share(right, rng.integers(clients.size, size=clients.size)) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    shown = (share(right, every), share(by_name, every), low, high, guess)
    return [str(clients.size), str(int(n.sum())), *(f"{value:.4f}" for value in shown)]


def guess_of(made: Recording) -> float:
    """How often the most frequent level is right."""
    _, count = np.unique(made.truth.ratings.data, return_counts=True)
    return float(count.max() / count.sum())


class Plan(NamedTuple):
    """What is varied of one protocol."""

    protocol: Protocol
    attack: str
    degrees: tuple[int, ...]
    coalitions: tuple[int, ...]
    rounds: tuple[int, ...]
    pool: tuple[int, int]  # degrees of the members of coalitions
    draws: int  # of them


PLANS = (
    Plan(PDMFREC, "peers", (2, 5, 10, 20, 40, 80, 160), (1, 2, 4, 8), (0, 1, 2, 3, 5), (10, 40), 1),
    Plan(DMF, "peers-named", (1, 2, 4, 8, 16, 32, 64), (1, 2, 5, 10, 20, 50), (0, 1, 2, 3, 5), (5, 1000), 3),
    Plan(YANG, "cofactors", (1, 2, 4, 8, 16, 32, 64), (1, 2, 5, 10, 20, 50), (0, 1, 2, 3, 5), (5, 1000), 3),
)


def label_of(protocol: Protocol) -> str:
    """A protocol in the table."""
    return f"{protocol.name}, senders {protocol.senders}"


def leakage_of(plan: Plan, ratings: Ratings, folder: Path) -> Iterator[tuple[str, ...]]:
    """Measure the four panels of one protocol."""
    protocol = plan.protocol
    sender, receiver = graph_of(protocol, ratings)
    degree = np.bincount(receiver, minlength=ratings.n_users)
    rng = np.random.default_rng(0)
    nearest = [int(np.argsort(np.abs(degree - d), kind="stable")[0]) for d in plan.degrees]
    pool = np.flatnonzero((degree >= plan.pool[0]) & (degree <= plan.pool[1]))
    draws = [rng.permutation(pool)[: max(plan.coalitions)].tolist() for _ in range(plan.draws)]
    one = members_of(ONE, protocol, ratings)[0]
    watched = sorted({*nearest, one, *(member for draw in draws for member in draw)})
    made = recorded(protocol, ratings, watched, plan.rounds, folder)
    guess, everybody = guess_of(made), np.arange(ratings.n_users)
    label = label_of(protocol)

    def row(panel: str, x: float, read: Read, clients: np.ndarray, who: str) -> tuple[str, ...]:
        n, sent, *shares = summed(read, clients, guess)
        return (panel, label, f"{x:g}", n, sent, *shares, who)

    for client in dict.fromkeys(nearest):
        name = adversary_of("", [client])
        yield row("degree", degree[client], read_of(made, plan.attack, name, (0,)), everybody, name)
    name = adversary_of("", [one])
    heard = np.unique(sender[receiver == one])
    hops = dijkstra(
        sp.coo_array((np.ones(sender.size), (receiver, sender)), shape=(ratings.n_users,) * 2).tocsr(),
        unweighted=True,
        indices=one,
    )
    first = read_of(made, plan.attack, name, (0,))
    for hop in (1, 2, 3, 4):
        if (hops == hop).any():
            yield row("distance", hop, first, np.flatnonzero(hops == hop), name)
    for number in plan.rounds:
        read = first if number == 0 else read_of(made, plan.attack, name, (number,))
        yield row("round", number, read, heard, name)
    for size in plan.coalitions:
        for draw in draws:
            name = adversary_of("", sorted(draw[:size]))
            read = read_of(made, plan.attack, name, (0,))
            yield row("coalition", size, read, everybody, name.replace(",", " "))


def main(shared: Path, out: Path) -> None:
    """Measure the protocols that are not there yet."""
    path = out / "neighbours-leakage.csv"
    done = {row[1] for row in known(path, 2)}
    for plan in PLANS:
        if label_of(plan.protocol) not in done:
            for row in leakage_of(plan, ratings_of(plan.protocol.data, shared), out):
                append(path, HEAD, row)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
