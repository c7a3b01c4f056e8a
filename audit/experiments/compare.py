"""Defenses side by side: what each adversary reads, how well the recommender ranks, and what it costs.

Behind ``factorleak compare``. What encryption leaks is measured with the ideal stand-in, which shows the same
views and numbers; what it costs, with the real cryptosystem.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from audit.experiments import campaign
from audit.experiments.cluster import Cluster
from audit.experiments.compare_cells import ADVERSARIES, Comparison, adapted, cells_of, usual_adversaries
from audit.experiments.compare_rows import PROCEDURE
from audit.experiments.grid import Report, silent
from audit.experiments.naming import content_of
from audit.experiments.results import Row
from audit.experiments.runner import run_grid
from audit.factories import make_attack
from victims.common.errors import InputError
from victims.data.ratings import Ratings

__all__ = ["ADVERSARIES", "Comparison", "adapted", "run", "settled", "short_of_rounds", "usual_adversaries"]

FEWEST = 2  # rounds that are watched at least, where nothing else is said


def run(
    comparison: Comparison,
    ratings: Ratings,
    directory: Path,
    *,
    jobs: int | Cluster = -1,
    report: Report = silent,
) -> list[Row]:
    """Run every cell that is not there yet and write the result files.

    Parameters
    ----------
    comparison : Comparison
    ratings : Ratings
    directory : Path
        Created if missing.
    jobs : int or Cluster
        Parallel processes; -1 is one per core. Or workers that may be on other machines.
    report : callable
        Called with (cells done, cells in all, what is going on).

    Returns
    -------
    list of dict
        All rows, in the order of the grid.

    Raises
    ------
    InputError
        If no defense is named, or a name is unknown.
    OutputError
        If something cannot be written.
    """
    if not comparison.defenses:
        raise InputError("--defenses must name at least one defense, or none")
    cells = cells_of(settled(comparison), content_of(ratings), directory)
    return run_grid(cells, PROCEDURE, ratings, directory, jobs=jobs, report=report)


def settled(comparison: Comparison) -> Comparison:
    """Choose the rounds of a comparison, and check every name in it.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        If a victim, defense, attack or adversary is unknown.
    """
    for name in comparison.attacks:
        make_attack(name)
    for name in comparison.adversaries:
        campaign.check_adversary(name)
    needed = [attacker.rounds for text in comparison.defenses for attacker in adapted(comparison, text)]
    rounds = comparison.rounds or tuple(range(max(FEWEST, *needed)))
    return replace(comparison, rounds=rounds)


def short_of_rounds(comparison: Comparison) -> list[str]:
    """Say where fewer rounds are watched than an adapted attack uses.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    list of str
        A sentence for each defense and attack.
    """
    rounds = np.array(settled(comparison).rounds)
    longest = max(run.size for run in np.split(rounds, np.flatnonzero(np.diff(rounds) != 1) + 1))
    return [
        f"{text}: {attacker.name} uses {attacker.rounds} consecutive rounds, {longest} are watched"
        for text in comparison.defenses
        for attacker in adapted(comparison, text)
        if attacker.rounds > longest
    ]
