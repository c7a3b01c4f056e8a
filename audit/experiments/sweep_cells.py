"""What a sweep runs, and its cells: one attack on one watch of a scenario under one scale of noise each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.code_identity import code_used
from audit.experiments.grid import Cell
from audit.experiments.naming import cell_path, content_of, digest
from audit.experiments.recordings import files_of
from audit.experiments.results import Row
from audit.factories import make_victim
from audit.registry import recorded_name
from victims.data.ratings import Ratings
from victims.protocols.base import Victim

PUBLISHED = "published"  # stands among attacks for the solver that paper 000 chose for a scenario
CHOSEN = {  # its Table 6, whose "scalar Jacobian approximation" cites the method of df-sane
    ("semi-als", "observed-only"): "root-hybr",
    ("semi-als", "include-unrated"): "root-df-sane",
    ("sgd", "observed-only"): "root-anderson",
    ("sgd", "include-unrated"): "root-hybr",
}


@dataclass(frozen=True)
class Sweep:
    """What to run."""

    victim: str = "fedmvmf"
    data: str = "synthetic"
    updates: tuple[str, ...] = ()  # scenarios are their product; empty: all that the victim has
    weightings: tuple[str, ...] = ()  # scenarios are their product; empty: all that the victim has
    attacks: tuple[str, ...] = ("likelihood", PUBLISHED)
    scales: tuple[float, ...] = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # laplace scales b; 0 is no noise
    rounds: tuple[int, ...] = (1, 5, 20)  # numbers of consecutive rounds that the adversary watches
    first: int = 4  # the first of them, counted from 0
    users: int = 120  # clients to record; all of them take part in the training
    sample: int = 20  # clients for attacks that solve client by client
    seed: int = 0
    # ``published`` takes ten solutions, as the paper does, unless they are among its options
    victim_options: dict[str, Any] = field(default_factory=dict)
    # ``published`` takes ten solutions, as the paper does, unless they are among its options
    attack_options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def victim_of(self, update: str, weighting: str) -> Victim:
        """Make the victim of a scenario."""
        options = {**self.victim_options, "update": update, "weighting": weighting}
        return make_victim(self.victim, options)

    def attack_of(self, name: str, update: str, weighting: str) -> str:
        """What a name among the attacks stands for in a scenario; of another paper's victim, for hybr."""
        if name != PUBLISHED:
            return name
        chosen = CHOSEN if recorded_name(self.victim) == "fedmvmf" else {}
        return chosen.get((update, weighting), "root-hybr")

    def as_named(self, rows: Sequence[Row]) -> list[Row]:
        """Rows with ``published`` as the attack where that, and no name of its own, asked for the solver."""
        return [
            {**row, "attack": PUBLISHED}
            if row["attack"] not in self.attacks
            and row["attack"] == self.attack_of(PUBLISHED, str(row["update"]), str(row["weighting"]))
            else row
            for row in rows
        ]


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
        return self.sweep.attack_of(self.named, self.noise.update, self.noise.weighting)

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
    attacks = [sweep.attack_of(name, noise.update, noise.weighting) for name in sweep.attacks]
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
