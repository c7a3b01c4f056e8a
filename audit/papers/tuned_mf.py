"""Learning rate and regularization of every method by k-fold cross-validation, as in Hu & Fang 2023.

Behind ``papers predict --tune``. Section 5.1.2: lambda in {0.01, 0.001}, the initial learning rate in
{0.05, 0.01, 0.005, 0.001}, of DPMF in {0.005, 0.001, 0.0005, 0.0001}. The paper makes its folds of the whole
data set; here they are of the training ratings of the first seed, so that no test rating takes part. HDPMF-R
is HDPMF with other predictions (section 5.2.4), and has its choice.

A cell is one candidate on one fold. It is kept like any other, so that a stopped search goes on. All
candidates of a method on a fold see the same ratings in the same order under the same noise, so that they are
one batch, and are trained together where the recommender steps at every upload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from audit.code_identity import code_used
from audit.experiments.cells import Cell, Procedure, Report, Say, cell_path, content_of, silent
from audit.experiments.results import Row, make_row
from audit.experiments.rows import failed_row
from audit.experiments.runner import run_grid
from audit.experiments.scenarios import VICTIM, system_of
from audit.experiments.workers import Cluster
from audit.factories import make_defenses, make_victim
from audit.papers.hu_fang import Training, held_out
from audit.papers.plans import Prediction
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.subsets import folds
from victims.evaluation.rating_error import predictions
from victims.protocols.base import Victim
from victims.training import Run, start
from victims.training_together import trained_together

RATES, SMALL_RATES = (0.05, 0.01, 0.005, 0.001), (0.005, 0.001, 0.0005, 0.0001)
RIDGES = (0.01, 0.001)
LARGE_NOISE = ("dpmf", "dpmf-program")  # methods that get the smaller rates
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
    plan: Prediction,
    ratings: Ratings,
    directory: Path,
    count: int,
    *,
    jobs: int | Cluster = -1,
    report: Report = silent,
) -> list[Row]:
    """Train every candidate on every fold that was not trained yet."""
    if plan.vary != "nothing":
        raise InputError(f"--tune chooses at the default specification; leave --vary {plan.vary} out")
    for name in ("learning_rate", "regularization"):
        if name in plan.victim_options:
            raise InputError(f"{name} is what --tune chooses; leave --set {name} out")
    train, _ = held_out(plan, ratings, plan.seed)
    next(folds(train, count, plan.seed))  # too few folds are told before any training
    content = content_of(ratings)
    trials = [
        Trial(Training(plan, method, factors, 0.0, 0, ratings.n_users), rate, ridge, fold, count)
        for fold in range(count)
        for factors in plan.factors
        for method in dict.fromkeys(system_of(name).tuned_as for name in plan.methods)
        for rate, ridge in candidates(method)
    ]
    cells = [_cell(trial, content, directory) for trial in trials]
    return run_grid(cells, PROCEDURE, ratings, directory / "tuning", jobs=jobs, report=report)


def candidates(method: str) -> list[tuple[float, float]]:
    """List the learning rates and regularizations that a method chooses from."""
    return list(product(SMALL_RATES if method in LARGE_NOISE else RATES, RIDGES))


def best(rows: Iterable[Row]) -> dict[tuple[str, int], dict[str, str]]:
    """The options of least mean error over the folds, by method and number of factors."""
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
        "victim": {**task.victim, **trial.options},
        "seed": task.seed,
        "split": f"{plan.split} {plan.test_fraction}",
        "fold": (trial.fold, trial.folds),
    }
    rate, ridge = trial.options.values()
    label = f"tune-{task.method}-{task.factors}-{trial.fold}"
    batch = {name: value for name, value in identity.items() if name != "victim"}
    beside = cell_path(directory / "tuning", f"{label}-together", batch | {"K": task.factors})
    return Cell(trial, cell_path(directory / "tuning", f"{label}-{rate}-{ridge}", identity), (beside,))


Errors = Mapping[tuple[float, float], float | InputError]  # on one fold, or why there is none


def _train(cell: Cell[Trial], ratings: Ratings, say: Say) -> Errors:
    """Train all candidates on the folds but one."""
    trial, task = cell.task, cell.task.training
    say(f"{task.method}, {task.factors} factors, fold {trial.fold + 1}")
    training, _ = task.cut(ratings)
    train, validation = list(folds(training, trial.folds, task.plan.seed))[trial.fold]
    chosen_from = candidates(task.method)
    runs = [
        start(_victim(trial, *pair), train, make_defenses(task.defense), task.seed) for pair in chosen_from
    ]
    trained = trained_together(runs, task.plan.epochs)
    return {pair: _error(run, validation) for pair, run in zip(chosen_from, trained, strict=True)}


def _victim(trial: Trial, rate: float, ridge: float) -> Victim:
    task, options = trial.training, replace(trial, learning_rate=rate, regularization=ridge).options
    return make_victim(VICTIM, {**task.victim, **options})


def _error(run: Run | InputError, validation: Ratings) -> float | InputError:
    if isinstance(run, InputError):  # it diverged, which a rate that is too large does
        return run
    return float(np.mean((predictions(run, validation) - validation.values) ** 2))


def _measure(cell: Cell[Trial], errors: Errors, say: Say) -> list[Row]:
    trial = cell.task
    value = errors[trial.learning_rate, trial.regularization]
    if isinstance(value, InputError):
        return _failed(trial, value)
    return [make_row(**trial.columns(), metric=ERROR, value=value, status="ran")]


def _failed(trial: Trial, error: Exception) -> list[Row]:
    return [failed_row(trial.columns(), error, ERROR, verdict="")]


PROCEDURE = Procedure(_train, _measure, _failed)
