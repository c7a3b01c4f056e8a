"""Accuracy against noise scale and against rounds watched: the grid behind ``factorleak sweep``.

One recording per scenario and scale, of as many rounds as the longest watch. The server is trained without
the noise, so that all scales show the same factors and only what the adversary reads differs (as in paper
000, section 6.2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from audit.experiments.answers import answered
from audit.experiments.experiment import Experiment
from audit.experiments.grid import Cell, Procedure, Say
from audit.experiments.metric_rows import failed_row, metric_rows
from audit.experiments.plan_rules import (
    ANY_NAMES,
    CLIENTS,
    N_ROUNDS,
    NAME,
    NAMES,
    OPTIONS,
    OPTIONS_OF_ATTACKS,
    ROUND,
    SEED,
    TEXT,
    each_once,
    refuse_idle_options,
    refuse_too_many,
)
from audit.experiments.recordings import recorded, sampled
from audit.experiments.results import Row
from audit.experiments.scenarios import scenarios
from audit.experiments.sweep_cells import PUBLISHED, Sweep, Watch, cells_of
from audit.factories import make_attack
from audit.registry import entry
from audit.scoring.ceiling import ceilings, computable
from audit.scoring.truth import Truth
from defenses.accounting.ranges import usable_or_0
from victims.common.validation import each, require_fields
from victims.data.ratings import Ratings
from victims.transcript.view import View

__all__ = ["EXPERIMENT", "Sweep", "run", "settled"]


class Seen(NamedTuple):
    """What the server sees of a recording, and the truth beside it."""

    view: View
    truth: Truth


def settled(sweep: Sweep) -> Sweep:
    """Choose the scenarios of a sweep and the options of the paper's procedure."""
    _check_values(sweep)
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
                make_attack(sweep.attack_of(name, update, weighting), sweep.attack_options.get(name))
            sweep.victim_of(update, weighting)
    return sweep


def _check_values(sweep: Sweep) -> None:
    require_fields(
        sweep,
        "a sweep",
        victim=NAME,
        data=TEXT,
        updates=ANY_NAMES,
        weightings=ANY_NAMES,
        attacks=NAMES,
        scales=each(usable_or_0()),
        rounds=each(N_ROUNDS),
        first=ROUND,
        users=CLIENTS,
        sample=CLIENTS,
        seed=SEED,
        victim_options=OPTIONS,
        attack_options=OPTIONS_OF_ATTACKS,
    )


def _record(cell: Cell[Watch], ratings: Ratings, say: Say) -> Seen:
    """Record a scenario, of as many rounds as the longest watch."""
    sweep, noise = cell.task.sweep, cell.task.noise
    say(f"{noise.label}: recording")
    recording = recorded(
        cell.scratch[0],
        sweep.victim_of(noise.update, noise.weighting),
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


EXPERIMENT = Experiment(settled, cells_of, Procedure(_record, _measure, _failed))
run = EXPERIMENT.run
