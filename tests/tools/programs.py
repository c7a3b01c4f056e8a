"""How much of what attacks read of random programs is wrong: ``python -m tests.tools.programs``.

Each program mixes one to three habits of programs that nobody declares; some cannot be read (noise, an
unknown centre). With ``--links`` it has a loss, minibatches, a mean, or a bias of its clients, too, and with
``--passes`` several passes over the ratings, which ``inversion`` is tried on beside ``undeclared``. Prints
the programs with wrong answers and what is answered by habit, and exits with 1 where more than one answer of
a thousand is wrong.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import factorleak as fl
from tests.oracles.aligned import item_answers
from tests.oracles.pass_programs import Passer

GRIDS = (np.arange(1.0, 6.0), np.arange(0.5, 5.1, 0.5))
HABITS = (
    *("mean", "pull", "pull/n", "float32", "float16", "8 bits", "clipped rows", "clipped errors"),
    *("clipped as a whole", "3 steps", "5 steps", "weights", "sign", "noise", "centred", "logistic"),
)
LOSSES = ("squared", "sigmoid", "cross-entropy", "clipped")
ROUNDINGS = ("float32", "float16", "8 bits", "sign", "noise")  # that go with what one client does at a time
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


def trained(
    passer: Passer,
    habits: frozenset[str],
    u: np.ndarray,
    v: np.ndarray,
    r: np.ndarray,
    levels: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """What a client sends that goes through its ratings in their order."""
    rows, _ = passer.train(u, v, r, levels)
    rows = -rows / passer.rate if passer.passes == 1 and "sign" in habits else rows
    if "float16" in habits:
        rows = rows.astype(np.float16).astype(float)
    if "8 bits" in habits:
        size = np.abs(rows).max() / 127 or 1.0
        rows = np.round(rows / size) * size
    return rows + rng.laplace(0, 0.3 * np.abs(rows).max(), rows.shape) if "noise" in habits else rows


def passer_of(rng: np.random.Generator, passes: bool) -> tuple[Passer, set[str]]:
    """A random client that goes through its ratings in an order, and the names of its habits."""
    batch, loss = int(rng.choice([0, 1, 1, 4, 10])), str(rng.choice(LOSSES[: 3 if passes else 4]))
    own_bias, mean = bool(rng.random() < 0.25) and not passes, bool(rng.random() < 0.4)
    client = Passer(
        rate=float(rng.choice([0.002, 0.01, 0.03])),
        passes=int(rng.integers(2, 5)) if passes else 1,
        batch=batch,
        loss=loss,
        mean=mean,
        decay=float(rng.choice([0, 0.1])),
        own_bias=own_bias,
        moves=passes,
    )
    steps = {0: "all at once", 1: "one a step"}.get(batch, "minibatches")
    named = {
        loss,
        steps,
        *(["mean of a step"] if mean and batch != 1 else []),
        *(["own bias"] if own_bias else []),
    }
    return client, named | ({"passes"} if passes else set())


def recorded(seed: int, path: Path, kind: str = "") -> tuple[frozenset[str], np.ndarray]:
    """One round of a random program; its habits, and the ratings (users, items)."""
    rng = np.random.default_rng(seed)
    passer = None
    if kind:
        passer, named = passer_of(rng, kind == "passes")
        few = rng.choice(ROUNDINGS, 1).tolist() if rng.random() < 0.4 else []
        habits = frozenset({*named, *few})
    else:
        habits = frozenset(rng.choice(HABITS, rng.integers(1, 4), replace=False).tolist())
    levels = GRIDS[int(rng.random() < 0.4)]
    users, items, k = int(rng.integers(10, 40)), int(rng.integers(30, 100)), int(rng.integers(2, 12))
    users = users // 4 if kind == "passes" else users
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
            known = v[mine].astype(float)
            if passer is None:
                rows = changed_items(habits, own[user], known, row[mine], rng)
            else:
                rows = trained(passer, habits, own[user], known, row[mine], levels, rng)
            recorder.upload(0, user, rows.astype(dtype), mine)
    return habits, ratings


def answers(path: Path, ratings: np.ndarray, attack: str = "undeclared") -> tuple[int, int]:
    """Answers, and how many of them are another level than the rating."""
    grid = np.array(fl.open_transcript(path).manifest.rating_levels)
    user, item, value = item_answers(fl.attack(path, attack), ratings, grid)
    nearest = grid[np.abs(value[:, None] - grid).argmin(axis=1)]
    return user.size, int((nearest != ratings[user, item]).sum())


def main() -> None:
    """Print how many ratings there are, are answered, and are answered wrongly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=800, help="programs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--links", action="store_const", const="links", default="", dest="kind")
    parser.add_argument("--passes", action="store_const", const="passes", dest="kind")
    given = parser.parse_args()
    there = answered = wrong = 0
    by_habit: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.count):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "t"
            habits, ratings = recorded(seed, path, given.kind)
            many, bad = answers(path, ratings)
            if given.kind == "passes":
                many, more = max((many, bad), answers(path, ratings, "inversion"))
                bad = max(bad, more)
        n_ratings = int((ratings > 0).sum())
        there, answered, wrong = there + n_ratings, answered + many, wrong + bad
        for habit in habits:
            by_habit.update({habit: n_ratings, f"{habit} answered": many, f"{habit} wrong": bad})
        if bad:
            print(
                f"program {seed}: {', '.join(sorted(habits))}: {bad} of {many} answers are wrong", flush=True
            )
    for habit in sorted(name for name in by_habit if f"{name} answered" in by_habit):
        print(f"{habit}: {by_habit[habit]:,} ratings, {by_habit[f'{habit} answered']:,} answered, ", end="")
        print(f"{by_habit[f'{habit} wrong']:,} wrong")
    print(f"{there:,} ratings, {answered:,} answered, {wrong:,} wrong")
    raise SystemExit(wrong > BAR * answered)


if __name__ == "__main__":
    main()
