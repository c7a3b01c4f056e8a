"""What a comparison runs, and its cells: of each defense its leakage, its cost, and its ranking quality."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from audit.code_identity import code_used
from audit.experiments.applicability import obstacle_of
from audit.experiments.encryption import encrypts
from audit.experiments.grid import Cell
from audit.experiments.naming import cell_path, content_of
from audit.experiments.results import Row
from audit.factories import attackers_of
from audit.registry import entry, recorded_name
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker

ADVERSARIES = ("server", "server+client", "decrypter", "eavesdropper", "item-server")
PEERS = ("neighbour:0", "neighbours:0,1,2", "helper", "eavesdropper")  # where there is no server
Question = Literal["leakage", "cost", "quality"]


@dataclass(frozen=True)
class Comparison:
    """What to compare."""

    # as ``none``, ``laplace:b=2``, ``unrated-sampling:rho=1+paillier`` or ``privmvmf``
    defenses: tuple[str, ...]
    victim: str = "fedmvmf"
    data: str = "synthetic"
    update: str = ""  # empty: the victim's first update, and include-unrated where it has that
    weighting: str = ""  # empty: the victim's first update, and include-unrated where it has that
    adversaries: tuple[str, ...] = ()  # empty: ``usual_adversaries``
    # what is tried on every defense; empty: what the victim and each defense say adapts to them
    attacks: tuple[str, ...] = ()
    # rounds that the adversary watches, counted from 0; empty: as many from the first as the adapted attacks
    # of any of the defenses use, the same for all
    rounds: tuple[int, ...] = ()
    users: int = 120  # clients to record where nothing is encrypted; else all are, for the sums are of all
    trained: int = 50  # rounds of training before the ranking is measured
    runs: int = 3  # seeds of the ranking
    seed: int = 0
    victim_options: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """All options of the victim."""
        return {**self.victim_options, "update": self.update, "weighting": self.weighting}


def usual_adversaries(victim: str) -> tuple[str, ...]:
    """Choose whose views are tried where nobody is named."""
    return PEERS if entry("victims", victim).serverless else ADVERSARIES


def adapted(comparison: Comparison, defense: str) -> tuple[Attacker, ...]:
    """List the attacks that one defense meets."""
    declared = attackers_of(comparison.victim, comparison.options, defense)
    if not comparison.attacks:
        return declared
    rounds = {attacker.name: attacker.rounds for attacker in declared}
    return tuple(Attacker(name, rounds.get(name, 1)) for name in comparison.attacks)


@dataclass(frozen=True)
class Asked:
    """The task of a cell: a question about a defense; ``run`` numbers the seeds of the ranking."""

    comparison: Comparison
    defense: str
    question: Question
    run: int = 0

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return self.comparison.seed + self.run

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        plan = self.comparison
        return {
            "victim": recorded_name(plan.victim),
            "update": plan.update,
            "weighting": plan.weighting,
            "data": plan.data,
            "defense": self.defense,
            "seed": self.seed,
        }


def cells_of(comparison: Comparison, ratings: Ratings, directory: Path) -> list[Cell[Asked]]:
    """List the cells of a comparison."""
    content = content_of(ratings)
    tasks = [
        task
        for defense in comparison.defenses
        for task in (
            Asked(comparison, defense, "leakage"),
            Asked(comparison, defense, "cost"),
            *(Asked(comparison, defense, "quality", run) for run in range(comparison.runs)),
        )
    ]
    obstacles = {
        defense: obstacle_of(comparison.victim, comparison.options, defense)
        for defense in comparison.defenses
    }
    return [replace(_cell(task, content, directory), obstacle=obstacles[task.defense]) for task in tasks]


def _cell(task: Asked, content: str, directory: Path) -> Cell[Asked]:
    readable = "".join(c if c.isalnum() or c in "-.=" else "_" for c in task.defense)[:60]
    path = cell_path(directory, f"{readable}-{task.question}-{task.run}", _identity(task, content))
    sealed = " encrypted" if encrypts(task.defense) else ""
    kind = f"{task.comparison.victim} on {task.comparison.data}: {task.question}{sealed}"
    if task.question != "leakage":
        return Cell(task, path, kind=kind)
    # the rows of attacks that ended are kept beside the recordings
    return Cell(task, path, (directory / "leakage" / path.stem / "transcripts",), kind, resumable=True)


def _identity(task: Asked, content: str) -> dict[str, Any]:
    """Everything that determines the rows: of the plan what the question depends on."""
    plan = task.comparison
    irrelevant: dict[str, Any] = {"defenses": (), "runs": 0, "data": ""}
    if task.question != "quality":
        irrelevant |= {"trained": 0}
    if task.question != "leakage":
        irrelevant |= {"adversaries": (), "attacks": (), "rounds": (), "users": 0}
    attacks = [attacker.name for attacker in adapted(plan, task.defense)]
    return {
        "code": code_used(plan.victim, [task.defense], attacks),
        "plan": replace(plan, **irrelevant).__dict__,
        "ratings": content,
        "cell": (task.defense, task.question, task.run),
    }
