"""What a campaign runs, and its cells: one attack on one scenario of a victim each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.code_identity import code_used
from audit.experiments.applicability import obstacle_of
from audit.experiments.grid import Cell
from audit.experiments.naming import cell_path, content_of, digest
from audit.experiments.recordings import files_of
from audit.experiments.results import Row
from audit.factories import attackers_of, make_victim
from audit.registry import entry, recorded_name
from victims.data.ratings import Ratings
from victims.protocols.base import Victim


def usual_attacks(
    victim: str, options: dict[str, Any] | None = None, defenses: Sequence[str] = ()
) -> tuple[str, ...]:
    """Choose the attacks where none is named: those that adapt to the victim and its defenses."""
    text = "+".join(defenses) or "none"
    return (*(one.name for one in attackers_of(victim, options or {}, text)), "guess-majority")


@dataclass(frozen=True)
class Campaign:
    """What to run."""

    victim: str = "fedmvmf"
    data: str = "synthetic"  # as given to ``--data``; part of the results
    updates: tuple[str, ...] = ()  # scenarios are their product; empty: all that the victim has
    weightings: tuple[str, ...] = ()  # scenarios are their product; empty: all that the victim has
    attacks: tuple[str, ...] = ()  # empty: those that adapt to the victim and its defenses, and a guess
    rounds: tuple[int, ...] = (4, 5)  # rounds that the adversary watches, counted from 0
    adversary: str = "server"
    seed: int = 0  # of the victim's start, the samples and the attacks
    sample: int = 20  # clients for attacks that solve client by client
    users: int | None = None  # clients to record; None records all
    # as ``laplace:scale=2``, applied in this order; the server trains on what it receives
    defenses: tuple[str, ...] = ()
    victim_options: dict[str, Any] = field(default_factory=dict)
    attack_options: dict[str, dict[str, Any]] = field(default_factory=dict)  # attack -> its options
    exhaustive: bool = True  # attack also where every question of an attack is answered

    @property
    def scenarios(self) -> list[tuple[str, str]]:
        """Updates and weightings, in the order of the results."""
        return [(update, weighting) for update in self.updates for weighting in self.weightings]

    def victim_of(self, update: str, weighting: str) -> Victim:
        """Make the victim of a scenario."""
        options = {**self.victim_options, "update": update, "weighting": weighting}
        return make_victim(self.victim, options)


@dataclass(frozen=True)
class AttackedScenario:
    """The task of a cell."""

    campaign: Campaign
    update: str  # the scenario
    weighting: str  # the scenario
    attack: str

    @property
    def scenario(self) -> str:
        """The scenario's name."""
        return f"{self.update}/{self.weighting}"

    @property
    def options(self) -> dict[str, Any]:
        """Options of the attack."""
        return self.campaign.attack_options.get(self.attack, {})

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        campaign = self.campaign
        return {
            "victim": recorded_name(campaign.victim),
            "update": self.update,
            "weighting": self.weighting,
            "data": campaign.data,
            "defense": "+".join(campaign.defenses) or "none",
            "adversary": campaign.adversary,
            "attack": self.attack,
            "rounds": len(campaign.rounds),
            "seed": campaign.seed,
        }


def cells_of(campaign: Campaign, ratings: Ratings, directory: Path) -> list[Cell[AttackedScenario]]:
    """List the cells of a campaign; those of one scenario share its recording."""
    cells, content = [], content_of(ratings)
    for update, weighting in campaign.scenarios:
        recording = _recording_identity(campaign, content, update, weighting)
        options = {**campaign.victim_options, "update": update, "weighting": weighting}
        obstacle = obstacle_of(campaign.victim, options, "+".join(campaign.defenses) or "none")
        files = files_of(directory / "transcripts" / f"{update}-{weighting}-{digest(recording)}")
        for attack in campaign.attacks:
            identity = {**recording, **_attack_identity(campaign, attack)}
            path = cell_path(directory, f"{update}-{weighting}-{attack}", identity)
            task = AttackedScenario(campaign, update, weighting, attack)
            cells.append(Cell(task, path, files, resumable=True, obstacle=obstacle))
    return cells


def _recording_identity(campaign: Campaign, content: str, update: str, weighting: str) -> dict[str, Any]:
    """Everything that determines the recording; the ratings by their content."""
    return {
        "code": code_used(campaign.victim, campaign.defenses),
        "victim": campaign.victim,
        "options": campaign.victim_options,
        "update": update,
        "weighting": weighting,
        "ratings": content,
        "rounds": campaign.rounds,
        "users": campaign.users,
        "defenses": campaign.defenses,
        "seed": campaign.seed,
    }


def _attack_identity(campaign: Campaign, attack: str) -> dict[str, Any]:
    """Everything else that determines the rows of an attack on it."""
    return {
        "data": campaign.data,
        "attack": attack,
        "attack_code": code_used(campaign.victim, attacks=[attack]),
        "attack_options": campaign.attack_options.get(attack, {}),
        "adversary": campaign.adversary,
        "sample": campaign.sample if entry("attacks", attack).per_client else None,
    }
