"""How much of what ``undeclared`` reads of random programs is wrong: ``python -m tests.soak.programs``.

Each program mixes one to three habits of programs that nobody declares; some cannot be read (noise, a
logistic link, an unknown centre). Prints the programs with wrong answers, and exits with 1 where more than
one answer of a thousand is wrong.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import factorleak as fl

GRIDS = (np.arange(1.0, 6.0), np.arange(0.5, 5.1, 0.5))
HABITS = (
    *("mean", "pull", "pull/n", "float32", "float16", "8 bits", "clipped rows", "clipped errors"),
    *("clipped as a whole", "3 steps", "5 steps", "weights", "sign", "noise", "centred", "logistic"),
)
BAR = 1e-3  # of the answers, wrong


def changed_items(
    habits: frozenset[str], u: np.ndarray, v: np.ndarray, r: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """What a client of such a program sends about its items."""
    n, predicted = r.size, v @ u
    error = r - predicted
    if "logistic" in habits:
        likely = 1 / (1 + np.exp(-predicted))
        error = ((r - 1) / 4 - likely) * likely * (1 - likely)
    if "centred" in habits:
        error = error - 3.53
    if "clipped errors" in habits:
        error = np.clip(error, -1.5, 1.5)
    rows = -2 * error[:, None] * u / (n if "mean" in habits else 1)
    rows = rows + 0.1 * v * ("pull" in habits) + 0.1 / n * v * ("pull/n" in habits)
    if "clipped rows" in habits:
        length = np.linalg.norm(rows, axis=1)
        rows = rows * np.minimum(1, np.quantile(length, 0.6) / length)[:, None]
    if "clipped as a whole" in habits:
        rows = rows * min(1.0, 1.0 / np.linalg.norm(rows))
    if "float16" in habits:
        rows = rows.astype(np.float16).astype(float)
    if "8 bits" in habits:
        size = np.abs(rows).max() / 127
        rows = np.round(rows / size) * size
    for steps in (3, 5):
        if f"{steps} steps" in habits:
            rows = local_steps(steps, "mean" in habits, u, v, r) + v * ("weights" in habits)
    if "sign" in habits:
        rows = -rows
    return rows + rng.laplace(0, 0.3, rows.shape) if "noise" in habits else rows


def local_steps(steps: int, mean: bool, u: np.ndarray, v: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Change of the client's copy of the factors."""
    w, rate = v.copy(), 0.04 / (r.size if mean else 1)
    for _ in range(steps):
        error = r - w @ u
        w, u = w + rate * error[:, None] * u, u + rate * error @ w
    return w - v


def recorded(seed: int, path: Path) -> tuple[frozenset[str], np.ndarray]:
    """One round of a random program; its habits, and the ratings (users, items)."""
    rng = np.random.default_rng(seed)
    habits = frozenset(rng.choice(HABITS, rng.integers(1, 4), replace=False).tolist())
    levels = GRIDS[int(rng.random() < 0.4)]
    users, items, k = int(rng.integers(10, 40)), int(rng.integers(30, 100)), int(rng.integers(2, 12))
    ratings = np.where(
        rng.random((users, items)) < rng.uniform(0.04, 0.3), rng.choice(levels, (users, items)), 0
    )
    ratings[np.arange(users), rng.integers(0, items, users)] = levels[-1]
    dtype = np.float32 if habits & {"float32", "float16"} else np.float64
    v, own = rng.normal(0, 0.3, (items, k)).astype(dtype), rng.normal(0, 0.3, (users, k))
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, v)
        for user, row in enumerate(ratings):
            (mine,) = np.nonzero(row)
            rows = changed_items(habits, own[user], v[mine].astype(float), row[mine], rng)
            recorder.upload(0, user, rows.astype(dtype), mine)
    return habits, ratings


def answers(path: Path, ratings: np.ndarray) -> tuple[int, int]:
    """Answers, and how many of them are another level than the rating."""
    found = fl.attack(path, "undeclared")
    columns = list(found.columns())
    if not columns:
        return 0, 0
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    grid = np.array(fl.open_transcript(path).manifest.rating_levels)
    nearest = grid[np.abs(value[:, None] - grid).argmin(axis=1)]
    return user.size, int((nearest != ratings[user, item]).sum())


def main() -> None:
    """Print how many ratings there are, are answered, and are answered wrongly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=800, help="programs")
    there = answered = wrong = 0
    for seed in range(parser.parse_args().count):
        with TemporaryDirectory() as folder:
            habits, ratings = recorded(seed, Path(folder) / "t")
            many, bad = answers(Path(folder) / "t", ratings)
        there, answered, wrong = there + int((ratings > 0).sum()), answered + many, wrong + bad
        if bad:
            print(f"program {seed}: {', '.join(sorted(habits))}: {bad} of {many} answers are wrong")
    print(f"{there:,} ratings, {answered:,} answered, {wrong:,} wrong")
    raise SystemExit(wrong > BAR * answered)


if __name__ == "__main__":
    main()
