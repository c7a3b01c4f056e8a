"""The rows of a campaign's cell: record the scenario, attack what the adversary sees, score the answer."""

from __future__ import annotations

from collections.abc import Sequence

from audit.experiments.attack_rows import Attempt, rows_of
from audit.experiments.campaign_cells import AttackedScenario
from audit.experiments.grid import Cell, Procedure, Say
from audit.experiments.ladder import not_needed
from audit.experiments.metric_rows import failed_row
from audit.experiments.recordings import Recorded, recorded
from audit.experiments.results import Row
from victims.data.ratings import Ratings


def record_scenario(cell: Cell[AttackedScenario], ratings: Ratings, say: Say) -> Recorded:
    """Record the scenario of a cell, unless it was recorded before."""
    task = cell.task
    campaign = task.campaign
    say(f"{task.scenario}: recording")
    return recorded(
        cell.scratch[0],
        campaign.victim_of(task.update, task.weighting),
        ratings,
        rounds=campaign.rounds,
        users=campaign.users,
        defenses=campaign.defenses,
        seed=campaign.seed,
    )


def attack_scenario(cell: Cell[AttackedScenario], recording: Recorded, say: Say) -> list[Row]:
    """Attack a recording, score the answer, and say how the attack fared."""
    task = cell.task
    campaign = task.campaign
    attempt = Attempt(
        task.attack,
        campaign.adversary,
        task.options,
        campaign.sample,
        campaign.seed,
        f"{task.scenario}: {task.attack}",
        of_sample=campaign.users is not None,
    )
    return rows_of(
        attempt,
        task.columns(),
        recording.transcript,
        recording.truth,
        say,
        with_ceilings=bool(campaign.defenses),
    )


def failed_scenario(task: AttackedScenario, error: Exception) -> list[Row]:
    """Make the row of an attack that failed, or whose scenario could not be recorded."""
    return [failed_row(task.columns(), error)]


def unneeded_scenario(task: AttackedScenario, rows: Sequence[Row]) -> str:
    """Say why an attack need not be run."""
    return "" if task.campaign.exhaustive else not_needed(task.attack, rows)


PROCEDURE = Procedure(record_scenario, attack_scenario, failed_scenario, unneeded=unneeded_scenario)
