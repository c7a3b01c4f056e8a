"""Prediction error among neighbours: paper 003, Table 2, and the error against rounds.

Behind ``papers predict --victim pdmfrec``. Ratings are cut into five random equal parts, three to train
on, one to choose by, one to measure on, in five rotations. A cell trains one method at one learning rate
and measures after the given rounds, beside the mean of the training ratings; which rate, and after how many
rounds, is chosen by the validation MAE alone (``chosen``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from audit.code_identity import code_used
from audit.experiments.cache import cell_path, content_of
from audit.experiments.grid import Cell, Procedure, Say, only_ratings
from audit.experiments.plan_rules import (
    N_ROUNDS,
    OPTIONS,
    SEED,
    TEXT,
    each_once,
    refuse_said_elsewhere,
    refuse_too_many,
)
from audit.experiments.results import Row, make_row
from audit.experiments.rows import failed_row
from audit.experiments.runner import Experiment
from audit.factories import make_victim
from victims.common.errors import InputError
from victims.common.validation import above, each, one_of, require_fields, whole
from victims.data.ratings import Ratings
from victims.data.subsets import rotations
from victims.evaluation.pmf import disjoint_batches, pmf_epoch, pmf_start
from victims.protocols.base import Predictor, Victim
from victims.training import start

VICTIM, PMF = "pdmfrec", "pmf"
METHODS = {"pdmfrec": "full", "pdmfrec-sim": "-sim", "pdmfrec-sim-all": "-sim,all", PMF: ""}
RATES = (0.01, 0.02, 0.03, 0.04, 0.05)  # section 4.4
PARTS = 5
THING = "a prediction with pdmfrec"
ROUNDS = (1, 2, 5, 10, 15, 20, 30, 40, 50, 60, 80, 100, 125, 150)


@dataclass(frozen=True)
class PartsPlan:
    """What to train."""

    methods: tuple[str, ...] = tuple(METHODS)  # keys of ``METHODS``
    data: str = "synthetic"
    rates: tuple[float, ...] = RATES  # learning rates to choose from
    rounds: tuple[int, ...] = ROUNDS  # rounds, or epochs, after which to measure, ascending
    runs: int = PARTS  # rotations, at most five; the seed of parts and starts
    seed: int = 0  # rotations, at most five; the seed of parts and starts
    # of ``pdmfrec``; ``pmf`` takes ``factors``, ``regularization`` and ``init_scale`` of them
    victim_options: dict[str, Any] = field(default_factory=dict)

    def victim(self, method: str, rate: float) -> Victim:
        """The victim of a method; of ``pmf`` the one whose loss it has."""
        options = {**self.victim_options, "learning_rate": rate}
        return make_victim(VICTIM, options | ({"variant": METHODS[method]} if METHODS[method] else {}))


@dataclass(frozen=True)
class Training:
    """The task of a cell: a method at one rate in one rotation."""

    plan: PartsPlan
    method: str
    rate: float
    rotation: int
    n_users: int

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        said = " ".join(f"{name}={value}" for name, value in sorted(self.plan.victim_options.items()))
        return {
            "victim": f"{self.method} rate={self.rate:g} {said}".strip(),
            "update": "sgd",
            "weighting": "observed-only",
            "data": self.plan.data,
            "defense": "none",
            "seed": self.rotation,
            "n_users": self.n_users,
        }


def settled(plan: PartsPlan) -> PartsPlan:
    """Check every name and number of a plan."""
    require_fields(
        plan,
        THING,
        methods=each(one_of(*METHODS)),
        data=TEXT,
        rates=each(above(0)),
        rounds=each(N_ROUNDS),
        runs=whole(1, PARTS),
        seed=SEED,
        victim_options=OPTIONS,
    )
    refuse_said_elsewhere(THING, plan.victim_options, learning_rate="rates", variant="methods")
    plan = replace(
        plan,
        methods=each_once(plan.methods),
        rates=each_once(map(float, plan.rates)),
        rounds=tuple(sorted(set(map(int, plan.rounds)))),
    )
    refuse_too_many(THING, methods=plan.methods, rates=plan.rates, runs=range(plan.runs))
    for method in plan.methods:
        for rate in plan.rates:
            plan.victim(method, rate)
    return plan


def cells_of(plan: PartsPlan, ratings: Ratings, directory: Path) -> list[Cell[Training]]:
    """List the cells of a plan."""
    content = content_of(ratings)
    return [
        _cell(Training(plan, method, rate, rotation, ratings.n_users), content, directory)
        for method in plan.methods
        for rate in plan.rates
        for rotation in range(plan.runs)
    ]


def _cell(task: Training, content: str, directory: Path) -> Cell[Training]:
    plan = task.plan
    identity = {
        "code": code_used(VICTIM, []),
        "ratings": content,
        "method": task.method,
        "rate": task.rate,
        "rounds": plan.rounds,
        "victim": plan.victim_options,
        "seed": [plan.seed, task.rotation],
    }
    return Cell(task, cell_path(directory, f"{task.method}-{task.rate:g}-{task.rotation}", identity))


def _measure(cell: Cell[Training], ratings: Ratings, say: Say) -> list[Row]:
    task = cell.task
    say(f"{task.method}, rate {task.rate:g}, rotation {task.rotation + 1}")
    train, validation, test = next(islice(rotations(ratings, task.plan.seed), task.rotation, None))
    mean, begin, rows = train.values.mean(), time.perf_counter(), []
    here = task.columns()
    try:
        for done, predictor in _trained(task, train):
            of_test, of_validation = _errors(predictor, test), _errors(predictor, validation)
            seconds = time.perf_counter() - begin
            for metric, size, error, held in (
                ("mae", _mae, of_test, test),
                ("rmse", _rmse, of_test, test),
                ("validation_mae", _mae, of_validation, validation),
            ):
                rows.append(
                    make_row(
                        **here,
                        rounds=done,
                        metric=metric,
                        value=size(error),
                        baseline=size(mean - held.values),
                        baseline_name="training mean",
                        status="ran",
                        seconds=seconds,
                    )
                )
    except InputError as error:  # diverged: what was measured before stays
        rows.append(failed_row(here, error, "mae", verdict=""))
    return rows


def _trained(task: Training, train: Ratings) -> Iterator[tuple[int, Predictor]]:
    """What is predicted after each of the rounds that are measured."""
    plan, last = task.plan, task.plan.rounds[-1]
    victim: Any = plan.victim(task.method, task.rate)
    if task.method == PMF:
        factors = pmf_start(train, victim.factors, victim.init_scale, plan.seed)
        batches = disjoint_batches(train, plan.seed)
        for epoch in range(last):
            factors = pmf_epoch(factors, train, batches, task.rate, victim.regularization, plan.seed, epoch)
            if epoch + 1 in plan.rounds:
                yield epoch + 1, factors.predictor()
        return
    now = start(victim, train, [], plan.seed)
    for number in range(last):
        now = now.trained(number)
        if number + 1 in plan.rounds:
            yield number + 1, now.predictor(number + 1)


def _errors(predictor: Predictor, held: Ratings) -> np.ndarray:
    """Differences from the ratings, in stars, after clipping to the grid."""
    with np.errstate(over="ignore", invalid="ignore"):
        predicted = predictor.pairs(held.users, held.items)
    if np.isnan(predicted).any():
        raise InputError("predictions must be numbers; lower the learning rate, factors grow without bound")
    return np.clip(predicted, held.levels[0], held.levels[-1]) - held.values


def _mae(error: np.ndarray) -> float:
    return float(np.abs(error).mean())


def _rmse(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def _failed(task: Training, error: Exception) -> list[Row]:
    return [failed_row(task.columns(), error, "mae", verdict="")]


EXPERIMENT = Experiment(settled, cells_of, Procedure(only_ratings, _measure, _failed))
run = EXPERIMENT.run
