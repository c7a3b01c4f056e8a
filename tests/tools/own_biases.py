"""What ``undeclared`` reads of programs after Koren: biases of items are broadcast, clients keep their own.

    python -m tests.tools.own_biases ../shared/data/ml-100k ../shared/data/filmtrust --count 20

Draws clients of real ratings and a program for each seed: a start from zeros, from a model that was trained
before, or from numbers at random; one step over all ratings a round or several, or one after each rating;
sums or means; a mean that the broadcast holds or not; decay of biases or none; errors sent as one more column
or not. Nothing is declared. Prints what is answered, by rounds, steps and decay.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

import factorleak as fl


@dataclass(frozen=True)
class Program:
    """How clients learn."""

    start: str
    order: str
    rounds: int
    steps: int
    rate: float
    decay: float
    mean: bool
    told_mean: bool
    column: bool
    dtype: type
    n_factors: int

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Program:
        """One at random."""

        def one(*values):
            return values[rng.integers(len(values))]

        order, mean = one("batch", "batch", "batch", "per-rating"), bool(one(0, 1))
        rate = one(0.005, 0.02) if order == "per-rating" else one(0.05, 0.2) if mean else one(0.002, 0.005)
        return cls(
            one("zero", "trained", "random"),
            order,
            one(1, 2, 3, 5, 10),
            one(1, 1, 1, 2, 5),
            rate,
            one(0, 0.02, 0.1),
            mean and order == "batch",
            bool(one(0, 1)),
            bool(one(0, 0, 1)),
            one(np.float64, np.float64, np.float32),
            one(3, 5, 10),
        )


def lists_of(ratings: fl.Ratings, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Items and ratings of 30 clients or fewer, 60 of each at most, items numbered from 0."""
    able = np.flatnonzero(np.diff(ratings.indptr) >= 4)
    out = []
    for user in rng.choice(able, 30, replace=False):
        here = np.arange(ratings.indptr[user], ratings.indptr[user + 1])
        here = rng.permutation(here)[:60]
        out.append((ratings.items[here], ratings.values[here].astype(float)))
    known = np.unique(np.concatenate([items for items, _ in out]))
    return [(np.searchsorted(known, items), values) for items, values in out]


class Recorded:
    """A program and its clients."""

    def __init__(self, program: Program, ratings: fl.Ratings, rng: np.random.Generator) -> None:
        self.program, self.lists, self.levels = program, lists_of(ratings, rng), ratings.levels
        self.n_items = 1 + max(int(items.max()) for items, _ in self.lists)
        spread, kind = 0.3 if program.start == "random" else 0.1, program.dtype
        self.q, self.p = (
            rng.normal(0, spread, (n, program.n_factors)).astype(kind)
            for n in (self.n_items, len(self.lists))
        )
        apart = 0.4 if program.start == "random" else 0.0
        self.b = rng.normal(0, apart, self.n_items).astype(kind)
        self.c = rng.normal(0, apart, len(self.lists)).astype(kind)
        self.mean = kind(np.mean(np.concatenate([values for _, values in self.lists])))
        for _ in range(30 if program.start == "trained" else 0):
            self.round()

    def client(self, user: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Items, rows and errors of one client, who steps."""
        program, kind = self.program, self.program.dtype
        (items, ratings), rate, decay = self.lists[user], kind(program.rate), kind(program.decay)
        p, c, q, b = self.p[user], self.c[user], self.q[items], self.b[items]
        rows, errors, several = np.zeros_like(q), np.zeros_like(b), program.steps > 1
        every = np.arange(items.size)
        for _ in range(program.steps):
            for some in [every] if program.order == "batch" else every[:, None]:
                e = (ratings[some].astype(kind) - self.mean - c - b[some] - q[some] @ p).astype(kind)
                e = e / kind(items.size) if program.mean else e
                change = e[:, None] * p
                rows[some] += change
                errors[some] += e
                p, c = p + rate * (e @ q[some] - decay * p), c + rate * (e.sum() - decay * c)
                if several:
                    q[some] += rate * change
                    b[some] += rate * e
        self.p[user], self.c[user] = p, c
        return items, rows, errors

    def round(self, number: int = 0, recorder: fl.Recorder | None = None) -> None:
        """All clients, and the server's step."""
        known = self.b + self.mean if self.program.told_mean else self.b
        if recorder and self.program.column:
            recorder.broadcast(number, np.column_stack([self.q, known]))
        elif recorder:
            recorder.broadcast(number, self.q, biases=known)
        rows_of, errors_of, count = np.zeros_like(self.q), np.zeros_like(self.b), np.zeros(self.n_items)
        for user in range(len(self.lists)):
            items, rows, errors = self.client(user)
            if recorder:
                sent = np.column_stack([rows, errors]) if self.program.column else rows
                recorder.upload(number, user, sent, items)
            rows_of[items] += rows
            errors_of[items] += errors
            count[items] += 1
        rate = (3 * self.program.rate / np.maximum(count, 1)).astype(self.program.dtype)
        self.q, self.b = self.q + rate[:, None] * rows_of, self.b + rate * errors_of


def main() -> None:
    """Print ratings, answers and wrong ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    table: dict[tuple[str, str, str], np.ndarray] = defaultdict(lambda: np.zeros(4))
    for seed in range(options.first, options.first + options.count):
        rng = np.random.default_rng(seed)
        ratings, program = fl.load(options.data[seed % len(options.data)]), Program.drawn(rng)
        recorded, began = Recorded(program, ratings, rng), perf_counter()
        with TemporaryDirectory() as folder:
            path = Path(folder) / "t"
            with fl.Recorder(path, rating_levels=recorded.levels) as recorder:
                for number in range(program.rounds):
                    recorded.round(number, recorder)
            found = fl.attack(path, "undeclared")
        truth = {
            (user, item): value
            for user, own in enumerate(recorded.lists)
            for item, value in zip(*(column.tolist() for column in own), strict=True)
        }
        answers = [
            abs(value - truth[user, item]) < 0.1
            for column in found.columns()
            for user, item, value in zip(
                *(column[name].tolist() for name in ("user", "index", "value")), strict=True
            )
        ]
        counts = np.array([1, len(truth), len(answers), len(answers) - sum(answers)], float)
        row = (
            "one round" if program.rounds == 1 else "rounds",
            "per rating"
            if program.order == "per-rating"
            else f"{'several' * (program.steps > 1) or 'one'} over all",
            "decay" if program.decay else "none",
        )
        table[row] += counts
        print(seed, program, *counts[1:].astype(int), f"{perf_counter() - began:.1f} s", flush=True)
    print("| rounds | steps | decay | programs | ratings | answered | wrong |\n|---|---|---|---|---|---|---|")
    for row in sorted(table):
        print("|", " | ".join([*row, *(f"{n:,.0f}" for n in table[row])]), "|")


if __name__ == "__main__":
    main()
