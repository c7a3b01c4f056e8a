"""Programs that learn ratings less the lowest level, which nobody declares: what noisy uploads say of it.

Every answer would be one level too low, and mostly sure of it. So learning is tried with ratings that are
lowered, too, and believed where the uploads are clearly more likely so. What the prior costs does not count:
it would call any low ratings lowered ones. Where nobody has a rating of the lowest level the rows say the
same either way, and the mean that ratings usually have decides (``attacks.likelihood.prior``). Where a
client's factor does not follow from its ratings ascents end in optima whose evidence differs by more. Then it
has to be clear for the clients one by one, in the mean, as it is under little noise.
"""

from __future__ import annotations

import numpy as np

from attacks.likelihood import prior as priors
from attacks.likelihood.abstention import ALL, LEAST_ODDS
from attacks.likelihood.ascent import summarise_batch
from attacks.likelihood.learning import FREE_PASSES, FURTHER, QUICK, State, learn, state_at
from attacks.likelihood.problem import BatchCache, Parameters, Problem

CLEAR = 10.0  # nats by which uploads must be more likely; of a hundred programs next to none lower ratings
BEHIND = 20.0  # nats per client by which a first pass may be behind, for more passes to be worth it


def as_learned(batches: BatchCache, taught: State, passes: int) -> State:
    """Learn with ratings less the lowest level, and keep what explains the uploads better."""
    problem = batches.problem
    if len(problem.view.manifest.rating_levels) < 2:
        return taught
    tied, n_users = problem.model.tied, problem.view.users.size
    clear, passes = (CLEAR, passes) if tied else (max(CLEAR, LEAST_ODDS * n_users), FREE_PASSES * passes)
    start = lowered(problem, taught.parameters)
    first = state_at(batches, start, None)
    if _lead(problem, first, taught) < -BEHIND * n_users:
        return taught
    other = learn(batches, first.parameters, passes, first.points)
    if _lead(problem, other, taught) <= clear or _alike(batches, taught):
        return taught
    return learn(batches, other.parameters, FURTHER if problem.estimated else 1, other.points)


def lowered(problem: Problem, parameters: Parameters) -> Parameters:
    """Take the lowest level off all ratings: the shares that were learned belong to ratings one level up."""
    rated = np.array(problem.model.levels) > 0
    level = np.array(parameters.prior.level, np.float64)
    level[rated] = np.r_[level[rated].min(), level[rated][:-1]]
    lowest = np.asarray(problem.view.manifest.rating_levels[0], np.float64)
    return parameters._replace(
        constants=parameters.constants._replace(lowered=lowest),
        prior=parameters.prior._replace(level=level),
    )


def _alike(batches: BatchCache, state: State) -> bool:
    """Whether next to all answers are one level: rows are clipped, or of another scale, which is no shift.

    As ``too_alike``, where all listed items are rated: of the others most are answered with 0 in any case.
    """
    if any(batches.problem.model.weighted):
        return False
    count = np.zeros(len(batches.problem.model.levels), int)
    for batch, point in enumerate(state.points):
        found = summarise_batch(batches, state.parameters, batch, point, QUICK)
        size = batches.problem.packing.sizes[batch]
        valid = np.asarray(batches.rows(batch).valid)[:size]
        answer = np.asarray(found.answers.items).argmax(axis=0)[:size]
        count += np.bincount(answer[valid], minlength=count.size)
    return bool(count.max() >= ALL * count.sum())


def _lead(problem: Problem, one: State, other: State) -> float:
    """By how many nats the uploads alone are more likely in one state than in another."""
    return _of_uploads(problem, one) - _of_uploads(problem, other)


def _of_uploads(problem: Problem, state: State) -> float:
    """The evidence without what the prior costs."""
    prior, spread = state.parameters.prior, state.parameters.spread
    return state.evidence + priors.penalty(problem.model, prior, spread, state.total.moments)
