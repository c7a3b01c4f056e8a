"""What a client's uploads say about its answers, given its factor: exact posteriors, row by row.

Soft decoding of noisy uploads: the log density of a row f under a candidate answer is that of the noise at
f - y p, with y clipped as the clients clip it. Posteriors over ratings are independent between slots, those
over attributes inside a one-hot block are not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from attacks.likelihood.batches import Rows
from attacks.likelihood.model import Answers, AnyArray, Constants, Model, Point, Prior
from attacks.likelihood.noise_laws import Law


class RowKind(NamedTuple):
    """One kind of row."""

    levels: Float[Array, " candidates"]  # candidate values, in stars, and their weights
    weights: Float[Array, " candidates"]  # candidate values, in stars, and their weights
    rows: Float[AnyArray, "rounds users K slots"]  # uploads, and broadcast factors
    factors: Float[AnyArray, "rounds users K slots"]  # uploads, and broadcast factors
    sent: AnyArray
    cap: float | None  # length at which clients clip a row; None where they do not
    law: Law  # of the noise

    def predicted(self, factors: Array, p: Array) -> Array:
        """p . q of one round, (users, slots)."""
        return jnp.einsum("uk,ukr->ur", p, factors)

    def y(self, v: int | slice, predicted: Array) -> Array:
        """y of one candidate (users, slots), or of several with a leading axis."""
        shape = (-1, 1, 1) if isinstance(v, slice) else ()
        return self.weights[v].reshape(shape) * (self.levels[v].reshape(shape) - predicted)

    def clipped(self, y: Array, p: Array) -> Array:
        """y as the clients clip it."""
        if self.cap is None:
            return y
        most = (self.cap / jnp.maximum(self.law.norm(p), 1e-30))[:, None]
        return jnp.clip(y, -most, most)


def item_rows(model: Model, constants: Constants, rows: Rows) -> RowKind:
    """Describe the rows of items, with the candidates for a rating."""
    kind, unrated = rows.items.dtype, jnp.array(model.weighted)
    weights = jnp.where(unrated, constants.alpha, 1.0)
    levels = jnp.array(model.levels) - jnp.where(unrated, 0.0, constants.lowered)
    values, weights = levels.astype(kind), weights.astype(kind)
    return RowKind(values, weights, rows.items, rows.factors, rows.sent, model.clip, model.law)


def attribute_rows(model: Model, attribute_factors: Array, rows: Rows) -> RowKind:
    """Describe the rows of attributes, whose candidates are 0 and 1."""
    kind = rows.items.dtype
    factors = jnp.broadcast_to(attribute_factors.astype(kind)[:, None], rows.attributes.shape)
    levels = jnp.array([0.0, 1.0], kind)
    sent = rows.attributes_sent
    return RowKind(levels, jnp.ones(2, kind), rows.attributes, factors, sent, model.clip, model.law)


def distances(kind: RowKind, p: AnyArray) -> Float[Array, "candidates users slots"]:
    """Sum the loss of f - y p less that of f over rounds and coordinates: against a row that says nothing."""
    p = p.swapaxes(0, 1).astype(kind.rows.dtype)

    def add(total: Array, piece: tuple[Any, ...]) -> tuple[Array, None]:
        rows, factors, sent, p = piece
        y = kind.clipped(kind.y(slice(None), kind.predicted(factors, p)), p)
        away = jnp.zeros_like(total)
        # coordinates one by one: one fused loop over slots, with nothing of the size of the rows written
        for k in range(rows.shape[1]):
            f = rows[:, k]
            away = away + kind.law.gain(f, y * p[:, k, None])
        return total + jnp.where(sent, away, 0), None

    shape = kind.levels.shape + kind.rows.shape[1:2] + kind.rows.shape[3:]
    return jax.lax.scan(add, jnp.zeros(shape, kind.rows.dtype), (kind.rows, kind.factors, kind.sent, p))[0]


def posterior_attributes(model: Model, odds: Array) -> tuple[Array, Array]:
    """Softmax inside each block of attributes, and its log norm."""
    block = np.array(model.blocks)
    inside = block[:, None] == np.arange(len(model.loose))
    none = np.array(model.loose, np.float64)
    top = jnp.max(jnp.where(inside, odds[..., None], -jnp.inf), axis=1)
    top = jnp.where(none > 0, jnp.maximum(top, 0.0), top)
    weight = jnp.exp(odds - top[:, block])
    total = weight @ inside.astype(np.float64) + none * jnp.exp(-top)
    return weight / total[:, block], top + jnp.log(total)


class Fit(NamedTuple):
    """Posteriors at a point; all sums are relative to uploads that say nothing."""

    answers: Answers
    log_likelihood: Float[Array, " users"]  # tilted, of the uploads given p
    distance: Float[Array, " users"]  # expected loss of f - y p less that of f


def decode(
    model: Model,
    attribute_factors: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
    assumed: Float[Array, "candidates users slots"],
    point: Point,
) -> Fit:
    """Posterior of every row given p, with the tilt lam where p is tied."""
    p, unit = point.p, model.law.unit(constants.noise)
    kind = rows.items.dtype
    away = distances(item_rows(model, constants, rows), p)
    logits = assumed - away / unit.astype(kind)
    if model.tied:
        pull = jnp.einsum("ukr,uk->ur", rows.middle, point.lam.astype(kind))
        logits = logits + contributions(model, rows, constants, p) * pull
    norm = logsumexp(logits, axis=0)
    items = jnp.exp(logits - norm) * rows.valid
    fit = jnp.sum(jnp.where(rows.valid, norm, 0.0), axis=-1, dtype=jnp.float64)
    distance = jnp.sum(jnp.sum(items * away, axis=0), axis=-1, dtype=jnp.float64)
    attributes = jnp.zeros((p.shape[0], 0))
    if model.blocks:
        attributes, more, further = _decode_attributes(
            model, jnp.asarray(attribute_factors), rows, constants, prior, point, unit
        )
        fit += more
        distance += further
    return Fit(Answers(items, attributes), fit, distance)


def _decode_attributes(
    model: Model,
    attribute_factors: Array,
    rows: Rows,
    constants: Constants,
    prior: Prior,
    point: Point,
    unit: AnyArray,
) -> tuple[Float[Array, "users attributes"], Float[Array, " users"], Float[Array, " users"]]:
    """Posterior of the attributes, and what they add to the log-likelihood and to the distance of a fit."""
    off, on = distances(attribute_rows(model, attribute_factors, rows), point.p).astype(jnp.float64)
    odds = prior.attribute - (on - off) / unit
    if model.tied:
        odds = odds + constants.lambda_attributes * point.lam @ attribute_factors.mean(axis=0)
    attributes, log_norm = posterior_attributes(model, odds)
    empty = posterior_attributes(model, jnp.atleast_2d(prior.attribute))[1]
    fit = (log_norm - empty).sum(axis=-1) - off.sum(axis=-1) / unit
    return attributes, fit, jnp.sum(off + attributes * (on - off), axis=-1)


def contributions(
    model: Model, rows: Rows, constants: Constants, p: AnyArray
) -> Float[Array, "candidates users slots"]:
    """What every candidate of a row adds to the sum in (8): its y at the mean over rounds."""
    items = item_rows(model, constants, rows)
    predicted = jnp.einsum("ukr,uk->ur", rows.middle, p.mean(axis=1).astype(rows.middle.dtype))
    return items.weights[:, None, None] * (items.levels[:, None, None] - predicted)
