"""Noise that repeats while lists change: ``python -m tests.tools.changing_lists``.

Thirty clients send a random part of their items in every round, with noise that is the same for a client's
item in all rounds. Prints what ``trajectory`` reads of twelve recordings each, and exits with 1 where an
answer is wrong.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import factorleak as fl
from audit.scoring.truth import read_truth
from tests.attacks.closed_form.test_uploads import recorded_of_repeated_noise as recorded
from victims.transcript.beside import truth_path

PARTS, SEEDS = (0.9, 0.8, 0.7), range(12)


def counted(part: float, seed: int) -> np.ndarray:
    """Answers, wrong ones, and ratings of one recording."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        found = fl.attack(recorded(path, part=part, seed=seed), "trajectory")
        ratings = read_truth(truth_path(path)).ratings.toarray()
    wrong = [np.round(value) != ratings[user, item] for user, _, item, value, _ in found.rows()]
    told = np.concatenate([np.zeros(0, bool), *wrong])
    return np.array([told.size, told.sum(), (ratings > 0).sum()])


def main() -> None:
    """Print one line for each part."""
    bad = 0
    for part in PARTS:
        told, wrong, there = np.sum([counted(part, seed) for seed in SEEDS], axis=0)
        bad += wrong
        print(f"{part:g} of the items: {told:,} of {there:,} ratings read, {wrong} wrong", flush=True)
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
