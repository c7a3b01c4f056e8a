"""How likely each possible answer of a client is to someone who knows all its other answers.

An attack sees the uploads F and wants one answer z_j. Whoever also knows every other answer of the client
knows strictly more, and p^t then follows from z_j alone: by (8) of paper 000 in semi-als, by (9), (10) from
the factor at the start of the watch in sgd. So log P(F | z_j, the others) is exact: every candidate moves
p^t, and with it every row of the client. The rows of the other items matter where they are few (a client
with one rating shows p in its attributes alone); each answer moves p by about one part in their number, so
that beyond ``FEW`` of them their log likelihood is taken as a quadratic of the move, with the score at the
truth and the information of the complete data, which is never less than what the rows tell.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attacks.likelihood.oracle import Answers, Constants, Model, Rows, update_rule_sums

FEW = 384  # slots of a client, up to which all its rows are computed for every candidate of every slot


class Known(NamedTuple):
    """What belongs to one client, or to the clients of a batch with their axis first."""

    items: Float[Array, "*users rounds K slots"]
    factors: Float[Array, "*users rounds K slots"]
    sent: Array
    attributes: Float[Array, "*users rounds K attributes"]
    attributes_sent: Array
    level: Int[Array, "*users slots"]  # position of the true answer among the candidates
    active: Float[Array, "*users attributes"]  # the true attributes
    p: Float[Array, "*users rounds K"]  # the factors that belong to them
    square: Float[Array, "*users rounds K K"]  # Q'CQ + lambda_1 U'U, and Q'Cr + lambda_1 U'x
    right: Float[Array, "*users rounds K"]  # Q'CQ + lambda_1 U'U, and Q'Cr + lambda_1 U'x


class _Law(NamedTuple):
    """Model, broadcast factors of the attributes (rounds, K, attributes), constants, values and weights."""

    model: Model
    attribute_factors: Array
    constants: Constants
    levels: Array
    weights: Array


@partial(jax.jit, static_argnums=0)
def log_likelihoods(
    model: Model,
    attribute_factors: Float[Array | np.ndarray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    answers: Answers,
    p: Float[Array, "users rounds K"],
) -> tuple[Float[Array, "candidates users slots"], Float[Array, "users attributes"]]:
    """Of every candidate of every slot, and log odds of every attribute being active, all else as it is."""
    attribute_factors = jnp.asarray(attribute_factors)
    square, right = update_rule_sums(model, attribute_factors, rows, constants, answers)
    by_round = rows.items, rows.factors, rows.sent, rows.attributes, rows.attributes_sent
    items, factors, sent, others, others_sent = (jnp.asarray(part).swapaxes(0, 1) for part in by_round)
    level = answers.items.argmax(axis=0)
    active = jnp.asarray(answers.attributes)
    batch = Known(items, factors, sent, others, others_sent, level, active, p, square, right)
    weights = jnp.where(jnp.array(model.weighted), constants.alpha, 1.0)
    law = _Law(model, attribute_factors, constants, jnp.array(model.levels), weights)
    items, attributes = jax.lax.map(partial(_client, law), batch)
    items = items.transpose(2, 0, 1) / -constants.noise
    return jnp.where(rows.valid, items, 0.0), attributes / -constants.noise


def _client(law: _Law, known: Known) -> tuple[Float[Array, "slots candidates"], Float[Array, " attributes"]]:
    """Costs, sums of |f - y p|, of one client."""
    n_slots = known.level.size
    weight, level = law.weights[known.level], law.levels[known.level]
    true = jnp.zeros_like(known.p), jnp.zeros(1), jnp.zeros((known.p.shape[0], 1, known.p.shape[1]))
    known = known._replace(p=_moved(law, known, *true)[:, 0])
    whole = None
    if n_slots > FEW and law.model.clip is None:
        whole = _curve(law, known.p, known.items, known.factors, known.sent, weight, level)

    def of_items(p: Array) -> Array:
        """All items' rows at factors p (rounds, candidates, K)."""
        if whole is not None:
            return whole.at(p - known.p[:, None])
        shape = p.shape[1], n_slots
        answer = jnp.broadcast_to(weight, shape), jnp.broadcast_to(level, shape)
        return _distance(law, known.items, known.factors, known.sent, p, *answer)

    def of_attributes(p: Array, active: Array) -> Array:
        ones = jnp.ones_like(active)
        return _distance(law, known.attributes, law.attribute_factors, known.attributes_sent, p, ones, active)

    def item(slot: Array) -> Array:
        f, q, sent = (column[..., slot][..., None] for column in (known.items, known.factors, known.sent))
        own = weight[slot][None], level[slot][None]
        heavier = law.weights - own[0]
        pulled = law.weights * law.levels - own[0] * own[1]
        p = _moved(law, known, q[..., 0], heavier, pulled[:, None] * q[:, None, :, 0])
        if whole is None:
            before = _distance(law, f, q, sent, p, *(jnp.broadcast_to(part, (p.shape[1], 1)) for part in own))
        else:
            before = _curve(law, known.p, f, q, sent, *own).at(p - known.p[:, None])
        after = _distance(law, f, q, sent, p, law.weights[:, None], law.levels[:, None])
        active = jnp.broadcast_to(known.active, (p.shape[1], known.active.size))
        return of_items(p) - before + after + of_attributes(p, active)

    items = jax.lax.map(item, jnp.arange(n_slots))
    if not law.model.blocks:
        return items, jnp.zeros(0)
    block = np.array(law.model.blocks)
    same, loose = jnp.asarray(block[:, None] == block), jnp.array(law.model.loose)[block]

    def attribute(column: Array) -> Array:
        """Active, against the truth; against "inactive" where the column is no part of a block."""
        cleared = jnp.where(same[column], 0.0, known.active)
        active = jnp.stack([jnp.where(loose[column], cleared, known.active), cleared.at[column].set(1.0)])
        pulled = jnp.einsum("tka,va->tvk", law.attribute_factors, active - known.active)
        pulled = jnp.asarray(law.constants.lambda_attributes) * pulled
        p = _moved(law, known, jnp.zeros_like(known.p), jnp.zeros(2), pulled)
        cost = of_items(p) + of_attributes(p, active)
        return cost[1] - cost[0]

    return items, jax.lax.map(attribute, jnp.arange(block.size))


def _distance(
    law: _Law,
    rows: Float[Array, "rounds K slots"],
    factors: Float[Array, "rounds K slots"],
    sent: Array,
    p: Float[Array, "rounds candidates K"],
    weight: Float[Array, "candidates slots"],
    level: Float[Array, "candidates slots"],
) -> Float[Array, " candidates"]:
    """sum over rounds, rows and coordinates of |f - y p|."""
    y = weight * (level - jnp.einsum("tvk,tks->tvs", p, factors))
    if law.model.clip is not None:
        most = law.model.clip / jnp.maximum(jnp.abs(p).sum(axis=-1), 1e-30)[..., None]
        y = jnp.clip(y, -most, most)
    away = jnp.zeros_like(y)
    for k in range(rows.shape[1]):  # one fused loop
        away = away + jnp.abs(rows[:, None, k] - y * p[:, :, k, None])
    return jnp.sum(jnp.where(sent[:, None], away, 0.0), axis=(0, 2))


def _moved(
    law: _Law,
    known: Known,
    q: Float[Array, "rounds K"],
    heavier: Float[Array, " candidates"],
    pulled: Float[Array, "rounds candidates K"],
) -> Float[Array, "rounds candidates K"]:
    """p if Q'CQ had ``heavier`` q q' more, and Q'Cr + lambda_1 U'x ``pulled`` more."""
    eye, constants = jnp.eye(q.shape[1]), law.constants
    if law.model.tied:  # (8), by Sherman and Morrison
        inverse = jnp.linalg.inv(known.square + constants.lambda_factors * eye)
        straight = known.p[:, None] + jnp.einsum("tkl,tvl->tvk", inverse, pulled)
        aside = jnp.einsum("tkl,tl->tk", inverse, q)
        lean = heavier * jnp.einsum("tk,tvk->tv", q, straight)
        lean = lean / (1 + heavier * jnp.einsum("tk,tk->t", q, aside)[:, None])
        return straight - lean[..., None] * aside[:, None]

    def step(p: Array, part: tuple[Array, ...]) -> tuple[Array, Array]:
        new, told, square, right, q, pulled = part
        p = jnp.where(new, told, p)
        pull = right - p @ square.T + pulled - (heavier * (p @ q))[:, None] * q
        rate, ridge = jnp.asarray(constants.rate), constants.lambda_factors
        return (1 - 2 * rate * ridge) * p + 2 * rate * pull, p

    start = jnp.zeros((heavier.size, q.shape[1]))
    parts = jnp.array(law.model.starts), known.p, known.square, known.right, q, pulled
    return jax.lax.scan(step, start, parts)[1]


class _Curve(NamedTuple):
    """A cost as a quadratic of how far p moves: slope (rounds, K), curvature (rounds, K, K)."""

    slope: Array
    curvature: Array

    def at(self, moved: Float[Array, "rounds candidates K"]) -> Float[Array, " candidates"]:
        """How much the cost grows."""
        bent = jnp.einsum("tvk,tkl,tvl->v", moved, self.curvature, moved)
        return jnp.einsum("tk,tvk->v", self.slope, moved) + 0.5 * bent


def _curve(
    law: _Law,
    p: Float[Array, "rounds K"],
    rows: Float[Array, "rounds K slots"],
    factors: Float[Array, "rounds K slots"],
    sent: Array,
    weight: Float[Array, " slots"],
    level: Float[Array, " slots"],
) -> _Curve:
    """Of sum |f - y p| over some rows of items, around the truth.

    d(y p)/dp = y I - c p q'. Under Laplace noise of scale b a coordinate's |f - y p| grows by at most
    (change)^2 / 2b on average.
    """
    y = jnp.where(sent, weight * (level - jnp.einsum("tk,tks->ts", p, factors)), 0.0)
    c = jnp.where(sent, weight, 0.0)
    sign = jnp.sign(rows - y[:, None] * p[..., None])
    lean = c * jnp.einsum("tk,tks->ts", p, sign)
    slope = jnp.einsum("ts,tks->tk", lean, factors) - jnp.einsum("ts,tks->tk", y, sign)
    cross = jnp.einsum("tk,tl->tkl", jnp.einsum("ts,tks->tk", y * c, factors), p)
    square = jnp.einsum("ts,tks,tls->tkl", c**2, factors, factors)
    curvature = jnp.sum(y**2, axis=1)[:, None, None] * jnp.eye(p.shape[1])
    curvature += jnp.sum(p**2, axis=1)[:, None, None] * square - cross - cross.swapaxes(1, 2)
    return _Curve(slope, curvature / law.constants.noise)
