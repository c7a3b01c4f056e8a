"""The recording that the cells of a batch attack, and the clients in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from audit.factories import make_defenses
from audit.registry import entry
from audit.scoring.truth import Truth, read_truth
from victims.common.files import remove
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.base import Victim
from victims.recording import record
from victims.transcript.beside import factors_path, key_path, truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript
from victims.transcript.view import View


class Recorded(NamedTuple):
    """A transcript, and the truth beside it."""

    transcript: Transcript
    truth: Truth


def files_of(path: Path) -> tuple[Path, ...]:
    """List what a recording consists of."""
    return path, truth_path(path), factors_path(path), key_path(path)


def recorded(
    path: Path,
    victim: Victim,
    ratings: Ratings,
    *,
    rounds: Sequence[int],
    users: int | None,
    defenses: Sequence[str],
    seed: int,
    train_on_received: bool = True,
) -> Recorded:
    """Record a victim, or open what was recorded under that name before."""
    if not (path.exists() and truth_path(path).exists()):
        for old in files_of(path):
            remove(old)
        record(
            victim,
            ratings,
            path,
            rounds=rounds,
            users=_chosen(ratings.n_users, users, seed),
            defenses=[defense for text in defenses for defense in make_defenses(text)],
            train_on_received=train_on_received,
            seed=seed,
        )
    return Recorded(open_transcript(path), read_truth(truth_path(path)))


def _chosen(n_users: int, users: int | None, seed: int) -> np.ndarray | None:
    if users is None or users >= n_users:
        return None
    return generator(seed, Purpose.RECORDED_CLIENTS).choice(n_users, users, replace=False)


def sampled(view: View, attack: str, sample: int, seed: int) -> View:
    """Leave some clients of a view for an attack that solves client by client."""
    if not entry("attacks", attack).per_client or view.users.size <= sample:
        return view
    rng = generator(seed, Purpose.ATTACKED_CLIENTS)
    return view.select(rng.choice(view.users, sample, replace=False))
