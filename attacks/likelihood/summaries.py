"""What is known at the end of a climb: posteriors, evidence, and sums that an estimate of the prior needs.

Posteriors are averaged over draws of the client's factor from its normal approximation (Laplace's method)
and, where p is free, over the client's own tilts of the prior; the evidence integrates the factor out in
the same way, in semi-als with the saddlepoint's cost of the tilt (``attacks.likelihood.rating_posterior``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from attacks.likelihood import rating_posterior as soft
from attacks.likelihood.batches import Rows
from attacks.likelihood.rating_posterior import Answers, AnyArray, Constants, Layer, Point, Prior

DRAWN_COMPLETE = 0.1  # of the complete-data information in the covariance of the draws


class Summary(NamedTuple):
    """What is known at the end of a climb.

    answers: posteriors averaged over the uncertainty of p; evidence (users,): log marginal likelihood
    against noise alone, by Laplace's method; distance, coordinates, blank: expected loss of f - y p
    (``attacks.likelihood.noise_laws``), number of coordinates and loss of f, for the noise scale; moments:
    for the prior, see ``attacks.likelihood.prior``; lam_mean, lam_square: sums over clients.
    """

    answers: Answers
    evidence: Float[Array, " users"]
    distance: Float[Array, ""]
    coordinates: Float[Array, ""]
    blank: Float[Array, ""]
    moments: Moments
    lam_mean: Float[Array, " L"]
    lam_square: Float[Array, "L L"]


class Moments(NamedTuple):
    """Sums over rows of the posterior minus the prior, and of both variances.

    level_gap (candidates,), level_prior and level_posterior (candidates, candidates); user (users, tilts, 3)
    and item (items, tilts, 3): gap, prior variance, posterior variance of the features; attribute
    (attributes,): expected number of clients.
    """

    level_gap: Float[Array, " candidates"]
    level_prior: Float[Array, "candidates candidates"]
    level_posterior: Float[Array, "candidates candidates"]
    user: Float[Array, "users user_tilts 3"]
    item: Float[Array, "items item_tilts 3"]
    attribute: Float[Array, " attributes"]


@partial(jax.jit, static_argnums=0)
def summarise(
    layer: Layer,
    own: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
    point: Point,
    user_variance: Float[AnyArray, " tilts"],
    samples: Int[AnyArray, ""],
    key: Array,
) -> Summary:
    """Posteriors averaged over ``samples`` draws of p and the client's own tilts, and the evidence."""
    live, user_variance = rows.live, jnp.asarray(user_variance)
    known, assumed = soft.fixed(layer, own, rows), soft.log_prior(layer, prior, rows)
    if layer.tied:  # scores of each round by themselves: worth their time once, not in every step
        layer = replace(layer, runs=tuple(range(len(layer.runs))))
    fit = soft.decode(layer, own, rows, constants, prior, assumed, point)
    linked = soft.link(layer, own, rows, constants, prior, point.p, fit.answers, known)
    slope = soft.slope(layer, own, rows, constants, point.p, fit.answers, linked, known)
    covariance = jnp.linalg.inv(linked.precision + soft.metric(slope, DRAWN_COMPLETE))
    factor = jnp.linalg.cholesky(covariance)
    # singular information: no evidence (its logarithm is NaN), and no draws away from the point
    singular = ~jnp.isfinite(factor).all(axis=(1, 2))
    factor = jnp.where(singular[:, None, None], 0.0, factor)
    covariance = jnp.where(singular[:, None, None], 0.0, covariance)
    tilt_variance = _tilt_variance(layer, rows, assumed, fit.answers, user_variance)
    size = point.lam.shape[1]

    away = point.lam - prior.start_mean

    def draw(number: Array, total: tuple[Answers, Array]) -> tuple[Answers, Array]:
        noise = jax.random.normal(
            jax.random.fold_in(key, number), (point.lam.shape[0], size + user_variance.shape[0])
        )
        tilt = noise[:, size:] * jnp.sqrt(tilt_variance)
        move = jnp.einsum("ulm,um->ul", factor, noise[:, :size])
        p = point.p + jnp.einsum("utkl,ul->utk", linked.basis, move)
        varied = prior._replace(user=prior.user + tilt)
        leaning = soft.log_prior(layer, varied, rows)
        found = soft.decode(layer, own, rows, constants, varied, leaning, Point(p, point.lam))
        if layer.tied:
            weight = jnp.zeros(live.shape)
        else:
            weight = found.log_likelihood + 0.5 * jnp.sum(noise**2, axis=1)
            weight -= 0.5 * _square(away + move, linked.precision)
            weight -= 0.5 * jnp.sum(varied.user**2 / user_variance, axis=1)
        return _mixed(total, found.answers, jnp.where(jnp.isfinite(weight), weight, -jnp.inf))

    nothing = jax.tree.map(jnp.zeros_like, fit.answers), jnp.full(live.shape, -jnp.inf)
    answers, mixed = jax.lax.fori_loop(0, samples, draw, nothing)
    determinants = 0.5 * (jnp.linalg.slogdet(covariance)[1] + jnp.linalg.slogdet(linked.precision)[1])
    if layer.tied:
        evidence = fit.log_likelihood + determinants
        evidence -= _paid(layer, own, rows, constants, point, fit.answers)
    else:
        evidence = mixed - jnp.log(samples) + determinants
        evidence += 0.5 * jnp.sum(jnp.log(tilt_variance / user_variance), axis=1)
    coordinates = rows.sent.sum(axis=(0, 2)) + rows.attributes_sent.sum(axis=(0, 2))
    spread = jnp.where(live[:, None, None] > 0, covariance, 0.0).sum(axis=0)
    lam = jnp.where(live[:, None] > 0, point.lam, 0.0)
    return Summary(
        answers,
        evidence,
        jnp.sum(live * (fit.distance + rows.blank)),
        jnp.sum(live * coordinates) * rows.items.shape[2],
        jnp.sum(live * rows.blank),
        moments(layer, rows, prior, jnp.exp(assumed) * rows.valid, answers),
        lam.sum(axis=0),
        jnp.einsum("ul,um->lm", lam, lam) + spread,
    )


def _mixed(
    total: tuple[Answers, Array], part: Answers, weight: Float[Array, " users"]
) -> tuple[Answers, Float[Array, " users"]]:
    """The mean of answers under log weights, one draw more; and the log of the weights' sum."""
    answers, before = total
    after = jnp.logaddexp(before, weight)
    share = jnp.where(jnp.isfinite(after), jnp.exp(weight - after), 0.0)

    def mix(old: Array, new: Array) -> Array:
        by = (share[:, None] if new.ndim == 2 else share[None, :, None]).astype(new.dtype)
        return old + by * (new - old)

    return jax.tree.map(mix, answers, part), after


def _square(x: Float[Array, "users L"], metric: Float[Array, "users L L"]) -> Float[Array, " users"]:
    return jnp.einsum("ul,ulm,um->u", x, metric, x)


def _mean(layer: Layer, weights: Array) -> Float[Array, "tilts users slots"]:
    """Means of the features of a rating under weights over candidates."""
    return jnp.einsum("fv,vur->fur", layer.features().T.astype(weights.dtype), weights)


def _variance(layer: Layer, weights: Array) -> Float[Array, "tilts users slots"]:
    square = jnp.einsum("fv,vur->fur", (layer.features().T ** 2).astype(weights.dtype), weights)
    return square - _mean(layer, weights) ** 2


def _tilt_variance(
    layer: Layer, rows: Rows, assumed: Array, answers: Answers, user_variance: Array
) -> Float[Array, "users tilts"]:
    """Uncertainty of the client's tilts. None where p is tied: the tilts then move the ratings and with them
    p, and draws of one without the other make the evidence jump while the prior is learned."""
    if layer.tied:
        return jnp.zeros((answers.items.shape[1], user_variance.shape[0]))
    before = _variance(layer, jnp.exp(assumed) * rows.valid).sum(axis=-1)
    after = _variance(layer, answers.items).sum(axis=-1)
    weight = jnp.maximum(before - after, 0.1 * before)[: user_variance.shape[0]].T.astype(jnp.float64)
    return 1 / (weight + 1 / user_variance)


def _paid(
    layer: Layer, own: AnyArray, rows: Rows, constants: Constants, point: Point, answers: Answers
) -> Float[Array, " users"]:
    """lam . E[sum], the saddlepoint's cost of the tilt."""
    pulls = soft.pulls(layer, rows, constants, point.p)
    along = jnp.einsum("ukr,uk->ur", rows.middle, point.lam.astype(rows.middle.dtype))
    paid = jnp.sum(jnp.sum(answers.items * pulls, axis=0) * along, axis=-1, dtype=jnp.float64)
    if layer.blocks:
        middle = jnp.asarray(own).mean(axis=0)
        paid += constants.lambda_attributes * jnp.sum(answers.attributes * (point.lam @ middle), axis=-1)
    return paid


@partial(jax.jit, static_argnums=0)
def moments(layer: Layer, rows: Rows, prior: Prior, assumed: Array, answers: Answers) -> Moments:
    """Sums over rows; ``assumed`` are the prior's probabilities, 0 on padding."""
    live = rows.live[:, None].astype(assumed.dtype)
    assumed, found = assumed * live, answers.items * live
    gap = _mean(layer, found - assumed)
    table = jnp.stack([gap, _variance(layer, assumed), _variance(layer, found)]).astype(jnp.float64)

    def second(weights: Array) -> Array:
        diagonal = jnp.diag(weights.sum(axis=(1, 2), dtype=jnp.float64))
        return diagonal - jnp.einsum("vur,wur->vw", weights, weights).astype(jnp.float64)

    of_user, of_item = (table[:, :width] for width in layer.tilts)
    flat = of_item.transpose(2, 3, 1, 0).reshape(-1, layer.tilts[1], 3)
    return Moments(
        (found - assumed).sum(axis=(1, 2), dtype=jnp.float64),
        second(assumed),
        second(found),
        of_user.sum(axis=3).transpose(2, 1, 0),
        jax.ops.segment_sum(flat, jnp.asarray(rows.item).ravel(), prior.item.shape[0]),
        jnp.sum(rows.live[:, None] * answers.attributes, axis=0),
    )
