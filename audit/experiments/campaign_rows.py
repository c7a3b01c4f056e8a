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
    """Record the scenario of a cell, unless it was recorded before.

    Parameters
    ----------
    cell : Cell of AttackedScenario
        Its first scratch path is the recording's.
    ratings : Ratings
        Of the clients.
    say : Say
        Told that a recording begins.

    Returns
    -------
    Recorded
        A transcript, and the truth beside it.
    """
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
    """Attack a recording, score the answer, and say how the attack fared.

    Parameters
    ----------
    cell : Cell of AttackedScenario
        Says which attack.
    recording : Recorded
        Of the cell's scenario.
    say : Say
        Told what goes on.

    Returns
    -------
    list of Row
        One per metric.
    """
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
    """Make the row of an attack that failed, or whose scenario could not be recorded.

    Parameters
    ----------
    task : AttackedScenario
        Of the cell.
    error : Exception
        What ended it.

    Returns
    -------
    list of Row
        A single one.
    """
    return [failed_row(task.columns(), error)]


def unneeded_scenario(task: AttackedScenario, rows: Sequence[Row]) -> str:
    """Say why an attack need not be run.

    Parameters
    ----------
    task : AttackedScenario
    rows : sequence of dict
        Of attacks on the same scenario.

    Returns
    -------
    str
        Empty where it is run.
    """
    return "" if task.campaign.exhaustive else not_needed(task.attack, rows)


PROCEDURE = Procedure(record_scenario, attack_scenario, failed_scenario, unneeded=unneeded_scenario)
