"""Does the recommender rank well? A victim is trained on a case, and its lists are measured.

Cases are those of ``victims.evaluation.ranking_cases``, measures those of ``victims.evaluation.ranks``.
Factors of new users come from attributes by (15) of paper 000, those of new items from features by (17).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.evaluation.ranking_cases import EXISTING, Case
from victims.evaluation.ranks import PAPER, Cut, Quality, rank
from victims.protocols.base import Defense, Predictor, Products, Victim, changes
from victims.training import Run, start

Progress = Callable[[int, int], None]


def measure(
    victim: Victim,
    chosen: Case,
    *,
    rounds: int,
    defenses: Sequence[Defense] = (),
    seed: int = 0,
    cut: Cut = PAPER,
    progress: Progress = lambda done, total: None,
) -> dict[str, Quality]:
    """Train a victim on a case and rank with it.

    References
    ----------
    Paper 000 (arXiv:2210.07775), section 6.3 and Eq. (51) to (54).
    """
    run = trained(victim, chosen, rounds=rounds, defenses=defenses, seed=seed, progress=progress)
    return ranked(run, chosen, cut)


def fold_in_obstacle(victim: Victim, scenario: str) -> str:
    """Say why a victim cannot be measured in a scenario."""
    can = victim.capabilities
    if scenario == EXISTING or (can.new_clients is not None and can.new_items is not None):
        return ""
    return f"this victim has no factors for a {scenario}: it knows ratings alone; measure existing users"


def trained(
    victim: Victim,
    chosen: Case,
    *,
    rounds: int,
    defenses: Sequence[Defense] = (),
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Run:
    """Train a victim on a case."""
    if obstacle := fold_in_obstacle(victim, chosen.scenario):
        raise InputError(obstacle)
    run = start(victim, chosen.train, defenses, seed)
    for round_ in range(rounds):
        run = run.trained(round_)
        progress(round_ + 1, rounds)
        if run.stopped:
            break
    return run


def ranked(run: Run, chosen: Case, cut: Cut = PAPER) -> dict[str, Quality]:
    """Rank with what was trained."""
    predictor = _with_newcomers(run, chosen, int(run.state.round))

    def scores(users: np.ndarray) -> np.ndarray:
        return _as_used(predictor.scores(users), users, chosen.test, run.defenses, run.seed)

    return rank(chosen, scores, cut)


def _with_newcomers(run: Run, chosen: Case, rounds: int) -> Predictor:
    """Predictions after some rounds; of a scenario with new users or items, with their factors folded in."""
    known = run.predictor(rounds)
    if chosen.scenario == EXISTING:
        return known
    tables = cast(Products, known)
    if chosen.scenario == "new user":
        assert run.can.new_clients is not None
        return Products(run.can.new_clients(run.state, chosen.test.attributes), tables.items)
    items, new = np.array(tables.items), chosen.open_items
    assert run.can.new_items is not None
    items[new] = run.can.new_items(run.state, chosen.train.item_features[new])
    return Products(tables.clients, items)


def _as_used(
    scores: Float[np.ndarray, "some items"],
    users: Int[np.ndarray, " some"],
    ratings: Ratings,
    defenses: Sequence[Defense],
    seed: int,
) -> Float[np.ndarray, "some items"]:
    """Scores as the clients use them: a defense may rescale predictions, which reorders items."""
    changing = [defense for defense in defenses if changes(defense, "predicted")]
    if not changing:
        return scores
    counts = np.zeros(ratings.n_users, np.int64)
    counts[users] = ratings.n_items
    every = np.tile(np.arange(ratings.n_items, dtype=np.int32), users.size)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    pairs = replace(ratings, indptr=indptr, items=every, values=np.zeros(every.size))
    flat = scores.ravel()
    for defense in changing:
        flat = defense.predicted(flat, pairs, seed)
    return flat.reshape(scores.shape)
