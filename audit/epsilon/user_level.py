"""Telling trainings with and without one client apart: the adversary of user-level differential privacy.

Half of the runs have the crafted client, and in the others it sends nothing (zero-out, the neighbours of
``defenses.central_noise``); sampling, dealing out and noise are drawn anew in every run. The adversary is the
strongest that the account covers: it sees the noisy sums of all rounds, and knows all other clients' ratings,
all start factors, which of the other clients took part, and what the crafted client would have sent; not the
noise, nor, under Poisson sampling, whether that client was taken. So what is left of the sums when it has
taken away what others sent is noise, with or without known rows, and its score is the log likelihood ratio.

The crafted client rates every item: its upload is then long enough to be clipped, and moves sums by the
whole norm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from audit.epsilon.lower_bounds import CONFIDENCE, Bound, from_repetitions
from defenses.central_noise import DPFTRL, DPFedAvg, covering
from defenses.compression import Clip
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.protocols.base import Defense, Received, Rows, Victim
from victims.training import Run, formed_rows, received, start


class Worlds(NamedTuple):
    """Ratings of all clients with those of one of them, who is crafted, and without."""

    present: Ratings
    absent: Ratings
    client: int


def craft(ratings: Ratings, client: int = 0) -> Worlds:
    """Let a client rate every item, by turns lowest and highest; or nothing."""
    mine = ratings.users == client
    counts = np.diff(ratings.indptr)
    levels = np.array(ratings.levels)[[0, -1]]
    every = np.arange(ratings.n_items, dtype=ratings.items.dtype)

    def with_rows(items: np.ndarray, values: np.ndarray) -> Ratings:
        place = int(ratings.indptr[client])
        rated = np.insert(ratings.items[~mine], place, items)
        sizes = counts.copy()
        sizes[client] = items.size
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(ratings.indptr.dtype)
        return replace(
            ratings, items=rated, values=np.insert(ratings.values[~mine], place, values), indptr=indptr
        )

    return Worlds(with_rows(every, levels[every % 2]), with_rows(every[:0], levels[:0]), client)


def score_run(
    victim: Victim,
    both: Worlds,
    defense: DPFedAvg | DPFTRL,
    *,
    inside: bool,
    rounds: int,
    seed: int,
    really: Defense | None = None,
) -> float:
    """The log likelihood ratio of one run, with the client or without.

    ``really`` is what protects the training in truth, where ``defense`` is what is claimed of it.
    """
    used = defense if really is None else really
    absent, present = (start(victim, ratings, [used], seed) for ratings in (both.absent, both.present))
    everybody = np.arange(both.absent.n_users)
    rest, mine = [], []
    for round_ in range(rounds):
        seen = received(present if inside else absent, round_)  # all that this client's presence changes
        assert seen is not None
        others = _sums(absent, formed_rows(absent, everybody, round_))
        own = present.victim.uploads(present.state, present.ratings, np.array([both.client]))
        clipped = [Clip(defense.norm).uploaded(rows, present.ratings, round_, seed) for rows in own]
        rest.append(_flat(seen) - others)
        mine.append(_sums(present, clipped))
        absent, present = (
            run._replace(state=run.victim.round(run.state, run.ratings, seen)) for run in (absent, present)
        )
    left, own_rows = np.array(rest), np.array(mine)
    variance = (defense.noise * defense.norm) ** 2
    if isinstance(defense, DPFTRL):
        return _of_trees(left, own_rows, variance, defense, both, seed)
    ratio = (left * own_rows - own_rows**2 / 2).sum(axis=1) / variance
    q = defense.sampling
    return float(np.logaddexp(np.log1p(-q), np.log(q) + ratio).sum() if q < 1 else ratio.sum())


def _of_trees(
    rest: Float[np.ndarray, "rounds sums"],
    mine: Float[np.ndarray, "rounds sums"],
    variance: float,
    defense: DPFTRL,
    both: Worlds,
    seed: int,
) -> float:
    """Of noise that rounds of an epoch share, and a client whose turn is known."""
    score = 0.0
    for epoch, first in enumerate(range(0, len(rest), defense.epoch)):
        left = rest[first : first + defense.epoch]
        turn = int(defense.turns(both.absent.n_users, epoch, seed)[both.client])
        if turn < len(left):
            row = np.linalg.inv(covariance(len(left)))[turn]
            own = mine[first + turn]
            score += (row @ left @ own - row[turn] * (own @ own) / 2) / variance
    return float(score)


def covariance(rounds: int) -> Float[np.ndarray, "rounds rounds"]:
    """What the noise of one number has in common in the rounds of an epoch, in variances of a node."""
    nodes = sorted({node for done in range(rounds + 1) for node in covering(done)})
    running = np.array([[node in covering(done) for node in nodes] for done in range(rounds + 1)], float)
    grown = np.diff(running, axis=0)
    return grown @ grown.T


def _sums(run: Run, rows: Iterable[Rows]) -> Float[np.ndarray, " sums"]:
    """The sums of rows as the aggregator forms them, before any noise."""
    return _flat(run.network.arrived(lambda: rows, None, None, (), run.seed))


def _flat(arrived: Received) -> Float[np.ndarray, " sums"]:
    return np.concatenate([arrived.items.ravel(), arrived.attributes.ravel()])


def bound_of(
    victim: Victim,
    both: Worlds,
    defense: DPFedAvg | DPFTRL,
    *,
    rounds: int,
    runs: int,
    delta: float,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    really: Defense | None = None,
) -> Bound:
    """A lower bound of epsilon at delta from as many runs in each of both worlds."""
    if getattr(victim, "participation", 1.0) < 1:
        raise InputError(
            "participation of a victim must be 1 here, for the adversary is not told who of a fixed number "
            "took part; use sampling of dp-fedavg"
        )
    inside, outside = (
        np.array(
            [score_run(victim, both, defense, inside=world, rounds=rounds, seed=seed + run, really=really)
             for run in range(1 - world, 2 * runs, 2)]
        )
        for world in (True, False)
    )  # fmt: skip
    return from_repetitions(inside, outside, confidence, delta)
