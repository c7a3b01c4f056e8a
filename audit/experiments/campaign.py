"""Run victims, attack their transcripts, score the answers: the grid behind ``factorleak audit``."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from audit.code_identity import code_used
from audit.experiments.campaign_cells import Campaign, cells_of, usual_attacks
from audit.experiments.campaign_rows import PROCEDURE
from audit.experiments.experiment import Experiment
from audit.experiments.grid import Report, silent
from audit.experiments.results import Row
from audit.experiments.runner import run_grid
from audit.experiments.scenarios import scenarios
from audit.factories import make_attack, make_defenses
from victims.common.errors import InputError
from victims.common.files import write_text
from victims.data.ratings import Ratings
from victims.transcript.client_names import CLIENT, NEIGHBOUR, NEIGHBOURS
from victims.transcript.reader import ADVERSARIES

__all__ = ["EXPERIMENT", "Campaign", "check_adversary", "run", "settled", "usual_attacks"]

PACKAGES = ("factorleak", "numpy", "scipy", "jax")  # whose versions are kept beside the results


def run(
    campaign: Campaign,
    ratings: Ratings,
    directory: Path,
    *,
    keep_transcripts: bool = False,
    report: Report = silent,
) -> list[Row]:
    """Run every cell that is not there yet and write the result files.

    Parameters
    ----------
    campaign : Campaign
        Settled.
    ratings : Ratings
        What ``campaign.data`` names.
    directory : Path
        RESULTS; created if missing.
    keep_transcripts : bool
        Leave the recordings in ``RESULTS/transcripts``.
    report : callable
        Called with (cells done, cells in all, what is going on).

    Returns
    -------
    list of dict
        All rows, in the order of the grid, as in ``results.json``.

    Raises
    ------
    InputError
        If a name or option is wrong, or the adversary sees nothing under the defenses.
    OutputError
        If something cannot be written.
    """
    _check(campaign)
    _write_settings(campaign, directory)
    cells = cells_of(campaign, ratings, directory)
    return run_grid(cells, PROCEDURE, ratings, directory, keep_scratch=keep_transcripts, report=report)


def settled(campaign: Campaign) -> Campaign:
    """Choose scenarios and attacks where none are named, and check every name.

    Parameters
    ----------
    campaign : Campaign

    Returns
    -------
    Campaign

    Raises
    ------
    InputError
        If a name or option is wrong.
    """
    grid = scenarios(campaign.victim, campaign.updates, campaign.weightings, campaign.victim_options)
    first = {**grid.options, "update": grid.updates[0], "weighting": grid.weightings[0]}
    campaign = replace(
        campaign,
        updates=grid.updates,
        weightings=grid.weightings,
        victim_options=grid.options,
        attacks=campaign.attacks or usual_attacks(campaign.victim, first, campaign.defenses),
    )
    _check(campaign)
    return campaign


def _write_settings(campaign: Campaign, directory: Path) -> None:
    """``campaign.json``: every option of the run, and the versions that ran it."""
    content = {
        **asdict(campaign),
        "versions": {name: version(name) for name in PACKAGES},
        "code": code_used(campaign.victim, campaign.defenses, campaign.attacks),
    }
    write_text(directory / "campaign.json", json.dumps(content, indent=1) + "\n")


def _check(campaign: Campaign) -> None:
    """A misspelt name must not cost the work before it."""
    for name in campaign.attacks:
        make_attack(name, campaign.attack_options.get(name))
    idle = set(campaign.attack_options) - set(campaign.attacks)
    if idle:
        raise InputError(f"options are given for {', '.join(sorted(idle))}, which does not run")
    check_adversary(campaign.adversary)
    for text in campaign.defenses:
        make_defenses(text)
    for scenario in campaign.scenarios:
        campaign.victim_of(*scenario)


def check_adversary(name: str) -> None:
    """Refuse an adversary that no recording has.

    Parameters
    ----------
    name : str

    Raises
    ------
    InputError
        If nobody has that name.
    """
    if name not in ADVERSARIES and not name.startswith((CLIENT, NEIGHBOUR, NEIGHBOURS)):
        raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {name!r}")


EXPERIMENT = Experiment(settled, cells_of, PROCEDURE)
