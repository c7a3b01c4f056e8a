"""What ``undeclared`` reads of real ratings less the means of items, which nobody told.

    python -m tests.tools.item_biases ../shared/data/ml-100k --clients 60 200 943

Draws clients, each with its ratings less the items' means among them, one step of eight factors, nothing
declared, and prints what is answered.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

import factorleak as fl
from tests.oracles.aligned import item_answers

FACTORS = 8


def recorded(path: Path, ratings: fl.Ratings, users: np.ndarray, dtype: type, seed: int) -> np.ndarray:
    """One round; returns the ratings (clients, items), 0 where unrated."""
    rng = np.random.default_rng(seed)
    table = np.zeros((users.size, ratings.items.max() + 1))
    for number, user in enumerate(users):
        here = slice(ratings.indptr[user], ratings.indptr[user + 1])
        table[number, ratings.items[here]] = ratings.values[here]
    mean = table.sum(axis=0) / np.maximum((table > 0).sum(axis=0), 1)
    factors = rng.normal(0, 0.3, (table.shape[1], FACTORS)).astype(dtype)
    with fl.Recorder(path, rating_levels=ratings.levels) as recorder:
        recorder.broadcast(0, factors)
        for number, own in enumerate(table):
            items, p = np.flatnonzero(own), rng.normal(0, 0.3, FACTORS)
            error = own[items] - mean[items] - factors[items].astype(float) @ p
            recorder.upload(0, number, (2 * error[:, None] * p).astype(dtype), items)
    return table


def main() -> None:
    """Print ratings, answers and wrong ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--clients", type=int, nargs="+", default=[20, 60, 200])
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    for data, n_clients, dtype in product(options.data, options.clients, (np.float64, np.float32)):
        ratings = fl.load(data)
        able, many, answers, wrong, began = np.diff(ratings.indptr).nonzero()[0], 0, 0, 0, perf_counter()
        for seed in range(options.repeats):
            users = np.random.default_rng(seed).choice(able, min(n_clients, able.size), replace=False)
            with TemporaryDirectory() as folder:
                table = recorded(Path(folder) / "t", ratings, users, dtype, seed)
                found = fl.attack(Path(folder) / "t", "undeclared")
            many += int((table > 0).sum())
            user, item, value = item_answers(found, table, np.array(ratings.levels))
            answers += user.size
            wrong += int((np.abs(value - table[user, item]) > 0.25).sum())
        seconds = perf_counter() - began
        print(f"{Path(data).name} {n_clients} clients {dtype.__name__}: {many} ratings, ", end="")
        print(f"{answers} answered, {wrong} wrong, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
