"""Telling neighbouring ratings apart: the adversary of differential privacy, view by view.

One rating of every client is set to the lowest or the highest level by a fair coin; the adversary knows all
other ratings, the privacy weights and what the recommender sees, and guesses the coins. It does not know the
client's start factor, which the protocol draws at random, and fits it under both hypotheses.

Views: uploads of all recorded rounds; of the first round; and the final V without any upload, where the
client's factor is estimated from V and its other ratings.

The other way to an empirical epsilon (``lower_bounds.from_repetitions``): the data of all
clients stay as they are but for one rating, which is at the lowest level in half of the runs and at the
highest in the others; everything that the protocol draws (start factors, privacy weights, h, noise) is drawn
anew. Drawing the weights anew mixes mechanisms whose
budgets differ, so that a bound speaks of the largest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.trajectory.hypotheses import fitted_values, log_likelihood_ratio
from audit.experiments.recordings import files_of
from victims.common.files import remove
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.base import Defense, Victim
from victims.recording import record
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

RIDGE = 0.1  # of the factor that is estimated from the final V


@dataclass(frozen=True)
class Canaries:
    """One rating per client, chosen by coins."""

    ratings: Ratings  # with the chosen values
    entry: Int[np.ndarray, " users"]  # which rating of ``ratings`` it is
    coin: Bool[np.ndarray, " users"]  # true for the highest level


def plant(ratings: Ratings, seed: int) -> Canaries:
    """Plant a canary in every client's ratings."""
    rng = generator(seed, Purpose.CANARIES)
    entry = ratings.indptr[:-1] + rng.integers(0, np.diff(ratings.indptr))
    coin = rng.random(ratings.n_users) < 0.5
    values = ratings.values.copy()
    values[entry] = np.where(coin, ratings.levels[-1], ratings.levels[0])
    return Canaries(replace(ratings, values=values), entry, coin)


class Worlds(NamedTuple):
    """What clients train on in both worlds, and which entry of it the canary is (-1: none)."""

    low: Ratings
    high: Ratings
    entry: Int[np.ndarray, " users"]


def worlds(canaries: Canaries, defenses: Sequence[Defense], seed: int) -> Worlds:
    """Hold both hypotheses about every canary, as the clients' devices do."""
    ratings = canaries.ratings
    held = []
    for level in (ratings.levels[0], ratings.levels[-1]):
        values = ratings.values.copy()
        values[canaries.entry] = level
        one_world = replace(ratings, values=values)
        for defense in defenses:
            one_world = defense.on_device(one_world, seed)
        held.append(one_world)
    low, high = held
    name = low.users.astype(np.int64) * low.n_items + low.items
    wanted = np.arange(ratings.n_users, dtype=np.int64) * low.n_items + ratings.items[canaries.entry]
    position = np.minimum(np.searchsorted(name, wanted), name.size - 1)
    return Worlds(low, high, np.where(name[position] == wanted, position, -1))


def score_exact(view: View, both: Worlds) -> Float[np.ndarray, " users"]:
    """Score the canaries where no fresh noise is left, by what the attack ``trajectory`` fits."""
    seen = both.entry >= 0
    low, high = both.low.values[both.entry], both.high.values[both.entry]
    value = fitted_values(view, np.where(seen, both.low.items[both.entry], -1))
    scored = seen & ~np.isnan(value)
    score = np.zeros(both.low.n_users)
    score[scored] = ((2 * value - low - high) / (high - low))[scored]
    return score


def score_noisy(view: View, both: Worlds, seed: int) -> Float[np.ndarray, " users"]:
    """Score the canaries under noise of known scale, by the log likelihood ratio of the high world."""
    ratio = log_likelihood_ratio(view, both.low.matrix(), both.high.matrix(), seed)
    return np.where(both.entry >= 0, ratio, 0.0)


def score_final(items: Float[np.ndarray, "items K"], both: Worlds) -> Float[np.ndarray, " users"]:
    """Score the canaries from the final V alone."""
    score = np.zeros(both.low.n_users)
    low = both.low
    for user in np.flatnonzero(both.entry >= 0):
        own = np.arange(*low.indptr[user : user + 2])
        others = own[own != both.entry[user]]
        v = items[low.items[others]]
        factor = np.linalg.solve(v.T @ v + RIDGE * np.eye(v.shape[1]), v.T @ low.values[others])
        factor /= max(1.0, float(np.linalg.norm(factor)))
        middle = (low.values[both.entry[user]] + both.high.values[both.entry[user]]) / 2
        score[user] = factor @ items[low.items[both.entry[user]]] - middle
    return score


class Repeated(NamedTuple):
    """Scores by view, (n_runs,) each: with the highest level, and with the lowest."""

    high: dict[str, Float[np.ndarray, " runs"]]
    low: dict[str, Float[np.ndarray, " runs"]]


def typical_client(ratings: Ratings) -> int:
    """Choose the client whose number of ratings is the median, the first of them."""
    counts = np.diff(ratings.indptr)
    return int(np.argsort(counts, kind="stable")[counts.size // 2])


def repeat(
    victim: Victim,
    canaries: Canaries,
    defenses_of: Callable[[], Sequence[Defense]],
    folder: Path,
    *,
    rounds: int,
    noisy: bool,
    runs: int,
    seed: int,
) -> Repeated:
    """Run the protocol again and again, in both worlds, and score the canary of the typical client."""
    client = typical_client(canaries.ratings)
    names = ("all rounds", "first round") if noisy else ("all rounds",)
    scores: dict[bool, dict[str, list[float]]] = {
        high: {name: [] for name in names} for high in (True, False)
    }
    for run in range(2 * runs):
        high, run_seed = run % 2 == 0, seed + 1 + run
        flipped, defenses = _flipped(canaries, client, high), defenses_of()
        both = worlds(flipped, defenses, run_seed)
        _remove_recording(folder)
        record(
            victim,
            flipped.ratings,
            folder,
            rounds=range(rounds),
            defenses=defenses,
            seed=run_seed,
            users=[client],
        )
        view = open_transcript(folder).view("server")
        for name in names:
            seen = view if name == "all rounds" else view.during([int(view.rounds[0])])
            score = score_noisy(seen, both, run_seed) if noisy else score_exact(seen, both)
            scores[high][name].append(float(score[client]))
    _remove_recording(folder)
    return Repeated(
        *({name: np.array(values) for name, values in scores[high].items()} for high in (True, False))
    )


def _flipped(canaries: Canaries, client: int, high: bool) -> Canaries:
    """The same canaries with that of one client at the highest or lowest level."""
    values, coin = canaries.ratings.values.copy(), canaries.coin.copy()
    values[canaries.entry[client]] = canaries.ratings.levels[-1 if high else 0]
    coin[client] = high
    return Canaries(replace(canaries.ratings, values=values), canaries.entry, coin)


def _remove_recording(folder: Path) -> None:
    for path in files_of(folder):
        remove(path)
