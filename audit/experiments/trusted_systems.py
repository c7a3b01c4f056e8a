"""The systems of paper 004's comparison: each trains on one split and is measured after some rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from audit.experiments.trusted_plan import IMPLICIT_PMF, VICTIM, Training
from audit.factories import make_victim
from victims.data.ratings import Ratings
from victims.evaluation.feedback_quality import hits, popularity, unit_rmse, unit_values
from victims.evaluation.feedback_split import FeedbackSplit
from victims.evaluation.implicit_pmf import implicit_pmf
from victims.evaluation.references import (
    PACKAGES,
    gaussian_pmf,
    svd_plus_plus,
    version_of,
    weighted_factorisation,
)
from victims.evaluation.traffic import traffic
from victims.training import start


def trained(task: Training, split: FeedbackSplit) -> list[tuple[int, dict[str, float]]]:
    """Train a system and measure it."""
    return SOLVERS.get(task.system, _victim)(task, split)


def baselines_of(task: Training, split: FeedbackSplit) -> dict[str, float]:
    """Measure the constant mean of the training, and popularity."""
    mean = unit_values(split.train.explicit, task.plan.rating_map).mean()
    test = split.test.explicit
    constant = unit_rmse(np.full(test.n_ratings, mean), test, task.plan.rating_map)
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
    victim = make_victim(task.system, plan.options(task.system, task.factors, task.point))
    trained, found = start(victim, split.train.both, (), task.seed), []
    for number in range(plan.rounds):
        sent = traffic(victim, trained.state, split.train.both)  # type: ignore[arg-type]
        trained = trained.trained(number)
        if number + 1 in task.measured():
            predictor: Any = trained.predictor(number + 1)
            values = {"rmse_unit": unit_rmse(predictor.unit(test.users, test.items), test, plan.rating_map)}
            if task.system == VICTIM:  # as (19) is printed, beside what training fits
                plain = replace(predictor, with_offsets=False).unit(test.users, test.items)
                values["rmse_unit_users"] = unit_rmse(plain, test, plan.rating_map)
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
    train, test, rating_map = split.train.explicit, split.test.explicit, task.plan.rating_map
    predict = fit(train, unit_values(train, rating_map), task.factors, task.seed)
    return [(0, {"rmse_unit": unit_rmse(predict(test), test, rating_map)})]


def _svd(task: Training, split: FeedbackSplit) -> list[tuple[int, dict[str, float]]]:
    return _explicit(svd_plus_plus, task, split)


def _gaussian(task: Training, split: FeedbackSplit) -> list[tuple[int, dict[str, float]]]:
    return _explicit(gaussian_pmf, task, split)


SOLVERS = {IMPLICIT_PMF: _implicit, "wrmf": _weighted, "svd++": _svd, "gaussian-pmf": _gaussian}
