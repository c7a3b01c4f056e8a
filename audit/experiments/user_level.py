"""Telling trainings with and without one client apart: the adversary of user-level differential privacy.

In half of the runs a crafted client sends its rows, and in the others nothing (zero-out, the neighbours of
``defenses.central_noise``); sampling, turns and noise are drawn again in every run. The adversary is the
strongest that the account covers: it sees the noisy sums of all rounds, and knows all clients' ratings and
start factors, which of the others take part, and what the crafted client would send; neither the noise nor,
under Poisson sampling, whether that client was taken. Without what others sent, sums are noise, with or
without known rows in it, and the score is the log likelihood ratio of the two.

The crafted client rates every item: its upload is then long enough to be clipped, and moves sums by the
whole norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from audit.scoring.lower_bounds import CONFIDENCE, Bound, from_repetitions
from defenses.central_noise import CentralNoise, covering
from defenses.compression import Clip
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.protocols.base import Defense, Received, Rows, Victim
from victims.protocols.network import taken
from victims.training import Run, formed_rows, received, start


@dataclass(frozen=True)
class Silenced(Defense):
    """One client sends nothing, in the world without it."""

    client: int
    name: str = "silenced"

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The rows of all others."""
        return taken(rows, np.flatnonzero(rows.sender != self.client))


class Trial(NamedTuple):
    """What is run again and again, and what is claimed of it."""

    victim: Victim
    ratings: Ratings  # with those of the crafted client
    client: int
    claimed: CentralNoise
    really: CentralNoise  # what protects the training in truth
    rounds: int


def craft(ratings: Ratings, client: int) -> Ratings:
    """Let a client rate every item, by turns lowest and highest."""
    first, last = (int(end) for end in ratings.indptr[client : client + 2])
    every = np.arange(ratings.n_items)
    values = np.array(ratings.levels)[[0, -1]][every % 2]

    def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        return np.concatenate([old[:first], new.astype(old.dtype), old[last:]])

    indptr = ratings.indptr + (np.arange(ratings.n_users + 1) > client) * (every.size - (last - first))
    return replace(
        ratings,
        items=put(ratings.items, every),
        values=put(ratings.values, values),
        indptr=indptr.astype(ratings.indptr.dtype),
    )


def score_run(trial: Trial, inside: bool, seed: int) -> float:
    """The log likelihood ratio of one run, with the client or without."""
    victim, client, claimed = trial.victim, trial.client, trial.claimed
    whole = start(victim, trial.ratings, [trial.really], seed)
    others = start(victim, trial.ratings, [Silenced(client), trial.really], seed)
    everybody, left, own = np.arange(trial.ratings.n_users), [], []
    for round_ in range(trial.rounds):
        seen = received(whole if inside else others, round_)  # all that the client's presence changes
        assert seen is not None
        left.append(_flat(seen) - _sums(others, formed_rows(others, everybody, round_)))
        rows = victim.uploads(whole.state, whole.ratings, np.array([client]))
        own.append(
            _sums(whole, (Clip(claimed.norm).uploaded(some, whole.ratings, round_, seed) for some in rows))
        )
        state = victim.round(whole.state, whole.ratings, seen)  # everybody's, in both worlds
        whole, others = whole._replace(state=state), others._replace(state=state)
    rest, mine = np.array(left), np.array(own)
    variance = (claimed.noise * claimed.norm) ** 2
    if claimed.sampling == 1:
        turns = [int(claimed.turns(everybody.size, epoch, seed)[client]) for epoch in range(trial.rounds)]
        return _of_trees(rest, mine, claimed.epoch, turns) / variance
    ratio, q = (rest * mine - mine**2 / 2).sum(axis=1) / variance, claimed.sampling
    return float(np.logaddexp(np.log1p(-q), np.log(q) + ratio).sum())


def _of_trees(
    rest: Float[np.ndarray, "rounds sums"],
    mine: Float[np.ndarray, "rounds sums"],
    size: int,
    turns: list[int],
) -> float:
    """Of noise of variance 1 that rounds of an epoch share, and a client whose turn is known."""
    score = 0.0
    for first in range(0, len(rest), size):
        left, turn = rest[first : first + size], turns[first // size]
        if turn < len(left):
            weight, own = np.linalg.inv(covariance(len(left)))[turn], mine[first + turn]
            score += float(weight @ left @ own - weight[turn] * (own @ own) / 2)
    return score


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
    trial: Trial,
    *,
    runs: int,
    delta: float,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Bound:
    """A lower bound of epsilon at delta, from as many runs in each of both worlds."""
    if getattr(trial.victim, "participation", 1.0) < 1:
        raise InputError(
            "participation of a victim must be 1 where epsilon is bounded, for the adversary is not told who "
            "of a fixed number took part; got less; use sampling of dp-fedavg"
        )
    scores = np.empty(2 * runs)
    for run in range(2 * runs):
        progress(run, 2 * runs)
        scores[run] = score_run(trial, run % 2 == 0, seed + run)
    return from_repetitions(scores[::2], scores[1::2], confidence, delta)
