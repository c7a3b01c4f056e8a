"""Learn what all clients share: the prior, the noise scale, and starts that do not end in a wrong optimum.

Passes ascend in all batches of a view (``attacks.likelihood.ascent``) and, pass by pass, improve the prior
and the noise scale (``attacks.likelihood.prior``). What can go wrong is a whole-rating shift: all ratings one
level higher and p moved accordingly explain the uploads nearly as well. Per client the evidence chooses among
starts; over clients the mean rating from which the passes end with the most evidence is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from attacks.likelihood import prior as priors
from attacks.likelihood.ascent import ascend_batch, summarise_batch
from attacks.likelihood.model import Answers, Point
from attacks.likelihood.problem import BatchCache, Parameters, Problem, between, scattered
from attacks.likelihood.starts import cold_start
from attacks.likelihood.summaries import Summary

MIDDLES = (0.4, 0.85, 0.55, 0.7)  # of the grid: candidates for the mean rating, the extremes first
FINER = 0.075  # further candidates at this distance from the best
SAME = 1.0  # nats within which two states are taken to be in the same place, and a gain to be the last
CLEAR = 0.5  # nats per client, by which a place is ahead that needs no finer search
UNRATED = 0.9
FURTHER = 24  # most passes after the best start
FREE_PASSES = 3  # times as many passes where p is free, for they converge slowly
SMALLEST_SHARE = 1 / 8  # of a step of the prior, where all of it loses evidence
QUICK = 4  # draws of the client's factor while the prior is learned
SMALLEST_VARIANCE = 1e-12  # of a free factor


class State(NamedTuple):
    """Where learning stands."""

    parameters: Parameters
    points: list[Point]  # batch by batch
    evidence: float  # of all points, in nats
    total: Summary  # sums over the clients at these points


def residual_scale(problem: Problem, total: Summary) -> float:
    """The scale of noise that would leave what the answers leave of the rows."""
    return float(problem.model.law.scale_of(float(total.distance) / max(float(total.coordinates), 1.0)))


def state_at(batches: BatchCache, parameters: Parameters, points: list[Point] | None) -> State:
    """One pass of ascents, from given points or from cold starts, and what it ends with."""
    problem = batches.problem
    points, total = _pass(batches, parameters, points)
    cost = priors.penalty(problem.model, parameters.prior, parameters.spread, total.moments)
    # evidence is against noise alone; under different scales that has a likelihood of its own
    law, scale = problem.model.law, float(parameters.constants.noise)
    alone = float(total.blank) / law.unit(scale) + float(total.coordinates) * law.log_volume(scale)
    evidence = np.asarray(total.evidence)
    value = float(np.sum(evidence, where=np.isfinite(evidence))) - cost - alone
    return State(parameters, points, value, total)


def _pass(
    batches: BatchCache, parameters: Parameters, points: list[Point] | None
) -> tuple[list[Point], Summary]:
    """Ascend in every batch; sums over the clients come back as one summary."""
    problem, out, total = batches.problem, [], None
    for batch in range(problem.n_batches):
        if points is None:
            point = cold_start(batches, parameters, batch)
        else:
            point = ascend_batch(batches, parameters, batch, points[batch], max(3, problem.steps // 3))
        out.append(point)
        found = _own(problem, batch, summarise_batch(batches, parameters, batch, point, QUICK))
        total = found if total is None else jax.tree.map(np.add, total, found)
    assert total is not None
    return out, total


def _own(problem: Problem, batch: int, found: Summary) -> Summary:
    """A batch's summary as arrays of all clients, without the answers, so that summaries can be added."""
    user, evidence = (scattered(problem, batch, values) for values in (found.moments.user, found.evidence))
    none = Answers(np.zeros((0, 0, 0)), np.zeros((0, 0)))
    found = found._replace(moments=found.moments._replace(user=user), evidence=evidence, answers=none)
    summary: Summary = jax.tree.map(np.asarray, found)
    return summary


def improved(problem: Problem, parameters: Parameters, total: Summary) -> Parameters:
    """New prior and noise scale after a pass; the same where nothing is left of the posterior."""
    n_users = problem.view.users.size
    constants, prior, spread = parameters
    if not all(np.isfinite(moment).all() for moment in total.moments):
        return parameters  # rows that are very far from the model
    if problem.estimated:
        prior, spread = priors.improve(problem.model, prior, spread, total.moments, n_users)
    if not problem.model.tied:
        mean, precision = _start_law(problem, total, n_users)
        prior = prior._replace(start_mean=mean, start_precision=precision)
    if not problem.known_noise:
        noise = max(residual_scale(problem, total), problem.floor)
        constants = constants._replace(noise=np.asarray(noise))
    return Parameters(constants, prior, spread)


def _start_law(problem: Problem, total: Summary, n_users: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal law of the clients' free factors, mean (L,) and precision (L, L).

    k + 2 inverse Wishart counts, as wide in all directions, keep it proper whatever the factors' scale.
    """
    k = problem.view.manifest.factors
    mean = np.asarray(total.lam_mean) / n_users
    square = np.asarray(total.lam_square) / n_users - np.outer(mean, mean)
    precision = np.zeros_like(square)
    for run in range(problem.model.n_runs):
        block = slice(run * k, (run + 1) * k)
        own = square[block, block]
        isotropic = max(np.trace(own) / k, SMALLEST_VARIANCE) * np.eye(k)
        covariance = (n_users * own + (k + 2) * isotropic) / (n_users + k + 2)
        precision[block, block] = np.linalg.inv(covariance)
    return mean, precision


def learn(
    batches: BatchCache, parameters: Parameters, passes: int, points: list[Point] | None = None
) -> State:
    """Passes of ascending and estimating, from given points or from cold starts."""
    return keep_better(
        state_at(batches, parameters, points),
        lambda state: improved(batches.problem, state.parameters, state.total),
        lambda proposed, state: state_at(batches, proposed, state.points),
        passes - 1,
    )


def keep_better(
    best: State,
    propose: Callable[[State], Parameters],
    reach: Callable[[Parameters, State], State],
    tries: int,
) -> State:
    """Step from state to state as long as the evidence grows.

    Only states with more evidence are kept; where a step loses some, half of it is tried, and so on.
    """
    proposed, share = propose(best), 1.0
    for _ in range(tries):
        if proposed is best.parameters:
            break
        state = reach(between(best.parameters, proposed, share), best)
        gain = state.evidence - best.evidence
        if gain > 0 or not np.isfinite(best.evidence):
            best = state
            proposed, share = propose(best), 1.0
        else:
            share /= 2
        if 0 < gain < SAME or share < SMALLEST_SHARE:
            break
    return best


def search(batches: BatchCache, parameters: Parameters, passes: int) -> State:
    """Learn from the middle of the rating law from which the passes end with the most evidence."""
    problem = batches.problem
    if not problem.estimated:
        return learn(batches, parameters, 1 if problem.known_noise else 3)
    best = _best_start(batches, parameters, passes)
    return learn(batches, best.parameters, FURTHER, best.points)


def _best_start(batches: BatchCache, parameters: Parameters, passes: int) -> State:
    def start(middle: float) -> State:
        level = priors.bell(batches.problem.model, middle, UNRATED)
        prior = parameters.prior._replace(level=level)
        return learn(batches, parameters._replace(prior=prior), passes)

    found = {middle: start(middle) for middle in MIDDLES[:2]}
    low, high = (state.evidence for state in found.values())
    if abs(low - high) < SAME:
        return max(found.values(), key=lambda state: state.evidence)
    found |= {middle: start(middle) for middle in MIDDLES[2:]}
    best, second = sorted(found, key=lambda middle: -found[middle].evidence)[:2]
    lead = found[best].evidence - found[second].evidence
    if SAME <= lead <= CLEAR * batches.problem.view.users.size:
        for middle in (best - FINER, best + FINER):
            found[middle] = start(middle)
    return max(found.values(), key=lambda state: state.evidence)
