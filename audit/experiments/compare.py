"""Defenses side by side: what each adversary reads, how well the recommender ranks, and what it costs.

Behind ``factorleak compare``. What encryption leaks is measured with the ideal stand-in, which shows the same
views and numbers; what it costs, with the real cryptosystem.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from audit.experiments import campaign
from audit.experiments.compare_cells import ADVERSARIES, Comparison, adapted, cells_of, usual_adversaries
from audit.experiments.compare_rows import PROCEDURE
from audit.experiments.experiment import Experiment
from audit.experiments.scenarios import scenario_of
from audit.factories import make_attack
from victims.common.errors import InputError

__all__ = [
    "ADVERSARIES", "EXPERIMENT", "Comparison", "adapted", "run", "settled", "short_of_rounds",
    "usual_adversaries",
]  # fmt: skip

FEWEST = 2  # rounds that are watched at least, where nothing else is said


def settled(comparison: Comparison) -> Comparison:
    """Choose scenario, adversaries and rounds of a comparison where none are named, and check every name.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        If no defense is named, or a victim, defense, attack or adversary is unknown.
    """
    update, weighting = scenario_of(comparison.victim, comparison.update, comparison.weighting)
    comparison = replace(
        comparison,
        update=update,
        weighting=weighting,
        adversaries=comparison.adversaries or usual_adversaries(comparison.victim),
    )
    if not comparison.defenses:
        raise InputError("--defenses must name at least one defense, or none")
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
    comparison = settled(comparison)
    rounds = np.array(comparison.rounds)
    longest = max(run.size for run in np.split(rounds, np.flatnonzero(np.diff(rounds) != 1) + 1))
    return [
        f"{text}: {attacker.name} uses {attacker.rounds} consecutive rounds, {longest} are watched"
        for text in comparison.defenses
        for attacker in adapted(comparison, text)
        if attacker.rounds > longest
    ]


EXPERIMENT = Experiment(settled, cells_of, PROCEDURE)
run = EXPERIMENT.run
