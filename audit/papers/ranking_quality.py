"""Ranking quality of a system with and without encryption, over seeds: Mai & Pang 2022, Table 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from audit.code_identity import code_used
from audit.experiments.cells import Cell, Procedure, Say, cell_path, content_of, only_ratings
from audit.experiments.options import check, each_once
from audit.experiments.results import Row, make_row
from audit.experiments.rows import failed_row
from audit.experiments.runner import Experiment
from audit.experiments.scenarios import obstacle_of, one_scenario, standing_in, without_encryption
from audit.factories import make_defenses, make_victim
from audit.papers.plans import Quality
from audit.registry import recorded_name
from victims.common.errors import InputError
from victims.common.validation import Rule, each, one_of, require
from victims.data.ratings import Ratings
from victims.data.subsets import refuse_unknown_rule
from victims.evaluation.ranking import (
    EXISTING,
    PAPER,
    READINGS,
    SCENARIOS,
    Cut,
    case,
    fold_in_obstacle,
    popular,
    ranked,
    readings_of,
    trained,
)
from victims.evaluation.rating_error import errors, why_poor
from victims.protocols.base import Victim
from victims.training import as_read

System = Literal["encrypted", "plain"]
SYSTEMS: tuple[System, ...] = ("encrypted", "plain")
POPULARITY = "popularity"
THING = "a quality plan"
CUT = Rule("the length of lists and the smallest relevant rating", lambda cut: isinstance(cut, Cut))
ERROR = "rmse"  # of existing users


def victim_of(plan: Quality) -> Victim:
    """Make the victim."""
    options = {**plan.victim_options, "update": plan.update, "weighting": plan.weighting}
    return make_victim(plan.victim, options)


@dataclass(frozen=True)
class Ranking:
    """The task of a cell: a system in a scenario; ``run`` numbers the seeds."""

    plan: Quality
    scenario: str
    run: int
    system: System

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return self.plan.seed + self.run

    @property
    def defense(self) -> str:
        """What protects the system."""
        return self.plan.defense if self.system == "encrypted" else without_encryption(self.plan.defense)

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        plan = self.plan
        return {
            "victim": recorded_name(plan.victim),
            "update": plan.update,
            "weighting": plan.weighting,
            "data": plan.data,
            "defense": self.defense,
            "rounds": plan.rounds,
            "seed": self.seed,
        }

    def beside(self, reading: str, measure: str) -> Row:
        """What the rows of this command have beside the columns of all."""
        return {
            "scenario": self.scenario,
            "run": self.run,
            "system": self.system,
            "reading": reading,
            "measure": measure,
        }


def settled(plan: Quality) -> Quality:
    """Choose the scenario of the victim, and check every name."""
    check(plan, THING)
    chosen = one_scenario(plan.victim, plan.update, plan.weighting, plan.victim_options)
    plan = replace(
        plan,
        update=chosen.update,
        weighting=chosen.weighting,
        victim_options=chosen.options,
        scenarios=each_once(plan.scenarios) or SCENARIOS,
        cut=plan.cut or PAPER,
    )
    require(THING, "scenarios", plan.scenarios, each(one_of(*SCENARIOS)))
    require(THING, "cut", plan.cut, CUT)
    victim_of(plan)
    make_defenses(plan.defense)
    refuse_unknown_rule(plan.split)
    if plan.split != "random" and EXISTING not in plan.scenarios:
        raise InputError(f"--split {plan.split} is about {EXISTING} users; new ones and items are drawn")
    return plan


def cells_of(plan: Quality, ratings: Ratings, directory: Path) -> list[Cell[Ranking]]:
    """List the cells of a plan."""
    if EXISTING in plan.scenarios:
        case(EXISTING, ratings, plan.seed, plan.split)  # what they do not allow is told before training
    content = content_of(ratings)
    obstacles = {
        (scenario, system): _obstacle(Ranking(plan, scenario, 0, system))
        for scenario in plan.scenarios
        for system in SYSTEMS
    }
    return [
        replace(
            _cell(Ranking(plan, scenario, run, system), content, directory),
            obstacle=obstacles[scenario, system],
        )
        for scenario in plan.scenarios
        for run in range(plan.runs)
        for system in SYSTEMS
    ]


def with_popularity(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Give popularity rows of its own, as a third system; cells that failed are left out."""
    cells: dict[tuple[str, int], dict[str, list[Row]]] = {}
    for row in rows:
        if row["status"] != "ran" or row["baseline_name"] != POPULARITY:
            continue
        systems = cells.setdefault((row["scenario"], row["run"]), {})
        where = {"scenario": row["scenario"], "run": row["run"]}
        what = {"reading": row["reading"], "metric": row["measure"]}
        systems.setdefault(row["system"], []).append(
            {**where, "system": row["system"], **what, "value": row["value"]}
        )
        if row["system"] == SYSTEMS[-1]:
            systems.setdefault(POPULARITY, []).append(
                {**where, "system": POPULARITY, **what, "value": row["baseline"]}
            )
    return [row for systems in cells.values() for some in systems.values() for row in some]


def _cell(task: Ranking, content: str, directory: Path) -> Cell[Ranking]:
    plan = task.plan
    identity = {
        "code": code_used(plan.victim, [task.defense]),
        "plan": {**asdict(plan), "runs": 0, "scenarios": (), "seed": task.seed},
        "cell": (task.scenario, task.run, task.system),
        "ratings": content,
    }
    label = f"{task.scenario.replace(' ', '-')}-{task.system}-{task.run}"
    return Cell(task, cell_path(directory, label, identity))


def _obstacle(task: Ranking) -> str:
    plan = task.plan
    options = {**plan.victim_options, "update": plan.update, "weighting": plan.weighting}
    return fold_in_obstacle(victim_of(plan), task.scenario) or obstacle_of(plan.victim, options, task.defense)


def _measure(cell: Cell[Ranking], ratings: Ratings, say: Say) -> list[Row]:
    task = cell.task
    plan = task.plan
    victim = victim_of(plan)
    readings = readings_of(victim)
    chosen = case(task.scenario, as_read(victim, ratings), task.seed, plan.split)
    defenses = make_defenses(
        standing_in(task.defense) or "none" if task.system == "encrypted" else task.defense
    )
    run = trained(victim, chosen, rounds=plan.rounds, defenses=defenses, seed=task.seed)
    found, guesses = ranked(run, chosen, plan.cut), popular(chosen, task.seed, plan.cut)
    rows = [
        make_row(
            **task.columns(),
            metric=_metric(task.scenario, reading, name, plan.cut.k),
            value=value,
            baseline=guess,
            baseline_name=POPULARITY,
            status="ran",
        )
        | task.beside(reading, name)
        for reading in readings
        for name, value, guess in zip(found[reading]._fields, found[reading], guesses[reading], strict=True)
    ]
    if task.scenario != EXISTING or READINGS[0] not in readings:
        return rows
    own, mean = errors(run, chosen.train, chosen.test)
    error = make_row(
        **task.columns(),
        metric=ERROR,
        value=own,
        baseline=mean,
        baseline_name="training mean",
        status="ran",
        reason=why_poor(own, mean, victim.capabilities.centralised),
    )
    return [*rows, error | task.beside(READINGS[0], ERROR)]


def _metric(scenario: str, reading: str, name: str, k: int) -> str:
    """A name that tells scenario and reading; what comparisons measure is called as there, ``ndcg_at_10``."""
    short = f"{name}_at_{k}"
    return (
        short if (scenario, reading) == (EXISTING, READINGS[0]) else f"{short}, {scenario}, {reading} items"
    )


def _failed(task: Ranking, error: Exception) -> list[Row]:
    return [failed_row(task.columns(), error, "quality", verdict="") | task.beside("", "")]


EXPERIMENT = Experiment(settled, cells_of, Procedure(only_ratings, _measure, _failed))
run = EXPERIMENT.run
