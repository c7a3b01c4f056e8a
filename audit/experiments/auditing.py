"""Run a victim in its scenarios, attack it, score the answers: behind ``factorleak audit``.

A cell is one attack on one scenario; cells of one scenario share its recording.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

from audit.code_identity import code_used
from audit.experiments.applicability import obstacle_of
from audit.experiments.attack_rows import Attempt, rows_of
from audit.experiments.cache import cell_path, content_of, digest
from audit.experiments.cluster import Cluster
from audit.experiments.grid import Cell, Found, Procedure, Report, Say, refuse_if_none_applies, silent
from audit.experiments.hints import uploads_name_lists
from audit.experiments.ladder import by_cost, is_exhaustive, not_needed
from audit.experiments.options import check
from audit.experiments.plan import Audit
from audit.experiments.plan_rules import SECONDS, each_once, refuse_idle_options
from audit.experiments.recordings import Recorded, files_of, recorded
from audit.experiments.results import Row
from audit.experiments.rows import failed_row
from audit.experiments.runner import Experiment, run_grid
from audit.experiments.scenarios import scenarios
from audit.factories import attackers_of, make_attack, make_defenses, make_victim
from audit.registry import entry, recorded_name
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable, write_text
from victims.common.validation import or_none, require
from victims.data.ratings import Ratings
from victims.protocols.base import Victim
from victims.recording import manifest_of
from victims.transcript.adversaries import ADVERSARIES, CLIENT, NEIGHBOUR, NEIGHBOURS

PACKAGES = ("factorleak", "numpy", "scipy", "jax")  # whose versions are kept beside the results
NO_SERVER = (
    "Clients send to each other here, and nothing to a server: --adversary neighbour:0 is what client 0 "
    "sees, helper and eavesdropper are others."
)


@dataclass(frozen=True)
class AttackedScenario:
    """The task of a cell."""

    plan: Audit
    update: str
    weighting: str
    attack: str

    @property
    def scenario(self) -> str:
        """The scenario's name."""
        return f"{self.update}/{self.weighting}"

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        plan = self.plan
        return {
            "victim": recorded_name(plan.victim),
            "update": self.update,
            "weighting": self.weighting,
            "data": plan.data,
            "defense": "+".join(plan.defenses) or "none",
            "adversary": plan.adversary,
            "attack": self.attack,
            "rounds": len(plan.rounds),
            "seed": plan.seed,
        }


@dataclass(frozen=True)
class Audited:
    """What an audit found."""

    plan: Audit  # settled
    ratings: Ratings
    rows: list[Row]  # with the columns of ``results.json``
    lists_open: bool  # whether uploads name the rated items where unrated ones have no weight
    hint: str  # whose view to ask for where there is no server; empty where that is so already
    seconds: float

    @property
    def victims(self) -> list[Victim]:
        """The victim of each scenario."""
        return [victim_of(self.plan, *scenario) for scenario in self.plan.scenarios]


def usual_attacks(
    victim: str, options: dict[str, Any] | None = None, defenses: Sequence[str] = ()
) -> tuple[str, ...]:
    """Choose the attacks where none is named: those that adapt to the victim and its defenses."""
    text = "+".join(defenses) or "none"
    return (*(one.name for one in attackers_of(victim, options or {}, text)), "guess-majority")


def victim_of(plan: Audit, update: str, weighting: str) -> Victim:
    """Make the victim of a scenario."""
    return make_victim(plan.victim, {**plan.victim_options, "update": update, "weighting": weighting})


def settled(plan: Audit) -> Audit:
    """Choose scenarios and attacks where none are named, and check every name."""
    check(plan, "an audit")
    grid = scenarios(plan.victim, plan.updates, plan.weightings, plan.victim_options)
    exhaustive = is_exhaustive(plan.exhaustive, plan.attacks, plan.attack_options)
    attacks = each_once(plan.attacks)
    if not attacks:
        first = {**grid.options, "update": grid.updates[0], "weighting": grid.weightings[0]}
        attacks = usual_attacks(plan.victim, first, plan.defenses)
        attacks = attacks if exhaustive else by_cost(attacks)
    plan = replace(
        plan,
        updates=grid.updates,
        weightings=grid.weightings,
        victim_options=grid.options,
        attacks=attacks,
        rounds=tuple(sorted(set(map(int, plan.rounds)))),
        exhaustive=exhaustive,
    )
    for name in plan.attacks:  # a misspelt name must not cost the work before it
        make_attack(name, plan.attack_options.get(name))
    refuse_idle_options(plan.attack_options, plan.attacks)
    check_adversary(plan.adversary)
    check_numbered(plan.adversary)
    for text in plan.defenses:
        make_defenses(text)
    for scenario in plan.scenarios:
        victim_of(plan, *scenario)
    return plan


def check_adversary(name: str) -> None:
    """Refuse an adversary that no recording has."""
    if name not in ADVERSARIES and not name.startswith((CLIENT, NEIGHBOUR, NEIGHBOURS)):
        raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {name!r}")


def check_numbered(adversary: str) -> None:
    """Refuse clients who are not named by their numbers: a recording of our own has no other names."""
    who, colon, numbers = adversary.partition(":")
    many = numbers.split(",") if f"{who}:" == NEIGHBOURS else [numbers]
    if colon and not all(one.isascii() and one.isdigit() and len(one) < 10 for one in many):
        raise InputError(
            f"adversary {who} must be clients by their numbers, as {who}:0, got {adversary!r:.80}"
        )


def cells_of(plan: Audit, ratings: Ratings, directory: Path) -> list[Cell[AttackedScenario]]:
    """List the cells of an audit; those of one scenario share its recording."""
    cells, content = [], content_of(ratings)
    for update, weighting in plan.scenarios:
        recording = {
            "code": code_used(plan.victim, plan.defenses),
            "victim": plan.victim,
            "options": plan.victim_options,
            "update": update,
            "weighting": weighting,
            "ratings": content,
            "rounds": plan.rounds,
            "users": plan.users,
            "defenses": plan.defenses,
            "seed": plan.seed,
        }
        options = {**plan.victim_options, "update": update, "weighting": weighting}
        obstacle = obstacle_of(plan.victim, options, "+".join(plan.defenses) or "none")
        files = files_of(directory / "transcripts" / f"{update}-{weighting}-{digest(recording)}")
        for attack in plan.attacks:
            identity = {**recording, **_attack_identity(plan, attack)}
            path = cell_path(directory, f"{update}-{weighting}-{attack}", identity)
            task = AttackedScenario(plan, update, weighting, attack)
            cells.append(Cell(task, path, files, resumable=True, obstacle=obstacle))
    return cells


def _attack_identity(plan: Audit, attack: str) -> dict[str, Any]:
    """Everything but the recording that determines the rows of an attack on it."""
    return {
        "data": plan.data,
        "attack": attack,
        "attack_code": code_used(plan.victim, attacks=[attack]),
        "attack_options": plan.attack_options.get(attack, {}),
        "adversary": plan.adversary,
        "sample": plan.sample if entry("attacks", attack).per_client else None,
    }


def _record(cell: Cell[AttackedScenario], ratings: Ratings, say: Say) -> Recorded:
    """Record the scenario of a cell, unless it was recorded before."""
    task, plan = cell.task, cell.task.plan
    say(f"{task.scenario}: recording")
    return recorded(
        cell.scratch[0],
        victim_of(plan, task.update, task.weighting),
        ratings,
        rounds=plan.rounds,
        users=plan.users,
        defenses=plan.defenses,
        seed=plan.seed,
    )


def _measure(cell: Cell[AttackedScenario], recording: Recorded, say: Say) -> list[Row]:
    task, plan = cell.task, cell.task.plan
    attempt = Attempt(
        task.attack,
        plan.adversary,
        plan.attack_options.get(task.attack, {}),
        plan.sample,
        plan.seed,
        f"{task.scenario}: {task.attack}",
        of_sample=plan.users is not None,
    )
    transcript, truth = recording
    return rows_of(attempt, task.columns(), transcript, truth, say, with_ceilings=bool(plan.defenses))


def _failed(task: AttackedScenario, error: Exception) -> list[Row]:
    return [failed_row(task.columns(), error)]


def _unneeded(task: AttackedScenario, rows: Sequence[Row]) -> str:
    return "" if task.plan.exhaustive else not_needed(task.attack, rows)


EXPERIMENT = Experiment(settled, cells_of, Procedure(_record, _measure, _failed, unneeded=_unneeded))


def run(
    plan: Audit,
    ratings: Ratings,
    directory: Path,
    *,
    keep_transcripts: bool = False,
    jobs: int | Cluster = 1,
    report: Report = silent,
    found: Found = silent,
    deadline: float | None = None,
) -> list[Row]:
    """Run every cell of a settled plan that is not there yet and write the result files."""
    cells = cells_of(plan, ratings, directory)
    refuse_if_none_applies(cells)  # before anything is written
    content = {
        **asdict(plan),
        "versions": {name: version(name) for name in PACKAGES},
        "code": code_used(plan.victim, plan.defenses, plan.attacks),
    }
    write_text(directory / "campaign.json", json.dumps(content, indent=1) + "\n")
    return run_grid(
        cells, EXPERIMENT.procedure, ratings, directory,
        jobs=jobs, keep_scratch=keep_transcripts, report=report, found=found, deadline=deadline,
    )  # fmt: skip


def audit(
    plan: Audit,
    load: Callable[[], Ratings],
    directory: Path,
    report: Report = silent,
    *,
    within: int | float | None = None,
    keep_transcripts: bool = False,
    jobs: int | Cluster = 1,
    found: Found = silent,
) -> Audited:
    """Audit by a settled plan; nothing is loaded before it is known that the results can be written.

    ``within`` is in seconds, after which what was not reached is NOT TESTED.
    """
    if within is not None and isinstance(jobs, Cluster):
        raise InputError(
            "--within bounds work in one process, not that of --distributed; leave one of them out"
        )
    if keep_transcripts and isinstance(jobs, Cluster):
        raise InputError(
            "--keep-transcripts needs recordings that are made here, and --distributed makes them on "
            "workers; leave one of them out"
        )
    require("an audit", "within", within, or_none(SECONDS), "the default is none")
    refuse_unwritable(directory)
    start = time.perf_counter()
    deadline = None if within is None else time.monotonic() + within
    ratings = load()
    rows = run(
        plan, ratings, directory,
        keep_transcripts=keep_transcripts, jobs=jobs, report=report, found=found, deadline=deadline,
    )  # fmt: skip
    first = victim_of(plan, *next(product(plan.updates, plan.weightings)))
    chosen = [defense for text in plan.defenses for defense in make_defenses(text)]
    lists_open = uploads_name_lists(manifest_of(first, ratings, list(plan.rounds)), chosen)
    serverless = entry("victims", plan.victim).serverless
    hint = NO_SERVER if serverless and plan.adversary == "server" else ""
    return Audited(plan, ratings, rows, lists_open, hint, time.perf_counter() - start)
