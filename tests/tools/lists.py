"""Which items few clients rated, where their rows do not say it: how often the test of dealt rows errs.

``python -m tests.tools.lists [--trials 2000]``: simulated clients like popular items of their taste, and an
attack answers all items. Prints, of one, three and six clients, how often the test calls its answers a leak
at 0.01 where it answers popular items in the direction that rows about nothing seem to have; where clients
made up lists at random in place of their own; and where they sent those of other people of the same tastes,
which no dealing can tell from their own. The second number of each is of answers that are dealt out alone.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.stats import rankdata

from audit.scoring.nulls import replicates_of_scores
from audit.scoring.statistics import LEAK_LEVEL, permutation_p_value

N_ITEMS = 40
NULLS = ("rows about nothing", "lists made up", "lists of others")


def auc(strength: np.ndarray, rated: np.ndarray) -> np.ndarray:
    """Mann and Whitney's, along the last axis."""
    n_rated = rated.sum(axis=-1)
    wins = (rankdata(strength, axis=-1) * rated).sum(axis=-1) - n_rated * (n_rated + 1) / 2
    return np.asarray(wins / (n_rated * (N_ITEMS - n_rated)))


def simulated(rng: np.random.Generator, null: str, n_users: int, n_dealings: int) -> tuple[np.ndarray, ...]:
    """How well lists are told: by real rows and dealt ones, by dealt answers."""
    q, popular = rng.normal(size=(N_ITEMS, 2)), rng.normal(size=N_ITEMS)

    def lists() -> np.ndarray:
        liked = rng.normal(size=(n_users, 2)) @ q.T * 3 + popular
        return np.asarray(liked > np.quantile(liked, 0.6, axis=1, keepdims=True))

    rated = lists()
    if null == NULLS[0]:
        rows = rng.normal(size=(n_users, N_ITEMS))
        dealt = [rng.permutation(rows.ravel()).reshape(rows.shape) for _ in range(n_dealings)]
        strength = (np.stack([rows, *dealt]) @ q) @ q.T + popular
        read = auc(strength, rated)
        said = strength[0]
    else:  # rows fit together, and dealt out they get no answer
        said = lists() * 1.0 if null == NULLS[2] else rng.permuted(rated * 1.0, axis=1)
        read = np.zeros((1 + n_dealings, n_users))
        read[0] = auc(said, rated)
    answers = auc(np.stack([rng.permuted(said, axis=1) for _ in range(n_dealings)]), rated)
    floor = auc((rated.sum(axis=0) - rated) * 1.0, rated)
    for shift in range(1, n_users):
        floor = np.maximum(floor, auc(np.roll(said, shift, axis=0), rated))
    return read, answers, floor


def errors(null: str, n_users: int, n_trials: int, seed: int = 0) -> tuple[float, float]:
    """How often lists are called a leak: by all, and by dealt answers alone."""
    rng = np.random.default_rng([seed, n_users])
    n = replicates_of_scores(n_users, n_users, n_users * N_ITEMS, LEAK_LEVEL)
    told = np.zeros((n_trials, 2))
    for trial in range(n_trials):
        rows, answers, floor = simulated(rng, null, n_users, n)
        anyhow = np.maximum(np.maximum(rows[1:], answers), floor)
        told[trial] = permutation_p_value(rows[0], anyhow), permutation_p_value(rows[0], answers)
    whole, alone = (told < LEAK_LEVEL).mean(axis=0)
    return float(whole), float(alone)


def main() -> None:
    """Print a line for each null."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args().trials
    print("| null | one client | three | six |\n" + 4 * "|---" + "|")
    for null in NULLS:
        cells = (
            f"{whole:.4f} ({alone:.4f})" for whole, alone in (errors(null, n, trials) for n in (1, 3, 6))
        )
        print(f"| {null} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
