"""Newton ascent of the marginal likelihood: posteriors and a damped step in turn, the noise annealed."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attacks.likelihood.batches import Rows
from attacks.likelihood.gradient import Score, fisher_information, score_of
from attacks.likelihood.model import AnyArray, Constants, Model, Point, Prior, log_prior
from attacks.likelihood.observation import decode
from attacks.likelihood.problem import BatchCache, Parameters, prior_of
from attacks.likelihood.summaries import Summary, summarise
from attacks.likelihood.update_rule import Link, fixed_sums, link
from victims.common.seeds import Purpose, jax_key

DAMPING = 0.7
LARGEST = 1e6  # coordinate of a client's factor or tilt
COMPLETE_SHARE = 0.5  # of the complete-data information in the Newton step's (1 is EM, 0 is BHHH)
FEWEST_DRAWS = 32  # where the evidence is an average over draws


@partial(jax.jit, static_argnums=0)
def ascend(
    model: Model,
    attribute_factors: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
    assumed: Float[Array, "candidates users slots"],
    point: Point,
    steps: Int[AnyArray, ""],
    temperature: Float[AnyArray, ""],
) -> Point:
    """Alternate posteriors and a damped Newton step in lam, ``steps`` times."""
    cooling = jnp.maximum(1, (2 * steps) // 3)
    fixed = fixed_sums(model, attribute_factors, rows)

    def step(number: Array, point: Point) -> Point:
        warmth = temperature ** jnp.maximum(0.0, 1 - number / cooling)
        now = constants._replace(noise=constants.noise * warmth)
        answers = decode(model, attribute_factors, rows, now, prior, assumed, point).answers
        linked = link(model, attribute_factors, rows, now, prior, point.p, answers, fixed)
        score = score_of(model, attribute_factors, rows, now, point.p, answers, linked, fixed)
        return _newton(model, prior, point, linked, score)

    return jax.lax.fori_loop(0, steps, step, point)


def _newton(model: Model, prior: Prior, point: Point, linked: Link, score: Score) -> Point:
    """One damped step; a client whose equations are singular or explode stays where it is."""
    information = fisher_information(score, COMPLETE_SHARE)
    here = point.lam
    right = score.gradient + jnp.einsum("ulm,um->ul", information, here)
    if model.tied:
        right, origin = right + COMPLETE_SHARE * score.off_rule, here
    else:
        right, origin = right + prior.start_precision @ prior.start_mean, jnp.zeros_like(here)
    lam = jnp.linalg.solve(linked.precision + information, right[..., None])[..., 0]
    p = linked.mean + jnp.einsum("utkl,ul->utk", linked.basis, lam - origin)
    new = Point(point.p + DAMPING * (p - point.p), here + DAMPING * (lam - here))
    size = jnp.abs(new.p).max(axis=(1, 2)) + jnp.abs(new.lam).max(axis=1)
    sane = size < LARGEST
    return Point(jnp.where(sane[:, None, None], new.p, point.p), jnp.where(sane[:, None], new.lam, point.lam))


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
