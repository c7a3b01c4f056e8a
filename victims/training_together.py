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
from victims.common.limits import are_plausible
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.decentralised_mf_together import epoch_together
from victims.training import Run, received


def trained_together(runs: Sequence[Run], rounds: int) -> list[Run | InputError]:
    """Train runs of the same ratings, defenses and seed."""
    victims = _alike([run.victim for run in runs])
    if victims is None:
        return [_trained(run, rounds) for run in runs]
    ridges = np.array([victim.regularization for victim in victims])
    states = [run.state for run in runs]
    for number in range(rounds):
        arrived = received(runs[0], number)  # noise that does not depend on rows, so on no candidate
        rates = np.array([victim.rate(number) for victim in victims])
        states = epoch_together(states, runs[0].ratings, rates, ridges, arrived)
    return [
        run._replace(state=state)
        if are_plausible(state.item_factors, state.client_factors)
        else _diverged(victim.learning_rate, rounds)
        for run, victim, state in zip(runs, victims, states, strict=True)
    ]


def _alike(victims: Sequence[object]) -> list[DecentralisedMF] | None:
    """The victims, where they differ in learning rate and regularization alone, of the order per-rating."""
    ours = [one for one in victims if isinstance(one, DecentralisedMF)]
    if len(ours) < len(victims):
        return None
    first = ours[0]
    if not first.stepwise or first.participation < 1 or first.dropout > 0:
        return None
    rate, ridge = first.learning_rate, first.regularization
    same = (replace(one, learning_rate=rate, regularization=ridge) == first for one in ours)
    return ours if all(same) else None


def _diverged(rate: float, rounds: int) -> InputError:
    return InputError(
        f"the training diverged within {rounds} rounds: factors must stay finite; lower learning_rate (now "
        f"{rate:g})"
    )


def _trained(run: Run, rounds: int) -> Run | InputError:
    try:
        for number in range(rounds):
            run = run.trained(number)
    except InputError as error:
        return error
    return run
