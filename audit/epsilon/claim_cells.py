"""Cells of ``audit.epsilon.claims``: a protocol, reading of the noise, largest budget, and how it is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.experiments.cells import digest, reason_of_failure
from audit.experiments.results import Row, make_row
from audit.registry import code_used, make_defenses, make_victim
from victims.data.ratings import Ratings
from victims.recording import record
from victims.training import Run, start
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

BOUND = "empirical_epsilon"  # the metric
PROTOCOLS = ("hdpmf", "pdpmf", "dpmf", "mf")
NOISES = ("once", "fresh", "composed")


@dataclass(frozen=True)
class Plan:
    """What to audit.

    Attributes
    ----------
    protocols, noises : tuple of str
    epsilons : tuple of float
        Largest budgets.
    data : str
        As given to ``--data``; the published split is looked for beside it.
    rounds : int
        Rounds that the recommender watches, from the first.
    epochs : int
        Of the whole training.
    repetitions : int
        Runs of the protocol in each of two worlds, for one client; 0 for none.
    seed : int
    victim_options : dict
    """

    protocols: tuple[str, ...] = PROTOCOLS
    noises: tuple[str, ...] = NOISES
    epsilons: tuple[float, ...] = (1.0,)
    data: str = "synthetic"
    rounds: int = 12
    epochs: int = 100
    repetitions: int = 0
    seed: int = 0
    victim_options: dict[str, Any] = field(default_factory=dict)

    @property
    def victim(self) -> dict[str, Any]:
        """Options of the victim."""
        return {**self.victim_options, "epochs": str(self.epochs)}


@dataclass(frozen=True)
class Cell:
    """One line of a plan: ``content`` names the ratings; ``repetitions`` 0 is the cell of planted ratings."""

    plan: Plan
    directory: Path
    content: str
    protocol: str
    noise: str
    epsilon: float
    repetitions: int

    @property
    def defense(self) -> str:
        """What protects the protocol."""
        if self.protocol == "mf":
            return "none"
        return f"{self.protocol}:noise={self.noise},epochs={self.plan.epochs},epsilon={self.epsilon:g}"

    @property
    def path(self) -> Path:
        """Where the rows are kept."""
        identity = {
            "code": code_used("mf", [self.defense]),
            "ratings": self.content,
            "defense": self.defense,
            "victim": self.plan.victim,
            "rounds": self.plan.rounds,
            "seed": self.plan.seed,
        }
        if self.repetitions:
            identity["repetitions"] = self.repetitions
        words = f"{self.protocol}-{self.noise}-{self.epsilon:g}{'-repeated' if self.repetitions else ''}"
        return self.directory / "cells" / f"{words}-{digest(identity)}.json"

    def shared(self, n_users: int) -> Row:
        """The columns that all rows have in common."""
        return {
            "victim": self.protocol,
            "update": "sgd",
            "weighting": "observed-only",
            "data": self.plan.data,
            "defense": self.defense,
            "seed": self.plan.seed,
            "n_users": n_users,
        }

    @property
    def scratch(self) -> tuple[Path, ...]:
        """Where it records one system after the other."""
        return (self.path.with_suffix(".parts"),)

    def failed(self, error: Exception, n_users: int = 0) -> list[Row]:
        """Its row where it could not be finished."""
        reason = reason_of_failure(error)
        return [make_row(**self.shared(n_users), metric=BOUND, status="failed", reason=reason)]


def trained(cell: Cell, ratings: Ratings, rounds: int) -> Run:
    """The system after some rounds."""
    plan = cell.plan
    victim = make_victim("mf", plan.victim)
    now = start(victim, ratings, make_defenses(cell.defense), plan.seed)
    for number in range(rounds):
        now = now.trained(number)
    return now


def recorded(cell: Cell, ratings: Ratings, folder: Path) -> View:
    """The recommender's view."""
    plan = cell.plan
    victim, defenses = make_victim("mf", plan.victim), make_defenses(cell.defense)
    record(victim, ratings, folder, rounds=range(plan.rounds), defenses=defenses, seed=plan.seed)
    return open_transcript(folder).view("server")
