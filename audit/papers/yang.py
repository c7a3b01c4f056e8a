"""Prediction and recommendation among users who trust each other, over seeds: Yang et al. 2022.

Behind ``papers predict --victim dpmf-yang``: Table 4 and Figures 4 to 6. A cell trains one system once on
70 % of the records and measures RMSE in units of 0..1, P@5 and R@5 in both universes
(``audit.papers.feedback``), and what is sent in a round, beside the constant mean and
popularity. References come from other people's packages; where one is not installed its cell is a row with
the reason.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from audit.code_identity import code_used
from audit.experiments.cells import Cell, Procedure, Say, cell_path, content_of
from audit.experiments.options import check, each_once, refuse_said_elsewhere, refuse_too_many
from audit.experiments.results import Row, make_row
from audit.experiments.rows import failed_row
from audit.experiments.runner import Experiment
from audit.factories import make_victim
from audit.papers.feedback import (
    FeedbackSplit,
    feedback_split,
    gaussian_pmf,
    hits,
    implicit_pmf,
    popularity,
    svd_plus_plus,
    traffic,
    unit_rmse,
    unit_values,
    version_of,
    weighted_factorisation,
)
from audit.papers.plans import PACKAGES, TRUSTED_SYSTEMS, TRUSTED_VARIED, TrustedPlan
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.data.subsets import of_users
from victims.training import start

THING = "a prediction with dpmf-yang"
VARYING = {
    "weights": {"implicit_weight": "vary", "negative_weight": "vary"},
    "degree": {"degree": "vary"},
}  # what varies -> options of the victim that it sets
HELD_OUT = 0.3  # section 4.1.2: of the records


def settled(plan: TrustedPlan) -> TrustedPlan:
    """Choose the systems of a plan, and check every name in it."""
    check(plan, THING)
    refuse_said_elsewhere(THING, plan.victim_options, factors="factors", **VARYING.get(plan.vary, {}))
    plan = replace(
        plan,
        systems=each_once(plan.systems) or (TRUSTED_SYSTEMS if plan.vary == "nothing" else (VICTIM,)),
        factors=each_once(map(int, plan.factors)) or FACTORS,
    )
    points = TRUSTED_VARIED[plan.vary]
    refuse_too_many(THING, factors=plan.factors, points=points, methods=plan.systems, runs=range(plan.runs))
    for system in plan.systems:
        if plan.vary != "nothing" and system not in (VICTIM, DMF):
            raise InputError(f"--vary {plan.vary} is of {VICTIM} and {DMF}, got {system}; leave it out")
    for factors in plan.factors:
        for point in points:
            make_victim(VICTIM, options_of(plan, VICTIM, factors, point))
    return plan


def cells_of(plan: TrustedPlan, ratings: Ratings, directory: Path) -> list[Cell[Training]]:
    """List the cells of a plan."""
    feedback_split(ratings, HELD_OUT, SHARE, plan.seed)
    trust = hashlib.sha256(np.ascontiguousarray(ratings.trust).tobytes()).hexdigest()[:16]
    content = f"{content_of(ratings)} {trust}"
    return [
        _cell(Training(plan, system, factors, point, run, ratings.n_users), content, directory)
        for factors in plan.factors
        for point in TRUSTED_VARIED[plan.vary]
        for system in plan.systems
        for run in range(plan.runs)
    ]


def _cell(task: Training, content: str, directory: Path) -> Cell[Training]:
    identity = {
        "code": code_used(VICTIM),
        "ratings": content,
        "system": task.system,
        "options": task.options,
        "factors": task.factors,
        "setting": task.setting,
        "rating_map": task.rating_map,
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


VICTIM, DMF, IMPLICIT_PMF = "dpmf-yang", "dmf", "implicit-pmf"
FACTORS = (3, 6, 12)
ROUNDS = (1, 2, 5, 10, 20, 50, 100, 200)
SHARE = 0.5  # section 4.1.2: of both parts of the split, as implicit feedback
SHARED = ("degree", "fallback", "rating_map")  # options that DMF has from the victim


def options_of(plan: TrustedPlan, system: str, factors: int, point: Any) -> dict[str, Any]:
    """Options of a victim at one point; empty for what is none."""
    if system not in (VICTIM, DMF):
        return {}
    given = plan.victim_options
    if system == DMF:
        given = {name: value for name, value in given.items() if name in SHARED}
        given |= {"positive_share": str(SHARE)}
    if plan.vary == "weights":
        given = {**given, "implicit_weight": str(point[0]), "negative_weight": str(point[1])}
    if plan.vary == "degree":
        given = {**given, "degree": str(point)}
    return {**given, "factors": str(factors)}


@dataclass(frozen=True)
class Training:
    """The task of a cell: a system at one point; ``run`` numbers the seeds."""

    plan: TrustedPlan
    system: str
    factors: int
    point: Any
    run: int
    n_users: int

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return self.plan.seed + self.run

    @property
    def options(self) -> dict[str, Any]:
        """Options of the victim."""
        return options_of(self.plan, self.system, self.factors, self.point)

    @property
    def rating_map(self) -> Any:
        """How ratings are scaled."""
        return self.plan.victim_options.get("rating_map", "max")

    @property
    def setting(self) -> str:
        """What is varied, in words."""
        vary, point = self.plan.vary, self.point
        if vary == "weights":
            return f" lambda={point[0]:g} W={point[1]:g}"
        return "" if vary == "nothing" else f" {vary}={point:g}"

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        said = "".join(f" {name}={value}" for name, value in sorted(self.plan.victim_options.items()))
        return {
            "victim": f"{self.system} K={self.factors}{self.setting}",
            "update": "sgd",
            "weighting": "observed-only",
            "data": f"{self.plan.data}{said}",
            "defense": "none",
            "seed": self.seed,
            "n_users": self.n_users,
        }

    def measured(self) -> list[int]:
        """Rounds after which to measure."""
        last = self.plan.rounds
        return sorted({n for n in ROUNDS if n < last} | {last}) if self.plan.vary == "nothing" else [last]


def trained(task: Training, split: FeedbackSplit) -> list[tuple[int, dict[str, float]]]:
    """Train a system and measure it."""
    return SOLVERS.get(task.system, _victim)(task, split)


def baselines_of(task: Training, split: FeedbackSplit) -> dict[str, float]:
    """Measure the constant mean of the training, and popularity."""
    mean = unit_values(split.train.explicit, task.rating_map).mean()
    test = split.test.explicit
    constant = unit_rmse(np.full(test.n_ratings, mean), test, task.rating_map)
    return {"rmse_unit": constant, **popularity(split, task.seed)}


def is_missing(system: str) -> bool:
    """Tell whether a reference's package is not installed."""
    return system in PACKAGES and version_of(system) is None


def headline(system: str) -> str:
    """Name the metric of a row that says why a system was not measured."""
    return "precision_at_5_all" if system in (IMPLICIT_PMF, "wrmf") else "rmse_unit"


def _victim(task: Training, split: FeedbackSplit) -> list[tuple[int, dict[str, float]]]:
    """``dpmf-yang`` and ``dmf``, after some of the rounds."""
    plan, test = task.plan, split.test.explicit
    victim = make_victim(task.system, task.options)
    trained, found = start(victim, split.train.both, (), task.seed), []
    for number in range(plan.rounds):
        sent = traffic(victim, trained.state, split.train.both)  # type: ignore[arg-type]
        trained = trained.trained(number)
        if number + 1 in task.measured():
            predictor: Any = trained.predictor(number + 1)
            values = {"rmse_unit": unit_rmse(predictor.unit(test.users, test.items), test, task.rating_map)}
            if task.system == VICTIM:  # as (19) is printed, beside what training fits
                plain = replace(predictor, with_offsets=False).unit(test.users, test.items)
                values["rmse_unit_users"] = unit_rmse(plain, test, task.rating_map)
            values |= hits(split, predictor.scores)
            values |= {f"{name}_per_round": float(value) for name, value in sent._asdict().items()}
            found.append((number + 1, values))
    return found


def _implicit(task: Training, split: FeedbackSplit) -> list[tuple[int, dict[str, float]]]:
    weight = float(task.plan.victim_options.get("negative_weight", 0.5))
    fitted = implicit_pmf(
        split.train.implicit, split.train.both, task.factors, negative_weight=weight, seed=task.seed
    )
    return [(0, hits(split, fitted.scores))]


def _weighted(task: Training, split: FeedbackSplit) -> list[tuple[int, dict[str, float]]]:
    return [(0, hits(split, weighted_factorisation(split.train.implicit, task.factors, task.seed).scores))]


def _explicit(
    fit: Callable[..., Callable[[Ratings], np.ndarray]], task: Training, split: FeedbackSplit
) -> list[tuple[int, dict[str, float]]]:
    train, test, rating_map = split.train.explicit, split.test.explicit, task.rating_map
    predict = fit(train, unit_values(train, rating_map), task.factors, task.seed)
    return [(0, {"rmse_unit": unit_rmse(predict(test), test, rating_map)})]


SOLVERS: dict[str, Callable[[Training, FeedbackSplit], list[tuple[int, dict[str, float]]]]] = {
    IMPLICIT_PMF: _implicit,
    "wrmf": _weighted,
    "svd++": partial(_explicit, svd_plus_plus),
    "gaussian-pmf": partial(_explicit, gaussian_pmf),
}
