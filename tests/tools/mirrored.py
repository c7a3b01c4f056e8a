"""How sure ``undeclared`` is of centred ratings, and how often right: ``python -m tests.tools.mirrored``.

    python -m tests.tools.mirrored ../shared/data/ml-1m --clients 5 20 60 200 --repeats 20

Draws clients of real ratings, each with five or more, and sends rows of one step of eight factors in which
the ratings are less the middle of the grid, or less the client's own mean; as likes and dislikes (of the
upper half of the grid, +1 and -1), with the grid turned round, and with ratings dealt out at random over
the levels, too. Prints, of clients who are answered, the mean of the probabilities of their own bit and how
many are right, and of how many recordings the common bit is taken for told. The grid that is turned round is
right where the mirror image is answered.

``--whole`` records all clients instead, runs the whole attack once for each centre, the mean of all ratings
among them, and prints its score, with double and single precision.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import numpy as np

import factorleak as fl
from attacks.closed_form.centres.centred import Centred, read_centred
from attacks.closed_form.centres.mirrored import patterns_of
from attacks.closed_form.centres.unmirrored import unmirrored
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.uploads.readings import Rows

FACTORS, FEWEST = 8, 5
LESS = ("middle", "own mean")
OF = ("ratings", "likes", "turned", "random")


class Told(NamedTuple):
    """Of one recording: probability and right or wrong of clients answered, ratings, the common bit."""

    probability: np.ndarray
    right: np.ndarray
    answered: int
    ratings: int
    upright: float


def of_kind(
    values: np.ndarray, levels: np.ndarray, kind: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The ratings that a program of that kind has, and their levels."""
    if kind == "likes":
        return 1.0 + (values > (levels[0] + levels[-1]) / 2), np.array([1.0, 2.0])
    if kind == "turned":
        return levels[0] + levels[-1] - values, levels
    return (rng.choice(levels, values.size) if kind == "random" else values), levels


def sent_by(y: np.ndarray, v: np.ndarray, rng: np.random.Generator) -> Rows:
    """One client's rows of one step."""
    p = rng.normal(0, 0.3, FACTORS)
    rows = (-2 * (y - v @ p)[:, None] * p)[None]
    there = np.ones(rows.shape[:2], bool)
    return Rows(rows, v[None], np.zeros(there.shape), there, np.full(1, np.nan), np.finfo(float).eps, None)


def recorded(ratings: fl.Ratings, n_clients: int, kind: str, less: str, seed: int) -> Told:
    """Draw clients, send their rows, read them."""
    rng = np.random.default_rng([seed, n_clients])
    able = np.flatnonzero(np.diff(ratings.indptr) >= FEWEST)
    factors = rng.normal(0, 0.3, (ratings.items.max() + 1, FACTORS))
    read: list[tuple[Centred, np.ndarray]] = []
    truth = []
    grid = np.array(ratings.levels)
    levels = grid
    for user in rng.choice(able, min(n_clients, able.size), replace=False):
        here = slice(ratings.indptr[user], ratings.indptr[user + 1])
        items = ratings.items[here]
        values, levels = of_kind(ratings.values[here], grid, kind, rng)
        centre = values.mean() if less == "own mean" else (levels[0] + levels[-1]) / 2
        read.append((read_centred(sent_by(values - centre, factors[items], rng), levels), items[None]))
        truth.append(levels[0] + levels[-1] - values if kind == "turned" else values)
    answer = unmirrored(patterns_of(read, levels.size), levels, rng)
    told = ~np.isnan(answer.lowest) & (not answer.sizes_alone)
    right = [
        np.allclose(answer.lowest[at] + answer.per_step[at] * read[at][0].above[0], truth[at])
        for at in np.flatnonzero(told)
    ]
    n_rated = np.array([part.size for part in truth])
    upright = answer.upright
    return Told(
        answer.probability[told] / upright,
        np.array(right, bool),
        int(n_rated[told].sum()),
        int(n_rated.sum()),
        upright,
    )


def whole(ratings: fl.Ratings, less: str, dtype: type) -> str:
    """Record all clients, attack and score."""
    rng = np.random.default_rng(0)
    levels = np.array(ratings.levels)
    factors: np.ndarray = rng.normal(0, 0.3, (ratings.items.max() + 1, FACTORS)).astype(dtype)
    common = ratings.values.mean() if less == "mean" else (levels[0] + levels[-1]) / 2
    with TemporaryDirectory() as folder:
        with fl.Recorder(Path(folder) / "t", rating_levels=levels) as recorder:
            recorder.broadcast(0, factors)
            for user in range(ratings.n_users):
                here = slice(ratings.indptr[user], ratings.indptr[user + 1])
                items, values = ratings.items[here], ratings.values[here]
                centre = values.mean() if less == "own mean" else common
                sent = sent_by(values - centre, factors[items].astype(float), rng)
                recorder.upload(0, user, sent.rows[0].astype(dtype), items)
                recorder.truth(user, items, values)
        start = perf_counter()
        found = fl.attack(Path(folder) / "t", "undeclared")
        seconds = perf_counter() - start
        scores = fl.score(found, transcript=Path(folder) / "t").set_index("metric")
    row = scores.loc["rated_rating_accuracy"]
    table, answered, wrong = ratings.matrix().tocsr(), 0, 0
    for part in found.columns():
        true = np.asarray(table[part["user"], part["index"]]).ravel()
        answered, wrong = answered + true.size, wrong + int((np.abs(true - part["value"]) > 0.01).sum())
    return (
        f"{ratings.name}, less {less}, {np.dtype(dtype)}: {answered:,} of {ratings.values.size:,} ratings "
        f"answered, {wrong} wrongly; accuracy {row['value']:.3f} "
        f"[{row['ci_low']:.3f}, {row['ci_high']:.3f}], "
        f"best guess {row['baseline']:.3f}; {seconds:.0f} s"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+", help="paths of data sets")
    parser.add_argument("--clients", type=int, nargs="+", default=[5, 20, 60, 200])
    parser.add_argument("--repeats", type=int, default=20, help="recordings of each kind and size")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--of", nargs="+", default=list(OF), choices=OF)
    parser.add_argument("--whole", action="store_true", help="run the whole attack on all clients")
    given = parser.parse_args()
    if given.whole:
        for path, less, dtype in product(given.data, ("mean", *LESS), (np.float64, np.float32)):
            print(whole(fl.load(path), less, dtype), flush=True)
        return
    print("| data | less | of | clients | recordings told | ratings told | clients told | claimed | right |")
    kinds = [(less, kind, size) for less in LESS for kind in given.of for size in given.clients]
    for path in given.data:
        ratings = fl.load(path)
        for less, kind, size in kinds:
            seeds = range(given.first, given.first + given.repeats)
            told = [recorded(ratings, size, kind, less, seed) for seed in seeds]
            share = sum(one.answered for one in told) / sum(one.ratings for one in told)
            bits = sum(one.upright >= BARS.upright for one in told)
            claimed, right = (np.concatenate(part) for part in zip(*(one[:2] for one in told), strict=True))
            means = " | ".join(f"{part.mean():.4f}" if part.size else "-" for part in (claimed, right))
            first = f"| {ratings.name} | {less} | {kind} | {size} | {bits} of {len(told)} | {share:.3f} "
            print(f"{first}| {right.size} | {means} |", flush=True)


if __name__ == "__main__":
    main()
