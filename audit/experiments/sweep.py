"""Accuracy against noise scale and against rounds watched: the grid behind ``factorleak sweep``.

One recording per scenario and scale, of as many rounds as the longest watch. The server is trained without
the noise, so that all scales show the same factors and only what the adversary reads differs (as in paper
000, section 6.2). Cells run in parallel processes; a finished one is kept (``audit.experiments.cells``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from audit.experiments.answers import answered
from audit.experiments.campaign import UPDATES, WEIGHTINGS
from audit.experiments.cells import content_of, digest, failed_row, metric_rows, run_cells
from audit.experiments.results import Row
from audit.registry import code_used, entry, make_attack, make_defense, make_victim
from audit.scoring.ceiling import ceilings, computable
from audit.scoring.score import Ceiling
from audit.scoring.truth import Truth, read_truth
from victims.common.errors import InputError
from victims.common.files import remove, unfinished
from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, each, require_fields
from victims.data.ratings import Ratings
from victims.recording import record
from victims.transcript.reader import open_transcript
from victims.transcript.view import View
from victims.transcript.writer import truth_path

PAPER = "root-hybr"  # with several solutions it is the paper's procedure
INSTEAD = "root-anderson"  # without a dense Jacobian: the paper's solver where there are many unknowns


@dataclass(frozen=True)
class Sweep:
    """What to run.

    Attributes
    ----------
    victim, data : str
    updates, weightings : tuple of str
        Scenarios are their product.
    attacks : tuple of str
    scales : tuple of float
        Laplace scales b; 0 is no noise.
    rounds : tuple of int
        Numbers of consecutive rounds that the adversary watches.
    first : int
        The first of them, counted from 0.
    users : int
        Clients to record; all of them take part in the training.
    sample : int
        Clients for attacks that solve client by client.
    seed : int
    victim_options, attack_options : dict
    """

    victim: str = "fedmvmf"
    data: str = "synthetic"
    updates: tuple[str, ...] = UPDATES
    weightings: tuple[str, ...] = WEIGHTINGS
    attacks: tuple[str, ...] = ("likelihood", PAPER)
    scales: tuple[float, ...] = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    rounds: tuple[int, ...] = (1, 5, 20)
    first: int = 4
    users: int = 120
    sample: int = 20
    seed: int = 0
    victim_options: dict[str, Any] = field(default_factory=dict)
    attack_options: dict[str, dict[str, Any]] = field(default_factory=lambda: {PAPER: {"solutions": "10"}})


def run(
    sweep: Sweep,
    ratings: Ratings,
    directory: Path,
    *,
    jobs: int = -1,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Run every cell that is not there yet and write the result files.

    Parameters
    ----------
    sweep : Sweep
    ratings : Ratings
    directory : Path
        Created if missing.
    jobs : int
        Parallel processes; -1 is one per core.
    report : callable
        Called with (cells done, cells in all).

    Returns
    -------
    list of dict
        All rows, in the order of the grid.
    """
    _check(sweep)
    content = content_of(ratings)
    cells = [
        _Cell(sweep, directory, update, weighting, scale, content)
        for update in sweep.updates
        for weighting in sweep.weightings
        for scale in sweep.scales
    ]
    return run_cells(cells, _run_cell, ratings, directory, jobs, report)


def _check(sweep: Sweep) -> None:
    """A misspelt name must not cost the work before it."""
    require_fields(sweep, "a sweep", scales=each(at_least(0)), rounds=each(at_least(1)), first=at_least(0))
    for name in sweep.attacks:
        make_attack(name, sweep.attack_options.get(name))
    for update in sweep.updates:
        for weighting in sweep.weightings:
            make_victim(sweep.victim, {**sweep.victim_options, "update": update, "weighting": weighting})


@dataclass(frozen=True)
class _Cell:
    """All attacks and watches of one scenario at one scale."""

    sweep: Sweep
    directory: Path
    update: str
    weighting: str
    scale: float
    content: str

    @property
    def defense(self) -> str:
        return f"laplace:scale={self.scale:g}"

    @property
    def name(self) -> str:
        sweep = replace(self.sweep, updates=(), weightings=(), scales=())
        identity = {
            "code": code_used(sweep.victim, attacks=(*sweep.attacks, INSTEAD)),
            "sweep": repr(sweep),
            "ratings": self.content,
            "scenario": (self.update, self.weighting, self.scale),
        }
        return f"{self.update}-{self.weighting}-{self.scale:g}-{digest(identity)}"

    @property
    def path(self) -> Path:
        return self.directory / "cells" / f"{self.name}.json"

    def shared(self, attack: str, rounds: int) -> Row:
        """The columns that all rows of an attack have in common."""
        sweep = self.sweep
        return {
            "victim": sweep.victim,
            "update": self.update,
            "weighting": self.weighting,
            "data": sweep.data,
            "defense": self.defense,
            "adversary": "server",
            "attack": attack,
            "rounds": rounds,
            "seed": sweep.seed,
        }

    @property
    def scratch(self) -> tuple[Path, ...]:
        """Its recording, and the truth beside it."""
        recording = self.directory / "transcripts" / self.name
        return recording, truth_path(recording)

    def failed(self, error: Exception) -> list[Row]:
        """Its rows where it could not be finished."""
        plan = self.sweep
        return [failed_row(self.shared(name, t), error) for t in plan.rounds for name in plan.attacks]


def _run_cell(cell: _Cell, ratings: Ratings) -> list[Row]:
    with ExitStack() as stack:
        for path in cell.scratch:
            remove(path)
            stack.enter_context(unfinished(path))
        try:
            view, truth = _recorded(cell, ratings, cell.scratch[0])
        except InputError as error:  # training diverged, say
            return cell.failed(error)
        return _rows_of(cell, view, truth)


def _rows_of(cell: _Cell, view: View, truth: Truth) -> list[Row]:
    sweep = cell.sweep
    rows: list[Row] = []
    for rounds in sweep.rounds:
        watched = view.during(np.arange(sweep.first, sweep.first + rounds))
        for name in sweep.attacks:
            found = _attacked(cell, name, rounds, watched, truth)
            if name == PAPER and found[0]["status"] == "not applicable" and INSTEAD not in sweep.attacks:
                other = _attacked(cell, INSTEAD, rounds, watched, truth)
                found += [row for row in other if row["status"] != "not applicable"]
            rows += found
    return rows


def _recorded(cell: _Cell, ratings: Ratings, path: Path) -> tuple[View, Truth]:
    sweep = cell.sweep
    options = {**sweep.victim_options, "update": cell.update, "weighting": cell.weighting}
    users = np.arange(ratings.n_users)
    if sweep.users < users.size:
        users = generator(sweep.seed, Purpose.RECORDED_CLIENTS).choice(users, sweep.users, replace=False)
    record(
        make_victim(sweep.victim, options),
        ratings,
        path,
        rounds=range(sweep.first, sweep.first + max(sweep.rounds)),
        users=users,
        defenses=[make_defense(cell.defense)] if cell.scale > 0 else [],
        train_on_received=False,
        seed=sweep.seed,
    )
    return open_transcript(path).view("server"), read_truth(truth_path(path))


def _attacked(cell: _Cell, name: str, rounds: int, view: View, truth: Truth) -> list[Row]:
    sweep, shared = cell.sweep, cell.shared(name, rounds)
    try:
        if entry("attacks", name).per_client and view.users.size > sweep.sample:
            rng = generator(sweep.seed, Purpose.ATTACKED_CLIENTS)
            view = view.select(rng.choice(view.users, sweep.sample, replace=False))
        options = dict(sweep.attack_options.get(name if name in sweep.attacks else PAPER, {}))
        if entry("attacks", name).per_client:
            options["jobs"] = "1"  # the cells are what runs in parallel
        found = answered(name, options, view, sweep.seed)
        limits: dict[str, Ceiling] | None = None
        if cell.scale > 0 and computable(view):
            limits = ceilings(view, truth)
        return metric_rows(shared, found, view.manifest, truth, ceilings=limits)
    except InputError:
        raise
    except Exception as error:  # a failed cell is a row with its reason, never a missing row
        return [failed_row(shared, error)]
