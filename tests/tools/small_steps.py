"""What ``undeclared`` reads of clients whose steps are small beside the last digit of their rows.

    python -m tests.tools.small_steps ../shared/data/ml-100k

Draws clients who step after every rating, or after eight, with rows in single precision, in the order of the
steps or in another; nothing is declared. Prints what is answered.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

import factorleak as fl

RATES = (1e-4, 1e-3, 1e-2)
SIZES = {"start": 0.02, "later": 0.3}  # standard deviation of factors
WAYS = {"a step a rating, in order": (1, False), "a step a rating, shuffled": (1, True),
        "eight a step, shuffled": (8, True)}  # fmt: skip


def recorded(
    path: Path, ratings: fl.Ratings, users: np.ndarray, rate: float, size: float, way: str, k: int
) -> np.ndarray:
    """One round; returns the ratings (clients, items), 0 where unrated."""
    rng, (batch, shuffled) = np.random.default_rng(7), WAYS[way]
    table = np.zeros((users.size, ratings.items.max() + 1))
    for number, user in enumerate(users):
        here = slice(ratings.indptr[user], ratings.indptr[user + 1])
        table[number, ratings.items[here]] = ratings.values[here]
    v = rng.normal(0, size, (table.shape[1], k)).astype(np.float32)
    with fl.Recorder(path, rating_levels=ratings.levels) as recorder:
        recorder.broadcast(0, v)
        for number, own in enumerate(table):
            items, u = rng.permutation(np.flatnonzero(own))[:100], rng.normal(0, size, k)
            own[np.setdiff1d(np.arange(own.size), items)] = 0
            rows, factors = np.zeros((items.size, k)), v[items].astype(float)
            for first in range(0, items.size, batch):
                here = slice(first, first + batch)
                error = own[items[here]] - factors[here] @ u
                rows[here] = -2 * error[:, None] * u
                u = u + 2 * rate * error @ factors[here]
            sent = rng.permutation(items.size) if shuffled else np.arange(items.size)
            recorder.upload(0, number, rows[sent].astype(np.float32), items[sent])
    return table


def main() -> None:
    """Print ratings, answers and wrong ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--factors", type=int, nargs="+", default=[4, 16])
    options = parser.parse_args()
    ratings = fl.load(options.data)
    able = np.flatnonzero(np.diff(ratings.indptr))
    users = np.random.default_rng(0).choice(able, min(options.clients, able.size), replace=False)
    for way, (name, size), k, rate in product(WAYS, SIZES.items(), options.factors, RATES):
        began = perf_counter()
        with TemporaryDirectory() as folder:
            table = recorded(Path(folder) / "t", ratings, users, rate, size, way, k)
            found = fl.attack(Path(folder) / "t", "undeclared")
        answers = wrong = 0
        for columns in found.columns():
            truth = table[columns["user"], columns["index"]]
            answers += truth.size
            wrong += int((np.abs(columns["value"] - truth) > 0.25).sum())
        print(f"{way}, {name}, {k} factors, rate {rate:g}: {int((table > 0).sum())} ratings, ", end="")
        print(f"{answers} answered, {wrong} wrong, {perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
