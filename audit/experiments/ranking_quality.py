"""Ranking quality of a system with and without encryption, over seeds: paper 000, Table 4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from audit.experiments.cells import KilledError, in_processes
from audit.experiments.compare import standing_in
from audit.registry import make_defenses, make_victim
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.evaluation.ranking import SCENARIOS, case, measure, popular

SYSTEMS = ("encrypted", "plain", "popularity")


@dataclass(frozen=True)
class Plan:
    """What to train and rank.

    Attributes
    ----------
    defense : str
        With encryption last; without it the plain system is the same as the encrypted one.
    rounds, runs, seed : int
    scenarios : tuple of str
        See ``victims.evaluation.ranking``.
    """

    victim: str = "fedmvmf"
    update: str = "semi-als"
    weighting: str = "include-unrated"
    defense: str = "privmvmf"
    rounds: int = 200
    runs: int = 5
    scenarios: tuple[str, ...] = SCENARIOS
    seed: int = 0
    victim_options: dict[str, Any] = field(default_factory=dict)


def run(
    plan: Plan,
    ratings: Ratings,
    *,
    jobs: int = -1,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """One row per scenario, run, system, reading and metric.

    Raises
    ------
    InputError
        If a name is unknown, or the victim cannot rank for a scenario.
    """
    make_victim(plan.victim, _options(plan))
    make_defenses(plan.defense)
    for scenario in plan.scenarios:
        if scenario not in SCENARIOS:
            raise InputError(f"scenario must be one of {', '.join(SCENARIOS)}, got {scenario!r}")
    tasks = [
        (scenario, number, system)
        for scenario in plan.scenarios
        for number in range(plan.runs)
        for system in SYSTEMS
    ]
    found: dict[int, list[dict[str, Any]]] = {}
    report(0, len(tasks))
    for place, rows in in_processes(partial(_one, plan, ratings), tasks, jobs):
        if isinstance(rows, KilledError):
            raise rows
        found[place] = rows
        report(len(found), len(tasks))
    return [row for place in range(len(tasks)) for row in found[place]]


def _options(plan: Plan) -> dict[str, Any]:
    return {**plan.victim_options, "update": plan.update, "weighting": plan.weighting}


def _one(plan: Plan, ratings: Ratings, task: tuple[str, int, str]) -> list[dict[str, Any]]:
    scenario, number, system = task
    seed = plan.seed + number
    chosen = case(scenario, ratings, seed)
    if system == "popularity":
        found = popular(chosen, seed)
    else:
        defenses = make_defenses(standing_in(plan.defense) or "none")
        if system == "plain":
            defenses = [defense for defense in defenses if defense.name != "paillier"]
        victim: Any = make_victim(plan.victim, _options(plan))
        found = measure(victim, chosen, rounds=plan.rounds, defenses=defenses, seed=seed)
    return [
        {
            "scenario": scenario,
            "run": number,
            "system": system,
            "reading": reading,
            "metric": name,
            "value": value,
        }
        for reading, values in found.items()
        for name, value in zip(values._fields, values, strict=True)
    ]
