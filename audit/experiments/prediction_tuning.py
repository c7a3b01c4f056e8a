"""Learning rate and regularization of every method by k-fold cross-validation, as paper 002 chooses them.

Behind ``factorleak predict --tune``. Section 5.1.2: lambda in {0.01, 0.001}, the initial learning rate in
{0.05, 0.01, 0.005, 0.001}, of DPMF in {0.005, 0.001, 0.0005, 0.0001}. The paper makes its folds of the whole
data set; here they are of the training ratings of the first seed, so that no test rating takes part.

A cell is one training on all folds but one. It is kept like any other, so that a stopped search goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from audit.code_identity import code_used
from audit.experiments.grid import Cell, Procedure, Report, Say, only_ratings, silent
from audit.experiments.metric_rows import failed_row
from audit.experiments.naming import cell_path, content_of
from audit.experiments.prediction import Plan, Training
from audit.experiments.private_mf import VICTIM
from audit.experiments.results import Row, make_row
from audit.experiments.runner import run_grid
from audit.factories import make_defenses, make_victim
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.splits import folds
from victims.evaluation.rating_error import predictions
from victims.training import start

RATES, SMALL_RATES = (0.05, 0.01, 0.005, 0.001), (0.005, 0.001, 0.0005, 0.0001)
RIDGES = (0.01, 0.001)
LARGE_NOISE = ("dpmf",)  # methods that get the smaller rates
ERROR = "validation_mse"


@dataclass(frozen=True)
class Trial:
    """The task of a cell: one candidate on one fold."""

    training: Training
    learning_rate: float
    regularization: float
    fold: int
    folds: int

    @property
    def options(self) -> dict[str, str]:
        """Of the victim."""
        return {"learning_rate": f"{self.learning_rate:g}", "regularization": f"{self.regularization:g}"}

    def columns(self) -> Row:
        """Columns of the cell's row; the candidate is told beside the method."""
        chosen = ",".join(f"{name}={value}" for name, value in self.options.items())
        columns = self.training.columns()
        return columns | {"victim": f"{columns['victim']} {chosen}", "rounds": self.training.plan.epochs}


def tune(
    plan: Plan, ratings: Ratings, directory: Path, count: int, *, jobs: int = -1, report: Report = silent
) -> list[Row]:
    """Train every candidate on every fold that was not trained yet.

    Parameters
    ----------
    plan : Plan
        Nothing may vary in it.
    ratings : Ratings
    directory : Path
        Created if missing; its ``tuning`` holds the result files.
    count : int
        Folds, >= 2.
    jobs : int
    report : callable

    Returns
    -------
    list of dict
        A row per method, number of factors, candidate and fold: the MSE on the fold that was held out, or
        ``failed`` where the training diverged.

    Raises
    ------
    InputError
        If something varies, a name is unknown, or the choice is made by hand.
    """
    if plan.vary != "nothing":
        raise InputError(f"--tune chooses at the default specification; leave --vary {plan.vary} out")
    for name in ("learning_rate", "regularization"):
        if name in plan.victim_options:
            raise InputError(f"{name} is what --tune chooses; leave --set {name} out")
    train, _ = plan.held_out(ratings, plan.seed)
    next(folds(train, count, plan.seed))  # too few folds are told before any training
    content = content_of(ratings)
    trials = [
        Trial(Training(plan, method, factors, 0.0, 0, ratings.n_users), rate, ridge, fold, count)
        for factors in plan.factors
        for method in plan.methods
        for rate, ridge in product(SMALL_RATES if method in LARGE_NOISE else RATES, RIDGES)
        for fold in range(count)
    ]
    cells = [_cell(trial, content, directory) for trial in trials]
    return run_grid(cells, PROCEDURE, ratings, directory / "tuning", jobs=jobs, report=report)


def best(rows: Iterable[Row]) -> dict[tuple[str, int], dict[str, str]]:
    """The options of least mean error over the folds, by method and number of factors.

    Parameters
    ----------
    rows : iterable of mapping
        Of ``tune``. A candidate that failed on a fold is not chosen.

    Returns
    -------
    dict

    Raises
    ------
    InputError
        If all candidates of a method failed.
    """
    errors: dict[tuple[str, int], dict[str, list[float]]] = {}
    for row in rows:
        method, size, candidate = str(row["victim"]).split(" ")
        of_method = errors.setdefault((method, int(size.removeprefix("K="))), {})
        failed = row["status"] != "ran"
        of_method.setdefault(candidate, []).append(np.inf if failed else float(row["value"]))
    chosen = {}
    for (method, factors), candidates in errors.items():
        means = {candidate: float(np.mean(values)) for candidate, values in candidates.items()}
        winner = min(means, key=lambda candidate: means[candidate])
        if not np.isfinite(means[winner]):
            raise InputError(
                f"every candidate of {method} at K = {factors} failed; see the results of the search"
            )
        pairs = (pair.partition("=") for pair in winner.split(","))
        chosen[method, factors] = {name: value for name, _, value in pairs}
    return chosen


def _cell(trial: Trial, content: str, directory: Path) -> Cell[Trial]:
    task, plan = trial.training, trial.training.plan
    identity = {
        "code": code_used(VICTIM, [task.defense]),
        "ratings": content,
        "defense": task.defense,
        "victim": {**plan.victim(task.factors, task.method), **trial.options},
        "seed": task.seed,
        "split": f"{plan.split} {plan.test_fraction}",
        "fold": (trial.fold, trial.folds),
    }
    rate, ridge = trial.options.values()
    label = f"tune-{task.method}-{task.factors}-{rate}-{ridge}-{trial.fold}"
    return Cell(trial, cell_path(directory / "tuning", label, identity))


def _measure(cell: Cell[Trial], ratings: Ratings, say: Say) -> list[Row]:
    trial, task = cell.task, cell.task.training
    say(f"{task.method}, {task.factors} factors, {' '.join(trial.options.values())}, fold {trial.fold + 1}")
    training, _ = task.cut(ratings)
    train, validation = list(folds(training, trial.folds, task.plan.seed))[trial.fold]
    victim = make_victim(VICTIM, {**task.plan.victim(task.factors, task.method), **trial.options})
    try:
        run = start(victim, train, make_defenses(task.defense), task.seed)
        for epoch in range(task.plan.epochs):
            run = run.trained(epoch)
    except InputError as error:  # it diverged, which a rate that is too large does
        return _failed(trial, error)
    error = predictions(run, validation) - validation.values
    value = float(np.mean(error**2))
    return [make_row(**trial.columns(), metric=ERROR, value=value, status="ran")]


def _failed(trial: Trial, error: Exception) -> list[Row]:
    return [failed_row(trial.columns(), error, ERROR, verdict="")]


PROCEDURE = Procedure(only_ratings, _measure, _failed)
