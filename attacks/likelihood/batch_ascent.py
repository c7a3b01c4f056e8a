"""Ascent and summary of one batch of a problem under given parameters."""

from __future__ import annotations

import numpy as np

from attacks.likelihood.ascent import ascend
from attacks.likelihood.batch_cache import BatchCache
from attacks.likelihood.model import Point, log_prior
from attacks.likelihood.problem import Parameters, prior_of
from attacks.likelihood.summaries import Summary, summarise
from victims.common.seeds import Purpose, jax_key

FEWEST_DRAWS = 32  # where the evidence is an average over draws


def ascend_batch(
    batches: BatchCache,
    parameters: Parameters,
    batch: int,
    point: Point,
    steps: int,
    temperature: float = 1.0,
) -> Point:
    """Ascend in one batch of clients; see ``attacks.likelihood.ascent.ascend``."""
    problem, rows = batches.problem, batches.rows(batch)
    prior = prior_of(problem, parameters, batch)
    assumed = log_prior(problem.model, prior, rows)
    known = problem.attribute_factors, rows, parameters.constants, prior, assumed
    return ascend(problem.model, *known, point, steps, temperature)


def summarise_batch(
    batches: BatchCache, parameters: Parameters, batch: int, point: Point, samples: int
) -> Summary:
    """Summarise what is known at a point of one batch; see ``attacks.likelihood.summaries.summarise``."""
    problem, rows = batches.problem, batches.rows(batch)
    prior = prior_of(problem, parameters, batch)
    key = jax_key(problem.key, Purpose.POSTERIOR_DRAWS, batch)
    samples = samples if problem.model.tied else max(samples, FEWEST_DRAWS)
    known = problem.attribute_factors, rows, parameters.constants, prior
    return summarise(problem.model, *known, point, parameters.spread.user, samples, key)


def most_credible(batches: BatchCache, parameters: Parameters, batch: int, points: list[Point]) -> Point:
    """Take, client by client, that of several points which has the most evidence."""
    found = [np.asarray(summarise_batch(batches, parameters, batch, point, 0).evidence) for point in points]
    best = np.nan_to_num(np.stack(found), nan=-np.inf).argmax(axis=0)
    everyone = np.arange(best.size)
    return Point(*(np.stack(parts)[best, everyone] for parts in zip(*points, strict=True)))
