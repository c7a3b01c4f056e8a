"""Empirical lower bounds of the epsilons that accounts print, for small victims.

A pair of recordings that are neighbours is planted: one client's rating, or all of its ratings, at the lowest
level in one and at the highest in the other. The protocol is run again and again in both; half of the runs
teach a linear discriminant of everything that is seen of the client (its rows of all rounds, and the
broadcasts), the other half bounds epsilon from below (``audit.scoring.lower_bounds``).

    python -m tests.contract.refuter [RUNS]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from audit.accounts import accounts_of
from audit.factories import make_defenses, make_victim
from audit.scoring.lower_bounds import Bound, from_repetitions
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.training import Run, received, sent_rows, start

PLANTED = 1  # the client
WORLDS = ("low", "high")
PAIRS = ("rating", "client")
STARTS = 40  # of which the one is taken where the pair differs the most


@dataclass(frozen=True)
class Case:
    """A setting: a victim with options, a defense, how many rounds run, and how many ratings the client has.

    ``line`` is what the account calls the sums alone, where it does not go by the pair; then these are seen.
    """

    victim: str
    defense: str
    n_rounds: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    ratings: int = 1
    line: str = ""

    @property
    def text(self) -> str:
        """The setting in words."""
        said = ",".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.victim} {said} {self.defense}, {self.n_rounds} rounds, {self.ratings} ratings"


K1 = {"factors": "1", "init_scale": "1.5"}
LAPLACE, NORMAL = "laplace:scale=1,clip=0.5", "gaussian:scale=1,clip=0.5"
SMALL = "laplace:scale=0.05,clip=0.025"
SGD = {"update": "sgd"} | K1
CASES = (
    Case("fedmf", SMALL, 1, K1 | {"client_learning_rate": "0.02"}),
    Case("fedmf", SMALL, 3, K1 | {"client_learning_rate": "0.02"}),
    Case("fedmvmf", NORMAL, 1, SGD, 2),
    Case("fedmvmf", LAPLACE, 2, {"update": "semi-als", "factors": "1", "lambda_factors": "0.1"}),
    Case("mf", LAPLACE, 1, K1, 2),
    Case("mf", "gaussian:scale=0.002,clip=0.001", 2, K1 | {"local_steps": "2", "upload": "delta"}, 2),
    Case("mf", LAPLACE, 2, K1 | {"participation": "0.5"}),
    Case("mf", "objective-noise:epsilon=1", 1, K1, 1, "the item's sum, h unknown"),
    Case("pdmfrec", LAPLACE, 2, {"factors": "1", "init_scale": "3"}),
    Case("dpmf-yang", f"{SMALL},per_message=true", 1, {"factors": "1", "positive_share": "0"}, 2),
    Case("dmf", SMALL, 2, {"factors": "1", "order": "batch", "shuffle": "never"}),
)


def printed(case: Case, pair: str) -> float:
    """The epsilon that is printed of what a pair differs in; NaN where none is."""
    victim, defenses = make_victim(case.victim, dict(case.options)), make_defenses(case.defense)
    ratings = _ratings(case)["low client"]
    told = accounts_of(case.victim, [victim], defenses, ratings, n_rounds=case.n_rounds, seed=0)
    (account,) = told[-1].accounts
    wanted = case.line or f"one {pair}"
    found = [line.at_delta for line in account.lines if line.what.startswith(wanted)]
    return max(found, default=np.nan) if pair == "rating" or not case.line else np.nan


def bound_of(case: Case, pair: str, runs: int, confidence: float = 0.95) -> Bound:
    """A lower bound of epsilon of ``rating`` or ``client``, from as many runs in each world."""
    worlds = {world: _ratings(case)[f"{world} {pair}"] for world in WORLDS}
    begin = _start(case, worlds)
    seen = {world: np.stack([_seen(begin[world]._replace(seed=seed), case) for seed in range(k, 2 * runs, 2)])
            for k, world in enumerate(WORLDS)}  # fmt: skip
    half = runs // 2
    low, high = (seen[world][:half] for world in WORLDS)
    spread = np.cov(np.concatenate([low - low.mean(0), high - high.mean(0)]).T).reshape(low.shape[1], -1)
    ridge = 1e-9 * np.trace(spread) / len(spread) + 1e-300
    normal = np.linalg.solve(spread + ridge * np.eye(len(spread)), high.mean(0) - low.mean(0))
    middle = (high.mean(0) + low.mean(0)) / 2
    low, high = ((seen[world][half:] - middle) @ normal for world in WORLDS)
    return from_repetitions(high, low, confidence)


def _ratings(case: Case) -> dict[str, Ratings]:
    """Both worlds of both pairs."""
    ratings = generate(Synthetic(users=5, items=4, ratings_per_user=2.0, single=0.0, seed=3))
    kept = np.ones(ratings.n_ratings, bool)
    mine = np.flatnonzero(ratings.users == PLANTED)
    assert mine.size >= case.ratings
    kept[mine[case.ratings :]] = False
    indptr = np.concatenate([[0], np.cumsum(np.bincount(ratings.users[kept], minlength=ratings.n_users))])
    values = {"items": ratings.items[kept], "values": ratings.values[kept], "indptr": indptr}
    ratings = replace(ratings, **values)
    mine = np.flatnonzero(ratings.users == PLANTED)
    worlds = {}
    for level, world in ((0, "low"), (-1, "high")):
        for pair, chosen in (("rating", mine[:1]), ("client", mine)):
            changed = ratings.values.copy()
            changed[chosen] = ratings.levels[level]
            worlds[f"{world} {pair}"] = replace(ratings, values=changed)
    return worlds


def _start(case: Case, worlds: Mapping[str, Ratings]) -> dict[str, Run]:
    """The same start in both worlds: that of whose first rows, without noise, differ the most."""
    victim, defenses = make_victim(case.victim, dict(case.options)), make_defenses(case.defense)

    def apart(seed: int) -> float:
        rows = [_rows(start(victim, ratings, [], seed), 0) for ratings in worlds.values()]
        clip = getattr(defenses[-1], "clip", None) or np.inf
        low, high = (row * np.minimum(1, clip / np.maximum(np.abs(row), 1e-300)) for row in rows)
        return float(np.abs(high - low).sum())

    best = max(range(STARTS), key=apart)
    return {world: start(victim, ratings, defenses, best) for world, ratings in worlds.items()}


def _rows(run: Run, round_: int) -> np.ndarray:
    """What the planted client sends in a round; nothing where it takes no part."""
    everybody = np.arange(run.ratings.n_users)
    return np.concatenate(
        [rows.gradient[rows.sender == PLANTED] for rows in sent_rows(run, everybody, round_)]
    )


def _seen(run: Run, case: Case) -> np.ndarray:
    """Everything that is seen of a run, as one vector."""
    seen: list[np.ndarray] = []
    width = 0
    for round_ in range(case.n_rounds):
        if case.line:
            arrived = received(run, round_)
            assert arrived is not None
            seen.append(np.ravel(arrived.items))
            continue
        rows = _rows(run, round_)
        width = max(width, rows.size)
        seen += [
            np.ravel(run.victim.broadcast(run.state)[0]),
            np.ravel(rows) if rows.size else np.zeros(width),
        ]
        if round_ + 1 < case.n_rounds:
            run = run.trained(round_)
    return np.concatenate(seen)


def table(runs: int) -> Iterator[tuple[str, str, float, float]]:
    """Case, what the pair differs in, the epsilon that is printed, and the lower bound at 95 %."""
    for case in CASES:
        for pair in PAIRS:
            yield case.text, f"one {pair}", printed(case, pair), bound_of(case, pair, runs).epsilon


if __name__ == "__main__":
    for text, pair, epsilon, least in table(int(sys.argv[1]) if len(sys.argv) > 1 else 2000):
        print(f"{text:100} {pair:10} printed {epsilon:6.3g}  at least {least:.3f}", flush=True)
