"""Trainings that differ in learning rate and regularization alone, at the cost of little more than one.

Every candidate of a search sees the same ratings, order and noise. Where the server steps at every upload
(``victims.protocols.decentralised_mf_together``) they are drawn once and all candidates step together; other
orders are trained one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from victims.common.errors import InputError
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.decentralised_mf_steps import State
from victims.protocols.decentralised_mf_together import epoch_together
from victims.training import Run, received


def trained_together(runs: Sequence[Run], rounds: int) -> list[Run | InputError]:
    """Train runs of the same ratings, defenses and seed.

    Parameters
    ----------
    runs : sequence of Run
        Before round 0.
    rounds : int
        How many to train.

    Returns
    -------
    list of Run or InputError
        In the order of ``runs``; the error of one that diverged.
    """
    victims = [run.victim for run in runs]
    if not _alike(victims):
        return [_trained(run, rounds) for run in runs]
    ridges = np.array([victim.regularization for victim in victims])
    states = [run.state for run in runs]
    for number in range(rounds):
        arrived = received(runs[0], number)  # noise that does not depend on rows, so on no candidate
        rates = np.array([victim.rate(number) for victim in victims])
        states = epoch_together(states, runs[0].ratings, rates, ridges, arrived)
    return [
        run._replace(state=state) if _finite(state) else _diverged(run, rounds)
        for run, state in zip(runs, states, strict=True)
    ]


def _alike(victims: Sequence[object]) -> bool:
    """Whether they differ in learning rate and regularization alone, of the order per-rating."""
    first = victims[0]
    if not isinstance(first, DecentralisedMF) or not first.stepwise:
        return False
    if first.participation < 1 or first.dropout > 0:
        return False
    same = {"learning_rate": first.learning_rate, "regularization": first.regularization}
    return all(isinstance(one, DecentralisedMF) and replace(one, **same) == first for one in victims)


def _finite(state: State) -> bool:
    return bool(np.isfinite(state.item_factors).all() and np.isfinite(state.client_factors).all())


def _diverged(run: Run, rounds: int) -> InputError:
    return InputError(
        f"the training diverged within {rounds} rounds: factors must stay finite; lower learning_rate (now "
        f"{run.victim.learning_rate:g})"
    )


def _trained(run: Run, rounds: int) -> Run | InputError:
    try:
        for number in range(rounds):
            run = run.trained(number)
    except InputError as error:
        return error
    return run
