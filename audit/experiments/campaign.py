"""Run victims, attack their transcripts, score the answers: the grid behind ``factorleak audit``."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from audit.code_identity import code_used
from audit.experiments.campaign_cells import Campaign, cells_of, usual_attacks
from audit.experiments.campaign_rows import PROCEDURE
from audit.experiments.cluster import Cluster
from audit.experiments.experiment import Experiment
from audit.experiments.grid import Found, Report, refuse_if_none_applies, silent
from audit.experiments.ladder import by_cost
from audit.experiments.plan_rules import (
    ANY_NAMES,
    CLIENTS,
    NAME,
    OPTIONS,
    OPTIONS_OF_ATTACKS,
    SEED,
    TEXT,
    WATCHED,
    each_once,
    refuse_idle_options,
)
from audit.experiments.results import Row
from audit.experiments.runner import run_grid
from audit.experiments.scenarios import scenarios
from audit.factories import make_attack, make_defenses
from victims.common.errors import InputError
from victims.common.files import write_text
from victims.common.validation import flag, or_none, require_fields
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
    jobs: int | Cluster = 1,
    report: Report = silent,
    found: Found = silent,
    deadline: float | None = None,
) -> list[Row]:
    """Run every cell that is not there yet and write the result files."""
    _check(campaign)
    cells = cells_of(campaign, ratings, directory)
    refuse_if_none_applies(cells)  # before anything is written
    _write_settings(campaign, directory)
    return run_grid(
        cells, PROCEDURE, ratings, directory,
        jobs=jobs, keep_scratch=keep_transcripts, report=report, found=found, deadline=deadline,
    )  # fmt: skip


def settled(campaign: Campaign) -> Campaign:
    """Choose scenarios and attacks where none are named, and check every name."""
    _check_values(campaign)
    grid = scenarios(campaign.victim, campaign.updates, campaign.weightings, campaign.victim_options)
    first = {**grid.options, "update": grid.updates[0], "weighting": grid.weightings[0]}
    campaign = replace(
        campaign,
        updates=grid.updates,
        weightings=grid.weightings,
        victim_options=grid.options,
        attacks=each_once(campaign.attacks) or _usual(campaign, first),
        rounds=tuple(sorted(set(map(int, campaign.rounds)))),
    )
    _check(campaign)
    return campaign


def _usual(campaign: Campaign, options: dict[str, Any]) -> tuple[str, ...]:
    found = usual_attacks(campaign.victim, options, campaign.defenses)
    return found if campaign.exhaustive else by_cost(found)


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
    _check_values(campaign)
    for name in campaign.attacks:
        make_attack(name, campaign.attack_options.get(name))
    refuse_idle_options(campaign.attack_options, campaign.attacks)
    check_adversary(campaign.adversary)
    refuse_unnumbered(campaign.adversary)
    for text in campaign.defenses:
        make_defenses(text)
    for scenario in campaign.scenarios:
        campaign.victim_of(*scenario)


def _check_values(campaign: Campaign) -> None:
    require_fields(
        campaign,
        "an audit",
        victim=NAME,
        data=TEXT,
        updates=ANY_NAMES,
        weightings=ANY_NAMES,
        attacks=ANY_NAMES,
        rounds=WATCHED,
        adversary=NAME,
        seed=SEED,
        sample=CLIENTS,
        users=or_none(CLIENTS),
        defenses=ANY_NAMES,
        victim_options=OPTIONS,
        attack_options=OPTIONS_OF_ATTACKS,
        exhaustive=flag(),
    )


def check_adversary(name: str) -> None:
    """Refuse an adversary that no recording has."""
    if name not in ADVERSARIES and not name.startswith((CLIENT, NEIGHBOUR, NEIGHBOURS)):
        raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {name!r}")


def refuse_unnumbered(adversary: str) -> None:
    """Refuse clients who are not named by their numbers."""
    who, colon, numbers = adversary.partition(":")
    many = numbers.split(",") if f"{who}:" == NEIGHBOURS else [numbers]
    if colon and not all(one.isascii() and one.isdigit() and len(one) < 10 for one in many):
        raise InputError(
            f"adversary {who} must be clients by their numbers, as {who}:0, got {adversary!r:.80}"
        )


EXPERIMENT = Experiment(settled, cells_of, PROCEDURE)
