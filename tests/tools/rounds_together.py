"""Clients of few ratings under several local steps: who is read from how many rounds.

``python -m tests.tools.rounds_together DATA [--factors 2 3 5] [--rounds 1 2 4] [--clients 300]``: clients of
FedMF take three local steps in each round and send weights. Prints how many clients with so many ratings
``inversion`` answers, of how many, and its answers and the wrong ones of all clients.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import factorleak as fl

SIZES = ((1, 1), (2, 2), (3, 3), (4, 8), (9, 32), (33, None))  # ratings of a client, from and to


def main() -> None:
    """Print one line for each number of factors and of rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--factors", nargs="+", type=int, default=[2, 3, 5])
    parser.add_argument("--rounds", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--clients", type=int, default=300)
    given = parser.parse_args()
    ratings = fl.load(given.data)
    heads = [f"{low} to {high}" if high != low else f"{low}" for low, high in SIZES[:-1]] + ["more"]
    print("| factors | rounds | " + " | ".join(heads) + " | answers | wrong | s |\n" + 11 * "|---" + "|")
    for factors in given.factors:
        for n_rounds in given.rounds:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "t"
                fl.record(
                    path, ratings, victim="fedmf", factors=factors, local_steps=3, upload="weights",
                    users=given.clients, rounds=range(n_rounds),
                )  # fmt: skip
                begin = time.process_time()
                found = fl.attack(path, "inversion", rule="local-steps")
                seconds = time.process_time() - begin
            print(f"| {factors} | {n_rounds} | {line(found, ratings)} | {seconds:.0f} |", flush=True)


def line(found: fl.Reconstruction, ratings: fl.Ratings) -> str:
    """Clients that are answered, of all with so many ratings; answers, and wrong ones."""
    table = ratings.matrix().toarray()
    n_rated = (table > 0).sum(axis=1)[found.users]
    told = ~np.isin(found.users, list(found.abstained))
    cells = []
    for low, high in SIZES:
        here = (n_rated >= low) & (n_rated <= (high or n_rated.max()))
        cells.append(f"{(told & here).sum()} of {here.sum()}")
    right = [value == table[user, index] for user, _, index, value, _ in found.rows()]
    every = np.concatenate([np.zeros(0, bool), *right])
    return f"{' | '.join(cells)} | {every.size:,} | {(~every).sum()}"


if __name__ == "__main__":
    main()
