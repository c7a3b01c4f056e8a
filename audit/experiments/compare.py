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
from audit.experiments.plan_rules import (
    ANY_NAMES,
    CLIENTS,
    MOST_WATCHED,
    N_ROUNDS,
    NAME,
    NAMES,
    OPTIONS,
    ROUND,
    RUNS,
    SEED,
    TEXT,
    each_once,
    refuse_too_many,
)
from audit.experiments.scenarios import one_scenario
from audit.factories import make_attack
from victims.common.validation import each, require_fields

__all__ = [
    "ADVERSARIES", "EXPERIMENT", "Comparison", "adapted", "run", "settled", "short_of_rounds",
    "usual_adversaries",
]  # fmt: skip

FEWEST = 2  # rounds that are watched at least, where nothing else is said


def settled(comparison: Comparison) -> Comparison:
    """Choose scenario, adversaries and rounds of a comparison where none are named, and check every name."""
    _check_values(comparison)
    chosen = one_scenario(
        comparison.victim, comparison.update, comparison.weighting, comparison.victim_options
    )
    comparison = replace(
        comparison,
        update=chosen.update,
        weighting=chosen.weighting,
        victim_options=chosen.options,
        defenses=each_once(comparison.defenses),
        adversaries=each_once(comparison.adversaries) or usual_adversaries(comparison.victim),
        attacks=each_once(comparison.attacks),
        rounds=tuple(sorted(set(map(int, comparison.rounds)))),
    )
    refuse_too_many("a comparison", defenses=comparison.defenses, questions=range(2 + comparison.runs))
    for name in comparison.attacks:
        make_attack(name)
    for name in comparison.adversaries:
        campaign.check_adversary(name)
        campaign.refuse_unnumbered(name)
    needed = [attacker.rounds for text in comparison.defenses for attacker in adapted(comparison, text)]
    rounds = comparison.rounds or tuple(range(max(FEWEST, *needed)))
    return replace(comparison, rounds=rounds)


def _check_values(comparison: Comparison) -> None:
    require_fields(
        comparison,
        "a comparison",
        victim=NAME,
        data=TEXT,
        update=TEXT,
        weighting=TEXT,
        defenses=NAMES,
        adversaries=ANY_NAMES,
        attacks=ANY_NAMES,
        rounds=each(ROUND, fewest=0, most=MOST_WATCHED),
        users=CLIENTS,
        trained=N_ROUNDS,
        runs=RUNS,
        seed=SEED,
        victim_options=OPTIONS,
    )


def short_of_rounds(comparison: Comparison) -> list[str]:
    """Say where fewer rounds are watched than an adapted attack uses."""
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
