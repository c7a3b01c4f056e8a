"""Cells of ``audit.epsilon.claims``: a protocol, a reading of the noise and a largest budget each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from audit.code_identity import FILE, code_used
from audit.experiments.grid import Cell
from audit.experiments.metric_rows import failed_row
from audit.experiments.naming import cell_path, content_of
from audit.experiments.plan import Claims
from audit.experiments.private_mf import NOWHERE, VICTIM, System, system_of
from audit.experiments.results import Row
from audit.factories import make_defenses, make_victim
from victims.common.errors import InputError
from victims.data.movielens_files import published_split
from victims.data.ratings import Ratings
from victims.recording import record
from victims.training import Run, start
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

BOUND = "empirical_epsilon"  # the metric
NO_NOISE = "none"  # of a protocol that nothing protects


@dataclass(frozen=True)
class Claim:
    """The task of a cell."""

    plan: Claims
    protocol: str
    noise: str
    epsilon: float  # largest budget
    repetitions: int  # 0 plants ratings instead
    n_users: int

    @property
    def system(self) -> System:
        """What the protocol is made of."""
        return system_of(self.protocol)

    @property
    def defense(self) -> str:
        """What protects the protocol."""
        return self.system.defense_text(self.noise, self.plan.epochs, epsilon=self.epsilon)

    def columns(self) -> Row:
        """Columns that all rows have in common."""
        return {
            "victim": self.protocol,
            "update": "sgd",
            "weighting": "observed-only",
            "data": self.plan.data,
            "defense": self.defense,
            "seed": self.plan.seed,
            "n_users": self.n_users,
        }

    def failed(self, error: Exception) -> list[Row]:
        """Make the row of a claim that could not be audited."""
        return [failed_row(self.columns(), error, BOUND, verdict="")]


def tasks_of(plan: Claims, n_users: int) -> list[Claim]:
    """List what a plan audits."""
    return [
        Claim(plan, protocol, noise, epsilon, repetitions, n_users)
        for epsilon in plan.epsilons
        for protocol in plan.protocols
        for noise in (plan.noises if system_of(protocol).is_private else (NO_NOISE,))
        for repetitions in ((0, plan.repetitions) if plan.repetitions and noise != NO_NOISE else (0,))
    ]


def cells_of(plan: Claims, ratings: Ratings, directory: Path) -> list[Cell[Claim]]:
    """List the cells of a plan."""
    if np.diff(ratings.indptr).min() < 1:
        raise InputError("every client must have a rating, for one of each is planted; drop the others")
    content = content_of(ratings)
    if published_split(plan.source or plan.data, ratings) is None:
        plan = replace(plan, source=NOWHERE)
    return [_cell(task, content, directory) for task in tasks_of(plan, ratings.n_users)]


def _cell(task: Claim, content: str, directory: Path) -> Cell[Claim]:
    """A cell with a folder for one recording after the other."""
    plan = task.plan
    identity = {
        "code": code_used(VICTIM, [task.defense]),
        "ratings": content,
        "defense": task.defense,
        "victim": plan.victim,
        "rounds": plan.rounds,
        "seed": plan.seed,
        "repetitions": task.repetitions,
    } | ({} if plan.bounds else {"bounds": False})
    repeated = "-repeated" if task.repetitions else ""
    protocol = task.protocol.replace(":", "-")
    path = cell_path(directory, f"{protocol}-{task.noise}-{task.epsilon:g}{repeated}", identity)
    reads_files = plan.source != NOWHERE or f"{FILE}=" in task.defense
    place = "here" if reads_files else "anywhere"
    return Cell(task, path, (path.with_suffix(".parts"),), place=place)  # type: ignore[arg-type]


def trained(claim: Claim, ratings: Ratings, rounds: int) -> Run:
    """Train the system of a claim."""
    plan = claim.plan
    run = start(make_victim(VICTIM, plan.victim), ratings, make_defenses(claim.defense), plan.seed)
    for round_ in range(rounds):
        run = run.trained(round_)
    return run


def recorded(claim: Claim, ratings: Ratings, folder: Path) -> View:
    """Record the system of a claim."""
    plan = claim.plan
    victim, defenses = make_victim(VICTIM, plan.victim), make_defenses(claim.defense)
    record(victim, ratings, folder, rounds=range(plan.rounds), defenses=defenses, seed=plan.seed)
    return open_transcript(folder).view("server")
