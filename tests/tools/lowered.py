"""Ratings less the lowest level under declared noise: what ``likelihood`` reads, and how sure it is.

``python -m tests.tools.lowered DATA [--noise 0.1 0.3 1] [--weighting observed-only] [--update semi-als]
[--clients 60]``: clients of FedMVMF learn ratings as they are, and less the lowest level, which nobody
declares, in one round. Prints the rated items that are answered and right, the mean probability that was
claimed of them, and of the answers claimed with at most 0.5, 0.8, 0.95 and 1 their number, what was claimed
and what is right. Last come the number, what was claimed and what is right of all answers about items, and of
those that say a rating: where unrated items are among the rows, what is claimed of rated ones alone is no
check of probabilities, for who is told that an item is rated knows more.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import factorleak as fl
from factorleak import plugins

ROUND = 4
BINS = (0.0, 0.5, 0.8, 0.95, 1.0)


def main() -> None:
    """Print one line for each noise and program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--noise", nargs="+", default=["0.1", "0.3", "1"])
    parser.add_argument("--weighting", default="observed-only")
    parser.add_argument("--update", default="semi-als")
    parser.add_argument("--clients", type=int, default=60)
    given = parser.parse_args()
    ratings = fl.load(given.data)
    print(
        "| noise b | learns | ratings | answered | right | claimed | s | bins | all | said rated |\n"
        + 10 * "|---"
        + "|"
    )
    for noise in given.noise:
        for less in (0.0, ratings.levels[0]):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "t"
                fl.record(
                    path, replace(ratings, values=ratings.values - less), victim="fedmvmf",
                    users=given.clients, update=given.update, weighting=given.weighting,
                    rounds=[ROUND], seed=0,
                    defenses=[f"laplace:b={noise}"],
                )  # fmt: skip
                begin = time.process_time()
                found = fl.attack(path, "likelihood")
                seconds = time.process_time() - begin
            print(line(found, ratings, noise, less, seconds), flush=True)


def line(found: fl.Reconstruction, ratings: fl.Ratings, noise: str, less: float, seconds: float) -> str:
    """What is answered about rated items."""
    table = ratings.matrix().toarray()
    right, claimed, rated, said = [np.zeros(0, bool)], [np.zeros(0)], [np.zeros(0, bool)], [np.zeros(0, bool)]
    for user, kind, index, value, probability in found.rows():
        item = kind == plugins.ITEM
        truth = table[user[item], index[item]]
        right.append(value[item] == truth)
        claimed.append(probability[item])
        rated.append(truth > 0)
        said.append(value[item] > 0)
    every, claims, of_rated, of_said = (np.concatenate(part) for part in (right, claimed, rated, said))
    told, sure = every[of_rated], claims[of_rated]
    n_rated = int((table[found.users] > 0).sum())
    mean = f"{sure.mean():.3f}" if sure.size else "-"
    learns = f"r - {less:g}" if less else "r"
    numbers = f"{n_rated:,} | {told.size:,} | {told.sum():,} | {mean} | {seconds:.0f}"
    both = f"{summed(every, claims)} | {summed(every[of_said], claims[of_said])}"
    return f"| {noise} | {learns} | {numbers} | {binned(told, sure)} | {both} |"


def summed(right: np.ndarray, claimed: np.ndarray) -> str:
    """Number of answers, what was claimed and what is right."""
    return f"{right.size:,}: {claimed.mean():.3f} {right.mean():.3f}" if right.size else "-"


def binned(right: np.ndarray, claimed: np.ndarray) -> str:
    """Number of answers, claimed and right, of each range of what is claimed."""
    place = np.digitize(claimed, BINS[1:-1], right=True)
    parts = [(right[place == one], claimed[place == one]) for one in range(len(BINS) - 1)]
    return ", ".join(f"{own.size:,}: {sure.mean():.2f} {own.mean():.2f}" for own, sure in parts if own.size)


if __name__ == "__main__":
    main()
