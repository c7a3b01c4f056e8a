"""Prediction error of private matrix factorisation over seeds: Hu & Fang 2023, Table 3 and Figures 2 to 8.

Behind ``papers predict``. A cell trains one method once on all but the test ratings and measures squared
and absolute error beside the mean of the training ratings. Ten test ratings per user: those that
MovieLens 100K publishes (``ua``) where they are there, else random ones; one where sparsity varies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from audit.code_identity import code_used
from audit.experiments.cells import Cell, Procedure, Say, cell_path, content_of
from audit.experiments.options import check, each_once, refuse_said_elsewhere, refuse_too_many
from audit.experiments.results import Row, make_row, read_beside
from audit.experiments.rows import failed_row
from audit.experiments.runner import Experiment
from audit.experiments.scenarios import NOWHERE, TESTED, VICTIM, system_of
from audit.factories import make_defenses, make_victim
from audit.papers.plans import METHODS, PAPER, Prediction
from audit.scoring.prediction_errors import UserErrors, interval_over_users
from victims.common.errors import InputError
from victims.common.validation import positive_share, require
from victims.data.published import published_split
from victims.data.ratings import Ratings
from victims.data.subsets import leave_out, refuse_unknown_rule, split, split_by
from victims.evaluation.rating_error import predictions
from victims.training import start

THING = "a prediction"
SIZE_OF: dict[str, Callable[[np.ndarray], np.ndarray]] = {"mse": np.square, "mae": np.abs}


@dataclass(frozen=True)
class Training:
    """The task of a cell: a method at one point; ``run`` numbers the seeds."""

    plan: Prediction
    method: str
    factors: int
    point: float
    run: int
    n_users: int

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return self.plan.seed + self.run

    @property
    def defense(self) -> str:
        """What protects the method."""
        return defense_of(self.plan, self.method, self.point)

    @property
    def victim(self) -> dict[str, Any]:
        """Options of the victim."""
        return victim_options(self.plan, self.factors, self.method)

    @property
    def is_fraction(self) -> bool:
        """Whether the point is the share of the training ratings."""
        return self.plan.vary == "fraction"

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        plan = self.plan
        return {
            "victim": f"{self.method} K={self.factors}",
            "update": "sgd",
            "weighting": "observed-only",
            "data": f"{plan.data} fraction={self.point:g}" if self.is_fraction else plan.data,
            "defense": self.defense,
            "rounds": plan.epochs,
            "seed": self.seed,
            "n_users": self.n_users,
        }

    def cut(self, ratings: Ratings) -> tuple[Ratings, Ratings]:
        """Training and test ratings."""
        train, test = held_out(self.plan, ratings, self.seed)
        some = self.is_fraction and self.point < 1
        return (split(train, 1 - self.point, self.seed)[0] if some else train), test


def cells_of(plan: Prediction, ratings: Ratings, directory: Path) -> list[Cell[Training]]:
    """List the cells of a plan, in the order of its rows."""
    held_out(plan, ratings, plan.seed)  # told before any training
    here = plan.weights or (plan.split == PAPER and published_split(plan.source or plan.data, ratings))
    if not here:
        plan = replace(plan, source=NOWHERE)
    content = content_of(ratings)
    return [
        _cell(Training(plan, method, factors, point, run, ratings.n_users), content, directory)
        for factors in plan.factors
        for point in plan.places
        for method in plan.methods
        for run in range(plan.runs)
    ]


def _cell(task: Training, content: str, directory: Path) -> Cell[Training]:
    plan = task.plan
    identity = {
        "code": code_used(VICTIM, [task.defense]),
        "ratings": content,
        "defense": task.defense,
        "victim": task.victim,
        "fraction": task.point if task.is_fraction else None,
        "seed": task.seed,
        **({} if plan.clip else {"clip": False}),
        "split": None if plan.split == PAPER else f"{plan.split} {plan.test_fraction}",
    }
    label = f"{task.method}-{task.factors}-{plan.vary}-{task.point:g}-{task.run}"
    place = "here" if plan.weights or plan.source != NOWHERE else "anywhere"
    return Cell(task, cell_path(directory, label, identity), place=place)  # type: ignore[arg-type]


class Errors(NamedTuple):
    """Differences from the test ratings, in stars, of a trained system and of the training mean; users."""

    of_system: np.ndarray
    of_mean: np.ndarray
    users: np.ndarray
    seconds: float


def _train(cell: Cell[Training], ratings: Ratings, say: Say) -> Errors:
    task = cell.task
    say(f"{task.method}, {task.factors} factors")
    train, test = task.cut(ratings)
    begin = time.perf_counter()
    victim = make_victim(VICTIM, task.victim)
    trained = start(victim, train, make_defenses(task.defense), task.seed)
    for epoch in range(task.plan.epochs):
        trained = trained.trained(epoch)
    of_system = predictions(trained, test, clip=task.plan.clip) - test.values
    of_mean = train.values.mean() - test.values
    return Errors(of_system, of_mean, test.users, time.perf_counter() - begin)


def _measure(cell: Cell[Training], errors: Errors, say: Say) -> tuple[list[Row], np.ndarray]:
    sums = _of_users(errors, cell.task.n_users)
    return [_row(cell.task, metric, errors, sums) for metric in SIZE_OF], np.concatenate(sums)


def _row(task: Training, metric: str, errors: Errors, sums: UserErrors) -> Row:
    size = SIZE_OF[metric]
    ci_low, ci_high = interval_over_users(sums.of(metric), sums.count)
    return make_row(
        **task.columns(),
        metric=metric,
        value=float(size(errors.of_system).mean()),
        ci_low=ci_low,
        ci_high=ci_high,
        baseline=float(size(errors.of_mean).mean()),
        baseline_name="training mean",
        status="ran",
        seconds=errors.seconds,
    )


def _of_users(errors: Errors, n_users: int) -> UserErrors:
    """Sums of one training."""
    of = errors.of_system
    return UserErrors(
        *(np.bincount(errors.users, part, n_users)[None] for part in (np.ones(of.size), of**2, np.abs(of)))
    )


def user_errors(plan: Prediction, ratings: Ratings, directory: Path) -> dict[tuple[str, int], UserErrors]:
    """Read the errors of each user that the cells of a plan kept beside their rows."""
    found = {}
    for cell in cells_of(plan, ratings, directory):
        sums = read_beside(cell.path, len(UserErrors._fields))
        if sums is not None and sums.shape[1] == ratings.n_users:
            found[cell.task.columns()["victim"], cell.task.seed] = UserErrors(*sums[:, None])
    return found


def _failed(task: Training, error: Exception) -> list[Row]:
    return [failed_row(task.columns(), error, "mse", verdict="")]


OF_DATA = ("nothing", "fraction")  # what is no option of a defense
FACTORS = (10, 5)


def held_out(plan: Prediction, ratings: Ratings, seed: int) -> tuple[Ratings, Ratings]:
    """Training and test ratings, before a share of the former is taken."""
    if plan.split != PAPER:
        return split_by(plan.split, ratings, plan.test_fraction, seed)
    if plan.vary == "fraction":
        return leave_out(ratings, 1, seed)
    return published_split(plan.source or plan.data, ratings) or leave_out(ratings, TESTED, seed)


def defense_of(plan: Prediction, method: str, point: float) -> str:
    """What protects a method at one point."""
    options: dict[str, float | str] = {} if plan.vary in OF_DATA else {plan.vary: point}
    if plan.weights:
        options["weights"] = plan.weights
    return system_of(method).defense_text(plan.noise, plan.epochs, **options)


def victim_options(plan: Prediction, factors: int, method: str) -> dict[str, Any]:
    """Options of the victim."""
    usual = {"order": "per-rating", "learning_rate": "0.005"}
    found = plan.chosen.get((system_of(method).tuned_as, factors), {})
    return {**usual, **plan.victim_options, **found, "factors": str(factors), "epochs": str(plan.epochs)}


def settled(plan: Prediction) -> Prediction:
    """Check every name of a plan: a misspelt one must not cost the work before it."""
    check(plan, THING)
    refuse_said_elsewhere(THING, plan.victim_options, factors="factors", epochs="epochs")
    plan = replace(
        plan,
        methods=each_once(plan.methods) or METHODS,
        factors=each_once(map(int, plan.factors)) or FACTORS,
        points=each_once(map(float, plan.points)),
    )
    refuse_too_many(
        THING, factors=plan.factors, points=plan.places, methods=plan.methods, runs=range(plan.runs)
    )
    if plan.split != PAPER:
        refuse_unknown_rule(plan.split)
    if plan.weights and plan.vary not in (*OF_DATA, "epsilon"):
        raise InputError(f"--vary {plan.vary} is about weights that are drawn; leave --weights out")
    if plan.vary not in OF_DATA and not any(system_of(method).is_private for method in plan.methods):
        raise InputError(f"--vary {plan.vary} needs a method with budgets beside mf; add --method hdpmf, say")
    if plan.points and plan.vary == "nothing":
        raise InputError("--points are values of what varies; name it with --vary, or leave them out")
    for point in plan.places:
        if plan.vary == "fraction":
            require(THING, "points", point, positive_share(), "they are shares of the training ratings")
        for method in plan.methods:
            make_defenses(defense_of(plan, method, point))
    for factors in plan.factors:
        for method in plan.methods:
            make_victim(VICTIM, victim_options(plan, factors, method))
    return plan


EXPERIMENT = Experiment(settled, cells_of, Procedure(_train, _measure, _failed))
run = EXPERIMENT.run
