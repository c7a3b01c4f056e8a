"""Prediction and recommendation among users who trust each other, over seeds: paper 004.

Behind ``factorleak predict --victim dpmf-yang``: Table 4 and Figures 4 to 6. A cell trains one system once on
70 % of the records and measures RMSE in units of 0..1, P@5 and R@5 in both universes
(``victims.evaluation.feedback_quality``), and what is sent in a round, beside the constant mean and
popularity. References come from other people's packages; where one is not installed its cell is a row with
the reason.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from audit.code_identity import code_used
from audit.experiments.experiment import Experiment
from audit.experiments.grid import Cell, Procedure, Say
from audit.experiments.metric_rows import failed_row
from audit.experiments.naming import cell_path, content_of
from audit.experiments.plan_rules import (
    FACTORS,
    N_ROUNDS,
    OPTIONS,
    RUNS,
    SEED,
    TEXT,
    each_once,
    refuse_said_elsewhere,
    refuse_too_many,
)
from audit.experiments.results import Row, make_row
from audit.experiments.trusted_plan import DMF, SHARE, SYSTEMS, VARIED, VICTIM, Training, TrustedPlan
from audit.experiments.trusted_systems import baselines_of, headline, is_missing, trained
from audit.factories import make_victim
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import each, one_of, require_fields
from victims.data.ratings import Ratings
from victims.data.subsets import of_users
from victims.evaluation.feedback_split import feedback_split
from victims.evaluation.references import PACKAGES, version_of

THING = "a prediction with dpmf-yang"
VARYING = {
    "weights": {"implicit_weight": "vary", "negative_weight": "vary"},
    "degree": {"degree": "vary"},
}  # what varies -> options of the victim that it sets
HELD_OUT = 0.3  # section 4.1.2: of the records


def settled(plan: TrustedPlan) -> TrustedPlan:
    """Choose the systems of a plan, and check every name in it."""
    require_fields(
        plan,
        THING,
        systems=each(one_of(*SYSTEMS), fewest=0),
        data=TEXT,
        factors=each(FACTORS),
        rounds=N_ROUNDS,
        runs=RUNS,
        seed=SEED,
        vary=one_of(*VARIED),
        victim_options=OPTIONS,
    )
    refuse_said_elsewhere(THING, plan.victim_options, factors="factors", **VARYING.get(plan.vary, {}))
    plan = replace(
        plan,
        systems=each_once(plan.systems) or (SYSTEMS if plan.vary == "nothing" else SYSTEMS[:1]),
        factors=each_once(map(int, plan.factors)),
    )
    refuse_too_many(
        THING, factors=plan.factors, points=VARIED[plan.vary], methods=plan.systems, runs=range(plan.runs)
    )
    for system in plan.systems:
        if plan.vary != "nothing" and system not in (VICTIM, DMF):
            raise InputError(f"--vary {plan.vary} is of {VICTIM} and {DMF}, got {system}; leave it out")
    for factors in plan.factors:
        for point in VARIED[plan.vary]:
            make_victim(VICTIM, plan.options(VICTIM, factors, point))
    return plan


def cells_of(plan: TrustedPlan, ratings: Ratings, directory: Path) -> list[Cell[Training]]:
    """List the cells of a plan."""
    feedback_split(ratings, HELD_OUT, SHARE, plan.seed)
    trust = hashlib.sha256(np.ascontiguousarray(ratings.trust).tobytes()).hexdigest()[:16]
    content = f"{content_of(ratings)} {trust}"
    return [
        _cell(Training(plan, system, factors, point, run, ratings.n_users), content, directory)
        for factors in plan.factors
        for point in VARIED[plan.vary]
        for system in plan.systems
        for run in range(plan.runs)
    ]


def _cell(task: Training, content: str, directory: Path) -> Cell[Training]:
    plan = task.plan
    identity = {
        "code": code_used(VICTIM),
        "ratings": content,
        "system": task.system,
        "options": plan.options(task.system, task.factors, task.point),
        "factors": task.factors,
        "setting": task.setting,
        "rating_map": plan.rating_map,
        "rounds": task.measured(),
        "package": version_of(task.system) if task.system in PACKAGES else None,
        "seed": task.seed,
    }
    label = f"{task.system}-{task.factors}{task.setting.replace(' ', '-')}-{task.run}"
    return Cell(task, cell_path(directory, label.replace("+", "p"), identity))


class Measured(NamedTuple):
    """What a cell's system does."""

    values: list[tuple[int, dict[str, float]]]
    baselines: dict[str, float]  # metric -> value of the constant mean, or of popularity
    n_users: int
    seconds: float


def _train(cell: Cell[Training], ratings: Ratings, say: Say) -> Measured:
    task = cell.task
    say(f"{task.system}, {task.factors} factors{task.setting}")
    if task.plan.vary == "users" and task.point < 1:
        n_users = max(round(task.point * ratings.n_users), 2)
        chosen = generator(task.seed, Purpose.GROWING_SUBSET).permutation(ratings.n_users)[:n_users]
        ratings = of_users(ratings, chosen)
    if is_missing(task.system):
        return Measured([], {}, ratings.n_users, 0.0)
    split = feedback_split(ratings, HELD_OUT, SHARE, task.seed)
    begin = time.perf_counter()
    values = trained(task, split)
    seconds = time.perf_counter() - begin
    return Measured(values, baselines_of(task, split), ratings.n_users, seconds)


def _measure(cell: Cell[Training], measured: Measured, say: Say) -> list[Row]:
    task = cell.task
    shared = replace(task, n_users=measured.n_users).columns()
    if is_missing(task.system):
        reason = f"{PACKAGES[task.system]} is not installed; run pip install 'factorleak[references]'"
        return [make_row(**shared, metric=headline(task.system), status="not applicable", reason=reason)]
    rows = []
    for rounds, values in measured.values:
        for name, value in values.items():
            baseline = measured.baselines.get(name.removesuffix("_users"), float("nan"))
            said = "" if np.isnan(baseline) else "training mean" if name.startswith("rmse") else "popularity"
            rows.append(
                make_row(
                    **shared,
                    rounds=rounds,
                    metric=name,
                    value=float(value),
                    baseline=baseline,
                    baseline_name=said,
                    status="ran",
                    seconds=measured.seconds,
                )
            )
    return rows


def _failed(task: Training, error: Exception) -> list[Row]:
    return [
        failed_row({**task.columns(), "rounds": task.plan.rounds}, error, headline(task.system), verdict="")
    ]


EXPERIMENT = Experiment(settled, cells_of, Procedure(_train, _measure, _failed))
run = EXPERIMENT.run
