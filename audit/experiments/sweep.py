"""Accuracy against noise scale and against rounds watched: the grid behind ``factorleak sweep``.

One recording per scenario and scale, of as many rounds as the longest watch. The server is trained without
the noise, so that all scales show the same factors and only what the adversary reads differs (as in paper
000, section 6.2).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from audit.experiments.answers import answered
from audit.experiments.cluster import Cluster
from audit.experiments.grid import Cell, Procedure, Report, Say, silent
from audit.experiments.metric_rows import failed_row, metric_rows
from audit.experiments.naming import content_of
from audit.experiments.recordings import recorded, sampled
from audit.experiments.results import Row
from audit.experiments.runner import run_grid
from audit.experiments.sweep_cells import INSTEAD, PAPER, Sweep, Watch, cells_of
from audit.factories import make_attack
from audit.registry import entry
from audit.scoring.ceiling import ceilings, computable
from audit.scoring.truth import Truth
from victims.common.validation import at_least, each, require_fields
from victims.data.ratings import Ratings
from victims.transcript.view import View

__all__ = ["INSTEAD", "PAPER", "Sweep", "run"]


class Seen(NamedTuple):
    """What the server sees of a recording, and the truth beside it."""

    view: View
    truth: Truth


def run(
    sweep: Sweep, ratings: Ratings, directory: Path, *, jobs: int | Cluster = -1, report: Report = silent
) -> list[Row]:
    """Run every cell that is not there yet and write the result files.

    Parameters
    ----------
    sweep : Sweep
    ratings : Ratings
    directory : Path
        Created if missing.
    jobs : int or Cluster
        Parallel processes; -1 is one per core. Or workers that may be on other machines.
    report : callable
        Called with (cells done, cells in all, what is going on).

    Returns
    -------
    list of dict
        All rows, in the order of the grid.

    Raises
    ------
    InputError
        If a name or number is wrong.
    OutputError
        If something cannot be written.
    """
    _check(sweep)
    cells = cells_of(sweep, content_of(ratings), directory)
    return run_grid(cells, PROCEDURE, ratings, directory, jobs=jobs, report=report)


def _check(sweep: Sweep) -> None:
    """A misspelt name must not cost the work before it."""
    require_fields(sweep, "a sweep", scales=each(at_least(0)), rounds=each(at_least(1)), first=at_least(0))
    for name in sweep.attacks:
        make_attack(name, sweep.attack_options.get(name))
    for update in sweep.updates:
        for weighting in sweep.weightings:
            sweep.victim_of(update, weighting)


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
    """The rows of an attack, and of one that stands in for the paper's where that one does not apply."""
    task = cell.task
    say(f"{task.noise.label}: {task.attack}, rounds watched: {task.rounds}")
    rows = _attacked(task, task.attack, seen)
    if task.attack == PAPER and rows[0]["status"] == "not applicable" and INSTEAD not in task.sweep.attacks:
        others = _attacked(task, INSTEAD, seen)
        rows += [row for row in others if row["status"] != "not applicable"]
    return rows


def _attacked(task: Watch, attack: str, seen: Seen) -> list[Row]:
    sweep = task.sweep
    view = seen.view.during(np.arange(sweep.first, sweep.first + task.rounds))
    view = sampled(view, attack, sweep.sample, sweep.seed)
    options = dict(sweep.attack_options.get(attack if attack in sweep.attacks else PAPER, {}))
    if entry("attacks", attack).per_client:
        options["jobs"] = "1"  # the cells are what runs in parallel
    answer = answered(attack, options, view, sweep.seed)
    limits = ceilings(view, seen.truth) if task.noise.scale > 0 and computable(view) else None
    return metric_rows(task.columns(attack), answer, view.manifest, seen.truth, ceilings=limits)


def _failed(task: Watch, error: Exception) -> list[Row]:
    return [failed_row(task.columns(task.attack), error)]


PROCEDURE = Procedure(_record, _measure, _failed)
