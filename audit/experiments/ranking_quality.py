"""Ranking quality of a system with and without encryption, over seeds: paper 000, Table 4."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from audit.experiments.encryption import standing_in, without_encryption
from audit.experiments.grid import Cell, Procedure, Report, Say, only_ratings, refuse, silent
from audit.experiments.results import Row
from audit.experiments.runner import run_grid
from audit.factories import make_defenses, make_victim
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.evaluation.ranking import EXISTING, PAPER, SCENARIOS, Cut, case, measure, popular
from victims.protocols.base import Victim

System = Literal["encrypted", "plain", "popularity"]
SYSTEMS: tuple[System, ...] = ("encrypted", "plain", "popularity")


@dataclass(frozen=True)
class Plan:
    """What to train and rank.

    Attributes
    ----------
    defense : str
        With encryption last; without it the plain system is the same as the encrypted one.
    rounds, runs, seed : int
    split : str
        How ratings of existing users are held out: a rule of ``victims.data.splits``.
    scenarios : tuple of str
        See ``victims.evaluation.ranking``.
    cut : Cut
        Length of the lists, and which ratings are relevant.
    """

    victim: str = "fedmvmf"
    update: str = "semi-als"
    weighting: str = "include-unrated"
    defense: str = "privmvmf"
    rounds: int = 200
    runs: int = 5
    scenarios: tuple[str, ...] = SCENARIOS
    cut: Cut = PAPER
    seed: int = 0
    split: str = "random"
    victim_options: dict[str, Any] = field(default_factory=dict)

    def made_victim(self) -> Victim:
        """Make the victim."""
        options = {**self.victim_options, "update": self.update, "weighting": self.weighting}
        return make_victim(self.victim, options)


@dataclass(frozen=True)
class Ranking:
    """The task of a cell: a system in a scenario; ``run`` numbers the seeds."""

    plan: Plan
    scenario: str
    run: int
    system: System


def run(plan: Plan, ratings: Ratings, *, jobs: int = -1, report: Report = silent) -> list[Row]:
    """Train and rank every system.

    Parameters
    ----------
    plan : Plan
    ratings : Ratings
    jobs : int
        Parallel processes; -1 is one per core.
    report : callable
        Called with (cells done, cells in all, what is going on).

    Returns
    -------
    list of dict
        One row per scenario, run, system, reading and metric.

    Raises
    ------
    InputError
        If a name is unknown, or the victim cannot rank for a scenario.
    """
    plan.made_victim()
    make_defenses(plan.defense)
    for scenario in plan.scenarios:
        if scenario not in SCENARIOS:
            raise InputError(f"scenario must be one of {', '.join(SCENARIOS)}, got {scenario!r}")
    if plan.split != "random" and EXISTING not in plan.scenarios:
        raise InputError(f"--split {plan.split} is about {EXISTING} users; new ones and items are drawn")
    if EXISTING in plan.scenarios:
        case(
            EXISTING, ratings, plan.seed, plan.split
        )  # what the ratings do not allow is told before training
    cells = [
        Cell(Ranking(plan, scenario, run, system))
        for scenario in plan.scenarios
        for run in range(plan.runs)
        for system in SYSTEMS
    ]
    return run_grid(cells, PROCEDURE, ratings, jobs=jobs, report=report)


def _measure(cell: Cell[Ranking], ratings: Ratings, say: Say) -> list[Row]:
    task = cell.task
    plan, seed = task.plan, task.plan.seed + task.run
    chosen = case(task.scenario, ratings, seed, plan.split)
    if task.system == "popularity":
        found = popular(chosen, seed, plan.cut)
    else:
        text = standing_in(plan.defense) or "none"
        defenses = make_defenses(text if task.system == "encrypted" else without_encryption(text))
        found = measure(
            plan.made_victim(), chosen, rounds=plan.rounds, defenses=defenses, seed=seed, cut=plan.cut
        )
    return [
        {
            "scenario": task.scenario,
            "run": task.run,
            "system": task.system,
            "reading": reading,
            "metric": name,
            "value": value,
        }
        for reading, values in found.items()
        for name, value in zip(values._fields, values, strict=True)
    ]


PROCEDURE = Procedure(only_ratings, _measure, refuse)
