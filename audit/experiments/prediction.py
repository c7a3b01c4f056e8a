"""Prediction error of private matrix factorisation over seeds: paper 002, Table 3 and Figures 2 to 8.

Behind ``factorleak predict``. A cell trains one method once on all but the test ratings and measures squared
and absolute error beside the mean of the training ratings. Ten test ratings per user: those that
MovieLens 100K publishes (``ua``) where they are there, else random ones; one where sparsity varies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from audit.experiments.cells import content_of, digest, reason_of_failure, run_cells
from audit.experiments.results import Row, make_row
from audit.registry import code_used, make_defenses, make_victim
from victims.common.errors import InputError
from victims.data.movielens_files import published_split
from victims.data.ratings import Ratings
from victims.data.subsets import leave_out, split
from victims.evaluation.rating_error import predictions
from victims.training import start

METHODS = ("mf", "hdpmf", "pdpmf", "dpmf", "hdpmf-r")
VARIED = {
    "nothing": (float("nan"),),
    "user_low": (0.1, 0.2, 0.3, 0.4),  # Figures 2 and 3
    "user_conservative": (0.1, 0.2, 0.3, 0.4, 0.54),  # Figures 4 and 5
    "fraction": (0.2, 0.4, 0.6, 0.8, 1.0),  # Figures 6 and 7
    "epsilon": (0.1, 0.3, 1.0, 3.0, 10.0),
}
TESTED = 10  # ratings per user


@dataclass(frozen=True)
class Plan:
    """What to train.

    Attributes
    ----------
    methods : tuple of str
        "mf", or a defense without its noise option: "hdpmf", "pdpmf", "dpmf", "hdpmf-r".
    data : str
        As given to ``--data``; the published split is looked for beside it.
    noise : str
        See ``defenses.noise.objective_noise``.
    factors : tuple of int
    epochs, runs, seed : int
    vary : str
        A key of ``VARIED``.
    victim_options : dict
    """

    methods: tuple[str, ...] = METHODS
    data: str = "synthetic"
    noise: str = "fresh"
    factors: tuple[int, ...] = (10, 5)
    epochs: int = 100
    runs: int = 5
    seed: int = 0
    vary: str = "nothing"
    victim_options: dict[str, Any] = field(default_factory=dict)

    def defense(self, method: str, point: float) -> str:
        """What protects a method at one point."""
        if method == "mf":
            return "none"
        more = f",{self.vary}={point:g}" if self.vary not in ("nothing", "fraction") else ""
        return f"{method}:noise={self.noise},epochs={self.epochs}{more}"

    def victim(self, factors: int) -> dict[str, Any]:
        """Options of the victim."""
        usual = {"order": "per-rating", "learning_rate": "0.005"}
        return {**usual, **self.victim_options, "factors": str(factors), "epochs": str(self.epochs)}


def run(
    plan: Plan,
    ratings: Ratings,
    directory: Path,
    *,
    jobs: int = -1,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Train every cell that is not there yet and write the result files.

    Raises
    ------
    InputError
        If a name or option is unknown.
    """
    if plan.vary not in VARIED:
        raise InputError(f"--vary must be one of {', '.join(VARIED)}, got {plan.vary!r}")
    if plan.vary not in ("nothing", "fraction") and set(plan.methods) == {"mf"}:
        raise InputError(f"--vary {plan.vary} needs a method with budgets beside mf; add --method hdpmf, say")
    content = content_of(ratings)
    cells = [
        _Cell(plan, directory, content, method, factors, point, number)
        for factors in plan.factors
        for point in VARIED[plan.vary]
        for method in plan.methods
        for number in range(plan.runs)
    ]
    for cell in cells:
        make_defenses(plan.defense(cell.method, cell.point))
        make_victim("mf", plan.victim(cell.factors))
    return run_cells(cells, _work, ratings, directory, jobs, report)


@dataclass(frozen=True)
class _Cell:
    plan: Plan
    directory: Path
    content: str
    method: str
    factors: int
    point: float
    number: int

    @property
    def path(self) -> Path:
        """Where the rows are kept."""
        plan = self.plan
        identity = {
            "code": code_used("mf", [plan.defense(self.method, self.point)]),
            "ratings": self.content,
            "defense": plan.defense(self.method, self.point),
            "victim": plan.victim(self.factors),
            "fraction": self.point if plan.vary == "fraction" else None,
            "seed": plan.seed + self.number,
        }
        words = f"{self.method}-{self.factors}-{plan.vary}-{self.point:g}-{self.number}"
        return self.directory / "cells" / f"{words}-{digest(identity)}.json"

    def shared(self, n_users: int) -> Row:
        """The columns that all rows have in common."""
        plan = self.plan
        return {
            "victim": f"{self.method} K={self.factors}",
            "update": "sgd",
            "weighting": "observed-only",
            "data": plan.data if plan.vary != "fraction" else f"{plan.data} fraction={self.point:g}",
            "defense": plan.defense(self.method, self.point),
            "rounds": plan.epochs,
            "seed": plan.seed + self.number,
            "n_users": n_users,
        }

    @property
    def scratch(self) -> tuple[Path, ...]:
        """Nothing."""
        return ()

    def failed(self, error: Exception, n_users: int = 0) -> list[Row]:
        """Its row where it could not be finished."""
        reason = reason_of_failure(error)
        return [make_row(**self.shared(n_users), metric="mse", status="failed", reason=reason)]

    def cut(self, ratings: Ratings) -> tuple[Ratings, Ratings]:
        """Training and test ratings."""
        seed = self.plan.seed + self.number
        if self.plan.vary == "fraction":
            train, test = leave_out(ratings, 1, seed)
            return (train if self.point == 1 else split(train, 1 - self.point, seed)[0]), test
        return published_split(self.plan.data, ratings) or leave_out(ratings, TESTED, seed)


def _work(cell: _Cell, ratings: Ratings) -> list[Row]:
    plan, shared = cell.plan, cell.shared(ratings.n_users)
    seed = shared["seed"]
    train, test = cell.cut(ratings)
    begin = time.perf_counter()
    try:
        trained = start(
            make_victim("mf", plan.victim(cell.factors)), train, make_defenses(shared["defense"]), seed
        )
        for number in range(plan.epochs):
            trained = trained.trained(number)
        away = predictions(trained, test) - test.values
    except InputError as error:  # diverged, say
        return cell.failed(error, ratings.n_users)
    mean = train.values.mean() - test.values
    seconds = time.perf_counter() - begin
    return [
        make_row(
            **shared,
            metric=name,
            value=float(size(away)),
            baseline=float(size(mean)),
            baseline_name="training mean",
            status="ran",
            seconds=seconds,
        )
        for name, size in (("mse", lambda x: np.mean(x**2)), ("mae", lambda x: np.mean(np.abs(x))))
    ]
