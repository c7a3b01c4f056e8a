"""Gradient and Fisher information of the marginal likelihood of the uploads."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.likelihood.batches import Rows
from attacks.likelihood.model import Answers, AnyArray, Constants, Model
from attacks.likelihood.observation import RowKind, attribute_rows, item_rows
from attacks.likelihood.update_rule import FixedSums, Link, gram


class Score(NamedTuple):
    """Gradient and information of the marginal likelihood with respect to lam."""

    gradient: Float[Array, "users L"]
    off_rule: Float[Array, "users L"]  # complete information times the distance of p from the curve p = mean
    complete: Float[Array, "users L L"]  # information if the answers were known
    # sum of outer products of the rows' marginal scores (BHHH), with the basis averaged over each run
    observed: Float[Array, "users L L"]


class _ScoreSums(NamedTuple):
    """Sums over the rows of one kind.

    score (rounds, users, K): of the marginal likelihood in p^t, times the law's unit; info (rounds, users, K,
    K): of the complete data, times the scale squared; outer (users, L, L): of the rows' scores in lam, summed
    over the rounds of a run, times the unit squared.
    """

    score: Array
    info: Array
    outer: Array


class _RoundScores(NamedTuple):
    """Of one round: score (users, K, slots) of each row in p^t, times the law's unit; energy (users,) and
    lean (users, K), the sums of E[y^2] and of E[c y] q.
    """

    score: Array
    energy: Array
    lean: Array


def _of_round(
    kind: RowKind, answers: AnyArray, rows: Array, factors: Array, sent: Array, p: Array
) -> _RoundScores:
    """Scores of the rows of one round under their posteriors.

    d(y p)/dp = y I - c p q', and the log-density has the derivative score(f - y p) / unit, Laplace's sign(f -
    y p) / b. A clipped row is y' p with y' = +-C / |p|, and d(y' p)/dp = y' (I - p (d|p|/dp)' / |p|).
    """
    predicted = kind.predicted(factors, p)
    turned, straight = jnp.zeros_like(rows), jnp.zeros_like(rows)
    bound_part = jnp.zeros_like(rows)
    energy, lean = jnp.zeros_like(predicted), jnp.zeros_like(predicted)
    for v in range(kind.levels.size):
        y = kind.y(v, predicted)
        cut = kind.clipped(y, p)
        left = kind.law.score(rows - cut[:, None] * p[:, :, None])
        share = answers[v] * kind.weights[v]
        if kind.cap is not None:
            bound = cut != y
            bound_part += jnp.where(bound, answers[v] * cut, 0)[:, None] * left
            share = jnp.where(bound, 0, share)
        turned += share[:, None] * left
        straight += (answers[v] * cut)[:, None] * left
        energy += answers[v] * cut**2
        lean += share * y
    across = jnp.einsum("uk,ukr->ur", p, turned)
    score = straight - across[:, None] * factors
    if kind.cap is not None:
        size = jnp.maximum(kind.law.norm(p), 1e-30)
        along = jnp.einsum("uk,ukr->ur", p, bound_part) / size[:, None]
        score -= along[:, None] * kind.law.norm_slope(p)[:, :, None]
    score = jnp.where(sent[:, None], score, 0)
    energy = jnp.sum(jnp.where(sent, energy, 0), axis=-1)
    return _RoundScores(score, energy, jnp.einsum("ur,ukr->uk", jnp.where(sent, lean, 0), factors))


def _row_scores(
    model: Model,
    kind: RowKind,
    p: AnyArray,
    answers: AnyArray,
    squares: Array,
    average: Array,
    inside: Array | None,
) -> _ScoreSums:
    """Sums over the rows of one kind; ``squares`` is sum of E[c^2] q q' (rounds, users, K, K), ``average``
    (users, runs x K, L) what lam does to p in each run, ``inside`` which attributes are one block.
    """
    dtype = kind.rows.dtype
    n_users, k = kind.rows.shape[1:3]
    p = p.swapaxes(0, 1).astype(dtype)
    runs, ones = jnp.array(model.runs), jnp.ones(kind.rows.shape[3], dtype)

    def add(total: Array, piece: tuple[Any, ...]) -> tuple[Array, tuple[Array, Array, Array, Array]]:
        rows, factors, sent, p, run = piece
        score, energy, lean = _of_round(kind, answers, rows, factors, sent, p)
        # a product, not a sum: it is not fused with what computes the scores, which would do so twice
        gradient = jnp.einsum("ukr,r->uk", score, ones)
        total = total + score if model.n_runs == 1 else total.at[run].add(score)
        return total, (gradient, energy, lean, p)

    shape = n_users, k, kind.rows.shape[3]
    start = jnp.zeros(shape if model.n_runs == 1 else (model.n_runs, *shape), dtype)
    total, (score, energy, lean, p) = jax.lax.scan(add, start, (kind.rows, kind.factors, kind.sent, p, runs))
    score, energy, lean, p = (a.astype(jnp.float64) for a in (score, energy, lean, p))
    cross = lean[..., :, None] * p[..., None, :]
    info = energy[..., None, None] * jnp.eye(k) - cross - cross.swapaxes(-1, -2)
    info += jnp.sum(p * p, axis=-1)[..., None, None] * squares
    if model.n_runs > 1:
        total = total.swapaxes(0, 1).reshape(n_users, model.n_runs * k, -1)
    if inside is not None:
        total = total @ inside.astype(dtype)
    if model.n_runs > 1:  # many more rows than L: not their products, but those of what lam does to them
        total = average.astype(dtype).swapaxes(1, 2) @ total
        return _ScoreSums(score, info, (total @ total.swapaxes(1, 2)).astype(jnp.float64))
    outer = jnp.einsum("ukr,ulr->ukl", total, total).astype(jnp.float64)
    return _ScoreSums(score, info, average.swapaxes(1, 2) @ outer @ average)


def score_of(
    model: Model,
    attribute_factors: AnyArray,
    rows: Rows,
    constants: Constants,
    p: AnyArray,
    answers: Answers,
    link: Link,
    fixed: FixedSums,
) -> Score:
    """Gradient and information of the marginal likelihood of the uploads with respect to lam."""
    items = item_rows(model, constants, rows)
    squares = fixed.items
    if squares is None:
        squares = gram(rows.factors, jnp.einsum("v,vur->ur", items.weights**2, answers.items))
    basis = link.basis
    member = np.array(model.runs)[:, None] == np.arange(model.n_runs)
    average = jnp.einsum("utkl,tg->ugkl", basis, member / member.sum(axis=0))
    average = average.reshape(basis.shape[0], -1, basis.shape[3])
    sums = _row_scores(model, items, p, answers.items, squares, average, None)
    if model.blocks:
        x = answers.attributes
        both = jnp.stack([1 - x, x]).astype(items.rows.dtype)
        inside = jnp.array(model.blocks)[:, None] == jnp.arange(len(model.loose))
        kind = attribute_rows(model, jnp.asarray(attribute_factors), rows)
        more = _row_scores(model, kind, p, both, fixed.attributes[:, None], average, inside)
        sums = jax.tree.map(lambda a, b: a + b, sums, more)
    score, info = sums.score.swapaxes(0, 1), sums.info.swapaxes(0, 1)
    lifted = jnp.einsum("utkl,utkm->utlm", basis, info)
    scale, unit = constants.noise, model.law.unit(constants.noise)
    return Score(
        jnp.einsum("utkl,utk->ul", basis, score) / unit,
        jnp.einsum("utlm,utm->ul", lifted, p - link.mean) / scale**2,
        jnp.einsum("utlm,utmn->uln", lifted, basis) / scale**2,
        sums.outer / unit**2,
    )


def fisher_information(score: Score, share: float) -> Float[Array, "users L L"]:
    """Mix the information for a Newton step from that with known answers and the observed one."""
    return share * score.complete + (1 - share) * score.observed
