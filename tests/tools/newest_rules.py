"""The newest client rules in bad conditions, what is answered: ``python -m tests.tools.newest_rules``.

One recording for each seed and rule: number type, grid, clients of one rating, rounds, noise, a scale of each
client's own and what is declared are drawn at random. Each is read under its rule, under another rule, by
``any`` and by ``undeclared``. Exits with 1 where a rating is answered wrongly.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import factorleak as fl
from factorleak import plugins
from tests.attacks.test_client_rules import trained
from tests.oracles.adaptive_client import AdaptiveClient
from tests.tools.identify import GRIDS

N_ITEMS, N_USERS, FACTORS = 40, 8, 5
RULES = ("semi-als", "bpr", "adam", "adamw", "rmsprop", "adagrad")
OTHERS = (*RULES, "local-steps", "local-momentum", "local-biases", "per-rating", "sigmoid", "momentum-passes")
NOISES = (1e-8, 1e-5, 0.001, 0.01, 0.1, 1.0)  # of the middle entry of a client's rows (semi-als: of 1)
COLUMNS = ("seed", "rule", "attack", "dtype", "levels", "ones", "rounds", "noise", "scales", "told")
COUNTS = ("ratings", "right", "wrong", "seconds")


@dataclass(frozen=True)
class Drawn:
    """One recording."""

    rule: str
    seed: int
    dtype: Any
    levels: tuple[float, ...]
    ones: bool
    rounds: int
    noise: float
    scales: bool
    told: str

    def record(self, path: Path) -> np.ndarray:
        """Write it; ratings (users, items), 0 unrated."""
        rng = np.random.default_rng([self.seed, RULES.index(self.rule)])
        labels = self.rule == "bpr"
        v, truth = rng.normal(0, 0.4, (N_ITEMS, FACTORS)), np.zeros((N_USERS, N_ITEMS))
        for user, own in enumerate(truth):
            n = 1 if self.ones and user < 3 else int(rng.integers(3, 20))
            own[rng.choice(N_ITEMS, n, replace=False)] = rng.choice((1.0,) if labels else self.levels, n)
        u, scale = rng.normal(0, 0.4, (N_USERS, FACTORS)), 10.0 ** rng.uniform(-1, 1, N_USERS)
        made = self._client(rng)
        with fl.Recorder(
            path, rating_levels=[1.0] if labels else list(self.levels), **self._told(rng)
        ) as out:
            for number in range(self.rounds):
                q = v.astype(self.dtype)
                out.broadcast(number, q)
                for user, own in enumerate(truth):
                    items = np.flatnonzero(own)
                    if labels:
                        fresh = rng.permutation(np.flatnonzero(own == 0))[: items.size]
                        items = np.concatenate([items, fresh])
                    rows, u[user] = made(u[user], own[items], q[items].astype(float))
                    b = self.noise * (1 if self.rule == "semi-als" else np.median(np.abs(rows)))
                    sent = rows + rng.laplace(0, b, rows.shape) if self.noise else rows
                    sent = sent * (scale[user] if self.scales else 1.0)
                    out.upload(number, user, sent.astype(self.dtype), items)
                v = v + rng.normal(0, 0.05, v.shape)
        return truth

    def _client(self, rng: np.random.Generator) -> Any:
        """Rows and factor after a round, of factor, ratings and items' factors."""
        steps = int(rng.integers(2, 4))
        if self.rule == "semi-als":
            ridge = float(10 ** rng.uniform(-1, 1))

            def solved(u: np.ndarray, r: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                p = np.linalg.solve(q.T @ q + ridge * np.eye(u.size), q.T @ r)
                return np.outer(r - q @ p, p), p

            return solved
        if self.rule == "bpr":

            def ranked(u: np.ndarray, r: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                pairs = [(i, j) for i in np.flatnonzero(r) for j in np.flatnonzero(r == 0)]
                return trained(u, q, pairs, steps=steps, rate=0.1, decay=0.0, item_decay=0.0)

            return ranked
        kind = "adam" if self.rule == "adamw" else self.rule
        rate = 0.001 if kind == "rmsprop" else 0.01
        client = AdaptiveClient(kind, steps, rate, decay=0.01 if self.rule == "adamw" else 0.0)
        return client.train

    def _told(self, rng: np.random.Generator) -> dict[str, Any]:
        """What is declared: nothing, or the rule with constants that are not so."""
        if self.told == "nothing":
            return {}
        rule = {"rule": "semi-als"} if self.rule == "semi-als" else {"local_steps": int(rng.integers(1, 6))}
        rule |= {"loss": "bpr"} if self.rule == "bpr" else {}
        constants = {
            "upload_scale": float(rng.choice([1.0, 2.0, -0.5])),
            "upload_regularization": float(rng.choice([0.0, 0.0, 0.1])),
            "lambda_factors": float(10 ** rng.uniform(-1, 1)),
            "client_learning_rate": float(10 ** rng.uniform(-3, 0)),
        }
        return {"rule": rule, "constants": constants}


def drawn(rule: str, seed: int) -> Drawn:
    """Each condition in some of the seeds, so that most recordings have one or two."""
    rng = np.random.default_rng([seed, 77, RULES.index(rule)])
    return Drawn(
        rule,
        seed,
        np.float32 if rng.random() < 0.4 else np.float64,
        GRIDS[int(rng.random() < 0.4)],
        bool(rng.random() < 0.4),
        int(rng.choice([1, 1, 2, 3])),
        float(rng.choice(NOISES)) if rng.random() < 0.3 else 0.0,
        bool(rng.random() < 0.2),
        "wrong constants" if rng.random() < 0.4 else "nothing",
    )


def attacks_on(one: Drawn) -> Iterator[tuple[str, Any]]:
    """Names and attacks: the right rule, another one, any, and none at all."""
    rng = np.random.default_rng([one.seed, 99, RULES.index(one.rule)])
    other = str(rng.choice([name for name in OTHERS if name != one.rule]))
    for name, rule in (("right rule", one.rule), (f"wrong rule ({other})", other), ("any", "any")):
        yield name, plugins.Inversion(rule)
    yield "undeclared", "undeclared"


def counted(found: fl.Reconstruction, one: Drawn, truth: np.ndarray) -> tuple[int, int]:
    """Ratings that are answered rightly, and wrongly."""
    right = wrong = 0
    for user, kind, index, value, _ in found.rows():
        here = (kind == 0) & np.isfinite(value)
        grid = np.array([0.0, *one.levels])
        near = grid[np.abs(value[here, None] - grid).argmin(axis=1)]
        so = near == truth[user[here], index[here]]
        told = (near > 0) | (truth[user[here], index[here]] > 0)  # negatives are not counted
        right, wrong = right + int((so & told).sum()), wrong + int((~so).sum())
    return right, wrong


def rows_of(one: Drawn, folder: Path) -> Iterator[dict[str, Any]]:
    """One row for each attack on one recording."""
    path = folder / f"{one.rule}-{one.seed}"
    truth = one.record(path)
    for name, attack in attacks_on(one):
        begin = time.process_time()
        right, wrong = counted(fl.attack(path, attack), one, truth)
        values = (one.seed, one.rule, name, np.dtype(one.dtype).name, len(one.levels), one.ones, one.rounds)
        values = (*values, one.noise, one.scales, one.told, int((truth > 0).sum()), right, wrong)
        seconds = f"{time.process_time() - begin:.1f}"
        yield dict(zip((*COLUMNS, *COUNTS), (*values, seconds), strict=True))


def shown(rows: list[dict[str, str]]) -> None:
    """Tables by rule and attack, and by condition."""
    print("| rule | attack | recordings | ratings | right | wrong | not answered |\n" + "|---" * 7 + "|")
    kinds = {(row["rule"], row["attack"].split(" (")[0]) for row in rows}
    for rule, attack in sorted(kinds, key=lambda one: (RULES.index(one[0]), one[1])):
        _line(f"{rule} | {attack}", [row for row in rows if row["rule"] == rule and attack in row["attack"]])
    print("| condition | value | recordings | ratings | right | wrong | not answered |\n" + "|---" * 7 + "|")
    for name in COLUMNS[3:]:
        for value in sorted({row[name] for row in rows}):
            own = [row for row in rows if row[name] == value and row["attack"] == "right rule"]
            _line(f"{name} | {value}", own)


def _line(words: str, rows: list[dict[str, str]]) -> None:
    ratings, right, wrong = (sum(int(row[name]) for row in rows) for name in COUNTS[:3])
    print(f"| {words} | {len(rows)} | {ratings} | {right} | {wrong} | {max(ratings - right - wrong, 0)} |")


def main() -> None:
    """Write the rows, and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20), help="first, and one after the last")
    parser.add_argument("--rows", type=Path, default=Path("newest-rules.csv"), help="where rows go")
    parser.add_argument("--rule", action="append", default=[], help="repeatable; all by default")
    given = parser.parse_args()
    there = given.rows.is_file()
    rows: list[dict[str, Any]] = list(csv.DictReader(given.rows.open())) if there else []
    done = {(row["rule"], int(row["seed"])) for row in rows}
    with given.rows.open("a", newline="") as file, TemporaryDirectory() as folder:
        table = csv.DictWriter(file, (*COLUMNS, *COUNTS), lineterminator="\n")
        if not there:
            table.writeheader()
        for seed in range(*given.seeds):
            for rule in given.rule or RULES:
                if (rule, seed) not in done:
                    made = rows_of(drawn(rule, seed), Path(folder))
                    new = [{key: str(value) for key, value in row.items()} for row in made]
                    rows += new
                    table.writerows(new)
                    file.flush()
    shown(rows)
    raise SystemExit(any(int(row["wrong"]) for row in rows))


if __name__ == "__main__":
    main()
