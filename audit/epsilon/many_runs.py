"""One client's rating told apart over many independent runs of the whole protocol.

The other way to an empirical epsilon (``audit.epsilon.lower_bounds.from_repetitions``): the data of all
clients stay as they are but for one rating, which is at the lowest level in half of the runs and at the
highest in the others; everything that the protocol draws (start factors, privacy weights, h, noise) is drawn
anew. The adversary is that of ``audit.epsilon.canaries``. Drawing the weights anew mixes mechanisms whose
budgets differ, so that a bound speaks of the largest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from audit.epsilon.canaries import Canaries, score_exact, score_noisy, worlds
from audit.experiments.recordings import files_of
from victims.common.files import remove
from victims.data.ratings import Ratings
from victims.protocols.base import Defense, Victim
from victims.recording import record
from victims.transcript.reader import open_transcript


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
