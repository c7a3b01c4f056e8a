"""What ``factorleak predict`` trains and varies (paper 002: methods, factors, figures), checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from audit.experiments.plan_rules import (
    FACTORS,
    N_ROUNDS,
    NAME,
    NAMES,
    OPTIONS,
    RUNS,
    SEED,
    TEXT,
    each_once,
    refuse_said_elsewhere,
    refuse_too_many,
)
from audit.experiments.private_mf import VICTIM, system_of
from audit.factories import make_defenses, make_victim
from defenses.accounting.ranges import NOISES
from victims.common.errors import InputError
from victims.common.validation import (
    each,
    finite,
    flag,
    one_of,
    positive_share,
    require,
    require_fields,
    strictly_between,
)
from victims.data.movielens_files import published_split
from victims.data.ratings import Ratings
from victims.data.splits import refuse_unknown_rule, split_by
from victims.data.subsets import leave_out

METHODS = ("mf", "hdpmf", "pdpmf", "dpmf", "hdpmf-r")  # of the paper's tables
VARIED = {
    "nothing": (float("nan"),),
    "user_low": (0.1, 0.2, 0.3, 0.4),  # Figures 2 and 3
    "user_conservative": (0.1, 0.2, 0.3, 0.4, 0.54),  # Figures 4 and 5
    "fraction": (0.2, 0.4, 0.6, 0.8, 1.0),  # Figures 6 and 7
    "epsilon": (0.1, 0.3, 1.0, 3.0, 10.0),
}
OF_DATA = ("nothing", "fraction")  # what is no option of a defense
TESTED = 10  # ratings per user
NOWHERE = os.devnull  # a source without a published split
PAPER = "paper"  # how paper 002 holds ratings out


@dataclass(frozen=True)
class Plan:
    """What to train."""

    methods: tuple[str, ...] = METHODS  # names of ``audit.experiments.private_mf``
    data: str = "synthetic"  # as given to ``--data``; part of the results
    noise: str = "fresh"  # see ``defenses.noise.objective_noise``
    factors: tuple[int, ...] = (10, 5)
    epochs: int = 100
    runs: int = 5
    seed: int = 0
    vary: str = "nothing"  # A key of ``VARIED``
    points: tuple[float, ...] = ()  # values of it; empty: those of the paper's figures
    clip: bool = True  # whether predictions are clipped to the rating grid; the paper does not say
    victim_options: dict[str, Any] = field(default_factory=dict)
    # ``paper``: the published split, else ten ratings of each user (one where the fraction varies). Or a rule
    # of ``victims.data.splits``
    split: str = PAPER
    test_fraction: float = 0.2  # that ``random`` and ``time`` hold out
    weights: str = ""  # A file of privacy weights; empty: they are drawn from each run's seed
    # of the victim, as ``audit.experiments.prediction_tuning`` found them
    chosen: Mapping[tuple[str, int], dict[str, str]] = field(default_factory=dict)
    source: str = ""  # where the published split is looked for; empty: what ``data`` says

    @property
    def places(self) -> tuple[float, ...]:
        """The values that are tried."""
        return self.points or VARIED[self.vary]

    def held_out(self, ratings: Ratings, seed: int) -> tuple[Ratings, Ratings]:
        """Training and test ratings, before a share of the former is taken."""
        if self.split != PAPER:
            return split_by(self.split, ratings, self.test_fraction, seed)
        if self.vary == "fraction":
            return leave_out(ratings, 1, seed)
        return published_split(self.source or self.data, ratings) or leave_out(ratings, TESTED, seed)

    def defense(self, method: str, point: float) -> str:
        """What protects a method at one point."""
        options: dict[str, float | str] = {} if self.vary in OF_DATA else {self.vary: point}
        if self.weights:
            options["weights"] = self.weights
        return system_of(method).defense_text(self.noise, self.epochs, **options)

    def victim(self, factors: int, method: str) -> dict[str, Any]:
        """Options of the victim."""
        usual = {"order": "per-rating", "learning_rate": "0.005"}
        found = self.chosen.get((system_of(method).tuned_as, factors), {})
        return {**usual, **self.victim_options, **found, "factors": str(factors), "epochs": str(self.epochs)}


def settled(plan: Plan) -> Plan:
    """Check every name of a plan: a misspelt one must not cost the work before it."""
    _check_values(plan)
    refuse_said_elsewhere("a prediction", plan.victim_options, factors="factors", epochs="epochs")
    plan = replace(
        plan,
        methods=each_once(plan.methods),
        factors=each_once(map(int, plan.factors)),
        points=each_once(map(float, plan.points)),
    )
    refuse_too_many(
        "a prediction", factors=plan.factors, points=plan.places, methods=plan.methods, runs=range(plan.runs)
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
            require(
                "a prediction", "points", point, positive_share(), "they are shares of the training ratings"
            )
        for method in plan.methods:
            make_defenses(plan.defense(method, point))
    for factors in plan.factors:
        for method in plan.methods:
            make_victim(VICTIM, plan.victim(factors, method))
    return plan


def _check_values(plan: Plan) -> None:
    require_fields(
        plan,
        "a prediction",
        methods=NAMES,
        data=TEXT,
        noise=one_of(*NOISES),
        factors=each(FACTORS),
        epochs=N_ROUNDS,
        runs=RUNS,
        seed=SEED,
        vary=one_of(*VARIED),
        points=each(finite(), fewest=0),
        clip=flag(),
        split=NAME,
        test_fraction=strictly_between(0, 1),
        weights=TEXT,
        victim_options=OPTIONS,
    )
