"""Accuracy against noise scale and against rounds watched: the grid behind ``factorleak sweep``.

One recording per scenario and scale, of as many rounds as the longest watch. The server is trained without
the noise, so that all scales show the same factors and only what the adversary reads differs (as in Mai &
Pang 2022, section 6.2). A cell is one attack on one watch of a scenario under one scale of noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from audit.code_identity import code_used
from audit.experiments.answers import answered
from audit.experiments.cache import cell_path, content_of, digest
from audit.experiments.grid import Cell, Procedure, Say
from audit.experiments.options import check
from audit.experiments.plan import PUBLISHED, Sweep
from audit.experiments.plan_rules import each_once, refuse_idle_options, refuse_too_many
from audit.experiments.recordings import files_of, recorded, sampled
from audit.experiments.results import Row
from audit.experiments.rows import failed_row, metric_rows
from audit.experiments.runner import Experiment
from audit.experiments.scenarios import scenarios
from audit.factories import make_attack, make_victim
from audit.registry import entry, recorded_name
from audit.scoring.decoder import ceilings, computable
from audit.scoring.truth import Truth
from victims.data.ratings import Ratings
from victims.protocols.base import Victim
from victims.transcript.view import View

CHOSEN = {  # its Table 6, whose "scalar Jacobian approximation" cites the method of df-sane
    ("semi-als", "observed-only"): "root-hybr",
    ("semi-als", "include-unrated"): "root-df-sane",
    ("sgd", "observed-only"): "root-anderson",
    ("sgd", "include-unrated"): "root-hybr",
}


class Seen(NamedTuple):
    """What the server sees of a recording, and the truth beside it."""

    view: View
    truth: Truth


@dataclass(frozen=True)
class Noise:
    """One scenario under noise of one scale."""

    update: str
    weighting: str
    scale: float

    @property
    def defense(self) -> str:
        """What the column ``defense`` says."""
        return f"laplace:scale={self.scale:g}"

    @property
    def label(self) -> str:
        """What a person recognizes it by."""
        return f"{self.update}-{self.weighting}-{self.scale:g}"


@dataclass(frozen=True)
class Watch:
    """The task of a cell: an attack, as the sweep names it, on a number of consecutive rounds."""

    sweep: Sweep
    noise: Noise
    rounds: int
    named: str

    @property
    def attack(self) -> str:
        """What runs."""
        return attack_of(self.sweep, self.named, self.noise.update, self.noise.weighting)

    @property
    def columns(self) -> Row:
        """Columns that all rows have in common."""
        return {
            "victim": recorded_name(self.sweep.victim),
            "update": self.noise.update,
            "weighting": self.noise.weighting,
            "data": self.sweep.data,
            "defense": self.noise.defense,
            "adversary": "server",
            "attack": self.attack,
            "rounds": self.rounds,
            "seed": self.sweep.seed,
        }


def victim_of(sweep: Sweep, update: str, weighting: str) -> Victim:
    """Make the victim of a scenario."""
    return make_victim(sweep.victim, {**sweep.victim_options, "update": update, "weighting": weighting})


def attack_of(sweep: Sweep, name: str, update: str, weighting: str) -> str:
    """What a name among the attacks stands for in a scenario; of another paper's victim, for hybr."""
    if name != PUBLISHED:
        return name
    chosen = CHOSEN if recorded_name(sweep.victim) == "fedmvmf" else {}
    return chosen.get((update, weighting), "root-hybr")


def as_named(sweep: Sweep, rows: Sequence[Row]) -> list[Row]:
    """Rows with ``published`` as the attack where that, and no name of its own, asked for the solver."""
    return [
        {**row, "attack": PUBLISHED}
        if row["attack"] not in sweep.attacks
        and row["attack"] == attack_of(sweep, PUBLISHED, str(row["update"]), str(row["weighting"]))
        else row
        for row in rows
    ]


def settled(sweep: Sweep) -> Sweep:
    """Choose the scenarios of a sweep and the options of the paper's procedure."""
    check(sweep, "a sweep")
    grid = scenarios(sweep.victim, sweep.updates, sweep.weightings, sweep.victim_options)
    options: dict[str, dict[str, Any]] = {}
    if PUBLISHED in sweep.attacks:
        options[PUBLISHED] = {"solutions": "10"}
    for name, values in sweep.attack_options.items():
        options.setdefault(name, {}).update(values)
    refuse_idle_options(options, sweep.attacks)
    sweep = replace(
        sweep,
        updates=grid.updates,
        weightings=grid.weightings,
        victim_options=grid.options,
        attack_options=options,
        attacks=each_once(sweep.attacks),
        scales=each_once(map(float, sweep.scales)),
        rounds=each_once(map(int, sweep.rounds)),
    )
    refuse_too_many(
        "a sweep",
        updates=sweep.updates,
        weightings=sweep.weightings,
        scales=sweep.scales,
        rounds=sweep.rounds,
        attacks=sweep.attacks,
    )
    for update in sweep.updates:
        for weighting in sweep.weightings:
            for name in sweep.attacks:
                make_attack(attack_of(sweep, name, update, weighting), sweep.attack_options.get(name))
            victim_of(sweep, update, weighting)
    return sweep


def _record(cell: Cell[Watch], ratings: Ratings, say: Say) -> Seen:
    """Record a scenario, of as many rounds as the longest watch."""
    sweep, noise = cell.task.sweep, cell.task.noise
    say(f"{noise.label}: recording")
    recording = recorded(
        cell.scratch[0],
        victim_of(sweep, noise.update, noise.weighting),
        ratings,
        rounds=range(sweep.first, sweep.first + max(sweep.rounds)),
        users=sweep.users,
        defenses=[noise.defense] if noise.scale > 0 else [],
        train_on_received=False,
        seed=sweep.seed,
    )
    return Seen(recording.transcript.view("server"), recording.truth)


def _measure(cell: Cell[Watch], seen: Seen, say: Say) -> list[Row]:
    task, attack = cell.task, cell.task.attack
    say(f"{task.noise.label}: {attack}, rounds watched: {task.rounds}")
    sweep = task.sweep
    view = seen.view.during(np.arange(sweep.first, sweep.first + task.rounds))
    view = sampled(view, attack, sweep.sample, sweep.seed)
    options = dict(sweep.attack_options.get(task.named, {}))
    if entry("attacks", attack).per_client:
        options["jobs"] = "1"  # the cells are what runs in parallel
    answer = answered(attack, options, view, sweep.seed)
    limits = ceilings(view, seen.truth) if task.noise.scale > 0 and computable(view) else None
    return metric_rows(task.columns, answer, view.manifest, seen.truth, ceilings=limits)


def _failed(task: Watch, error: Exception) -> list[Row]:
    return [failed_row(task.columns, error)]


def cells_of(sweep: Sweep, ratings: Ratings, directory: Path) -> list[Cell[Watch]]:
    """List the cells of a sweep; those of one scenario and scale share its recording."""
    content = content_of(ratings)
    noises = [
        Noise(update, weighting, scale)
        for update in sweep.updates
        for weighting in sweep.weightings
        for scale in sweep.scales
    ]
    return [cell for noise in noises for cell in _cells_under(noise, sweep, content, directory)]


def _cells_under(noise: Noise, sweep: Sweep, content: str, directory: Path) -> list[Cell[Watch]]:
    attacks = [attack_of(sweep, name, noise.update, noise.weighting) for name in sweep.attacks]
    identity = {
        "code": code_used(sweep.victim, attacks=attacks),
        "victim": (sweep.victim, sweep.victim_options),
        "ratings": content,
        "noise": noise,
        "rounds": (sweep.first, max(sweep.rounds)),
        "users": sweep.users,
        "seed": sweep.seed,
    }
    files = files_of(directory / "transcripts" / f"{noise.label}-{digest(identity)}")
    cells = []
    for rounds in sweep.rounds:
        for attack in sweep.attacks:
            watched = {
                "data": sweep.data,
                "attacks": sweep.attacks,
                "options": sweep.attack_options,
                "sample": sweep.sample,
                "watch": (rounds, attack),
            }
            path = cell_path(directory, f"{noise.label}-{rounds}-{attack}", {**identity, **watched})
            kind = f"{noise.update}/{noise.weighting}"
            cells.append(Cell(Watch(sweep, noise, rounds, attack), path, files, kind=kind))
    return cells


EXPERIMENT = Experiment(settled, cells_of, Procedure(_record, _measure, _failed))
run = EXPERIMENT.run
