"""What is read of programs that shuffle and average: ``python -m tests.tools.uneven_batches DATA``.

Clients of the data go several times through their ratings, in a new order each time, by minibatches of
which the last is smaller, and send how their copies of the items moved. Sizes, rates, passes, minibatches and
starts are drawn. Exits with 1 where more than one answer of a thousand is wrong.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import factorleak as fl
from tests.oracles.shuffled_passes import ShuffledPasses
from tests.tools.programs import BAR, answers
from victims.transcript.recorder import Recorder

MOST, LEAST, CLIENTS = 200, 10, 20  # ratings of a client, and how many clients


def recorded(path: Path, ratings: fl.Ratings, seed: int) -> tuple[str, np.ndarray, float]:
    """One round of a random program; what it is, the ratings, and how far a factor moves, relative."""
    rng = np.random.default_rng(seed)
    rate, size = (
        float(np.exp(rng.uniform(*np.log([0.002, 0.2])))),
        int(rng.choice([4, 8, 10, 16, 20, 32, 64])),
    )
    client = ShuffledPasses(rate, int(rng.integers(2, 11)), size, mean=True)
    factors, spread, start = int(rng.integers(3, 17)), *rng.choice([0.05, 0.1, 0.3, 0.5], 2).tolist()
    n = np.diff(ratings.indptr)
    users = rng.permutation(np.flatnonzero((n >= LEAST) & (n <= MOST)))[:CLIENTS]
    table = ratings.matrix()[users].toarray()
    items = rng.normal(0, spread, (table.shape[1], factors))
    across = []
    with Recorder(path, rating_levels=ratings.levels) as recorder:
        recorder.broadcast(0, items)
        for number, stars in enumerate(table):
            own = np.flatnonzero(stars)
            rows = client.rows(rng.normal(0, start, factors), items[own], stars[own], rng)
            sizes = np.linalg.svd(rows, compute_uv=False)
            across.append(np.linalg.norm(sizes[1:]) / np.linalg.norm(sizes))
            recorder.upload(0, number, rows, own)
    said = f"{client}, {factors} factors of {spread} and {start}"
    return said, table, float(np.median(across))


def main() -> None:
    """Print what is read of each program, and of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", help="ratings")
    parser.add_argument("--count", type=int, default=20, help="programs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    given = parser.parse_args()
    ratings = fl.load(given.data)
    there = answered = wrong = 0
    for seed in range(given.first, given.first + given.count):
        with TemporaryDirectory() as folder:
            said, table, across = recorded(Path(folder) / "t", ratings, seed)
            start = time.perf_counter()
            many, bad = answers(Path(folder) / "t", table)
        seconds = time.perf_counter() - start
        there, answered, wrong = there + int((table > 0).sum()), answered + many, wrong + bad
        print(
            f"{seed}: {said}; across {across:.3f}: {many:,} of {(table > 0).sum():,} answered, {bad} wrong, "
            f"{seconds:.0f} s",
            flush=True,
        )
    print(f"{there:,} ratings, {answered:,} answered, {wrong:,} wrong")
    raise SystemExit(wrong > BAR * answered)


if __name__ == "__main__":
    main()
