"""What is known at the end of an ascent: posteriors, evidence, and sums that an estimate of the prior needs.

Posteriors are averaged over draws of the client's factor from its normal approximation (Laplace's method)
and, where p is free, over the client's own random effects in the prior; the evidence integrates the factor
out in the same way, in semi-als with the saddlepoint's cost of the tilt (``attacks.likelihood.update_rule``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from attacks.likelihood.batches import Rows
from attacks.likelihood.gradient import fisher_information, score_of
from attacks.likelihood.model import Answers, AnyArray, Constants, Model, Point, Prior, log_prior
from attacks.likelihood.observation import Fit, contributions, decode
from attacks.likelihood.prior import Moments, feature_variance, moments
from attacks.likelihood.update_rule import Link, fixed_sums, link

DRAWN_COMPLETE = 0.1  # of the complete-data information in the covariance of the draws


class Summary(NamedTuple):
    """What is known at the end of an ascent."""

    answers: Answers  # posteriors averaged over the uncertainty of p
    # log marginal likelihood against noise alone, by Laplace's method, in nats
    evidence: Float[AnyArray, " users"]
    # expected loss of f - y p (``attacks.likelihood.noise_laws``), number of coordinates and loss of f, for
    # the noise scale
    distance: Float[AnyArray, ""]
    coordinates: Float[AnyArray, ""]
    blank: Float[AnyArray, ""]
    moments: Moments  # for the prior
    lam_mean: Float[AnyArray, " L"]  # sums over clients
    lam_square: Float[AnyArray, "L L"]  # sums over clients


class _Law(NamedTuple):
    """The normal law of the client's unknowns around a point.

    covariance (users, L, L) of lam and its Cholesky factor, both 0 where the information is singular;
    effect_variance (users, effects): of the client's own random effects.
    """

    covariance: Float[Array, "users L L"]
    factor: Float[Array, "users L L"]
    effect_variance: Float[Array, "users effects"]


@partial(jax.jit, static_argnums=0)
def summarise(
    model: Model,
    attribute_factors: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
    point: Point,
    user_variance: Float[AnyArray, " effects"],
    samples: Int[AnyArray, ""],
    key: Array,
) -> Summary:
    """Posteriors averaged over draws, and the evidence, at a point."""
    user_variance = jnp.asarray(user_variance)
    fixed, assumed = fixed_sums(model, attribute_factors, rows), log_prior(model, prior, rows)
    if model.tied:  # scores of each round by themselves: worth their time once, not in every step
        model = replace(model, runs=tuple(range(len(model.runs))))
    fit = decode(model, attribute_factors, rows, constants, prior, assumed, point)
    linked = link(model, attribute_factors, rows, constants, prior, point.p, fit.answers, fixed)
    score = score_of(model, attribute_factors, rows, constants, point.p, fit.answers, linked, fixed)
    covariance, factor = covariance_of(linked.precision + fisher_information(score, DRAWN_COMPLETE))
    law = _Law(covariance, factor, _effect_variance(model, rows, assumed, fit.answers, user_variance))

    def draw(
        draw: Array, total: tuple[Answers, Float[Array, " users"]]
    ) -> tuple[Answers, Float[Array, " users"]]:
        shape = point.lam.shape[0], point.lam.shape[1] + user_variance.shape[0]
        noise = jax.random.normal(jax.random.fold_in(key, draw), shape)
        drawn = _drawn(model, attribute_factors, rows, constants, prior, point, linked, law, noise)
        weight = _weight(model, prior, point, linked, user_variance, drawn, noise)
        return _mixed(total, drawn.fit.answers, jnp.where(jnp.isfinite(weight), weight, -jnp.inf))

    nothing = jax.tree.map(jnp.zeros_like, fit.answers), jnp.full(rows.live.shape, -jnp.inf)
    answers, mixed = jax.lax.fori_loop(0, samples, draw, nothing)
    determinants = 0.5 * (jnp.linalg.slogdet(covariance)[1] + jnp.linalg.slogdet(linked.precision)[1])
    if model.tied:
        evidence = fit.log_likelihood + determinants
        evidence -= _tilt_cost(model, attribute_factors, rows, constants, point, fit.answers)
    else:
        evidence = mixed - jnp.log(samples) + determinants
        evidence += 0.5 * jnp.sum(jnp.log(law.effect_variance / user_variance), axis=1)
    found = moments(model, rows, prior, jnp.exp(assumed) * rows.valid, answers)
    return _summed(rows, point, fit, covariance, answers, evidence, found)


def covariance_of(
    information: Float[Array, "users L L"],
) -> tuple[Float[Array, "users L L"], Float[Array, "users L L"]]:
    """The inverse and its Cholesky factor.

    Singular information: no evidence (its logarithm is NaN), and no draws away from the point.
    """
    covariance = jnp.linalg.inv(information)
    factor = jnp.linalg.cholesky(covariance)
    singular = ~jnp.isfinite(factor).all(axis=(1, 2))
    factor = jnp.where(singular[:, None, None], 0.0, factor)
    return jnp.where(singular[:, None, None], 0.0, covariance), factor


def _effect_variance(
    model: Model, rows: Rows, assumed: Array, answers: Answers, user_variance: Array
) -> Float[Array, "users effects"]:
    """Uncertainty of the client's random effects. None where p is tied: they then move the ratings and with
    them p, and draws of one without the other make the evidence jump while the prior is learned.
    """
    if model.tied:
        return jnp.zeros((answers.items.shape[1], user_variance.shape[0]))
    before = feature_variance(model, jnp.exp(assumed) * rows.valid).sum(axis=-1)
    after = feature_variance(model, answers.items).sum(axis=-1)
    weight = jnp.maximum(before - after, 0.1 * before)[: user_variance.shape[0]].T.astype(jnp.float64)
    return 1 / (weight + 1 / user_variance)


class _Drawn(NamedTuple):
    """One draw: how far lam moved, the prior with the effects that were drawn, and the posteriors there."""

    move: Float[Array, "users L"]
    prior: Prior
    fit: Fit


def _drawn(
    model: Model,
    attribute_factors: AnyArray,
    rows: Rows,
    constants: Constants,
    prior: Prior,
    point: Point,
    linked: Link,
    law: _Law,
    noise: Float[Array, "users numbers"],
) -> _Drawn:
    """Posteriors at a draw of p and of the effects; ``noise`` is standard normal, lam's numbers first."""
    size = point.lam.shape[1]
    effect = noise[:, size:] * jnp.sqrt(law.effect_variance)
    move = jnp.einsum("ulm,um->ul", law.factor, noise[:, :size])
    p = point.p + jnp.einsum("utkl,ul->utk", linked.basis, move)
    varied = prior._replace(user=prior.user + effect)
    assumed = log_prior(model, varied, rows)
    fit = decode(model, attribute_factors, rows, constants, varied, assumed, Point(p, point.lam))
    return _Drawn(move, varied, fit)


def _weight(
    model: Model,
    prior: Prior,
    point: Point,
    linked: Link,
    user_variance: Array,
    drawn: _Drawn,
    noise: Float[Array, "users numbers"],
) -> Float[Array, " users"]:
    """Log importance of a draw: what is drawn from against what holds; all the same where p is tied."""
    if model.tied:
        return jnp.zeros(point.lam.shape[0])
    weight = drawn.fit.log_likelihood + 0.5 * jnp.sum(noise**2, axis=1)
    away = point.lam - prior.start_mean + drawn.move
    weight -= 0.5 * jnp.einsum("ul,ulm,um->u", away, linked.precision, away)
    return weight - 0.5 * jnp.sum(drawn.prior.user**2 / user_variance, axis=1)


def _mixed(
    total: tuple[Answers, Float[Array, " users"]], drawn: Answers, weight: Float[Array, " users"]
) -> tuple[Answers, Float[Array, " users"]]:
    """The mean of answers under log weights, one draw more; and the log of the weights' sum."""
    answers, before = total
    after = jnp.logaddexp(before, weight)
    share = jnp.where(jnp.isfinite(after), jnp.exp(weight - after), 0.0)

    def mix(old: Array, new: Array) -> Array:
        by = (share[:, None] if new.ndim == 2 else share[None, :, None]).astype(new.dtype)
        return old + by * (new - old)

    return jax.tree.map(mix, answers, drawn), after


def _tilt_cost(
    model: Model,
    attribute_factors: AnyArray,
    rows: Rows,
    constants: Constants,
    point: Point,
    answers: Answers,
) -> Float[Array, " users"]:
    """lam . E[sum], the saddlepoint's cost of the tilt."""
    terms = contributions(model, rows, constants, point.p)
    along = jnp.einsum("ukr,uk->ur", rows.middle, point.lam.astype(rows.middle.dtype))
    cost = jnp.sum(jnp.sum(answers.items * terms, axis=0) * along, axis=-1, dtype=jnp.float64)
    if model.blocks:
        middle = jnp.asarray(attribute_factors).mean(axis=0)
        cost += constants.lambda_attributes * jnp.sum(answers.attributes * (point.lam @ middle), axis=-1)
    return cost


def _summed(
    rows: Rows,
    point: Point,
    fit: Fit,
    covariance: Float[Array, "users L L"],
    answers: Answers,
    evidence: Float[Array, " users"],
    found: Moments,
) -> Summary:
    """The summary, with its sums over the batch's clients."""
    live = rows.live
    coordinates = rows.sent.sum(axis=(0, 2)) + rows.attributes_sent.sum(axis=(0, 2))
    spread = jnp.where(live[:, None, None] > 0, covariance, 0.0).sum(axis=0)
    lam = jnp.where(live[:, None] > 0, point.lam, 0.0)
    return Summary(
        answers,
        evidence,
        jnp.sum(live * (fit.distance + rows.blank)),
        jnp.sum(live * coordinates) * rows.items.shape[2],
        jnp.sum(live * rows.blank),
        found,
        lam.sum(axis=0),
        jnp.einsum("ul,um->lm", lam, lam) + spread,
    )
