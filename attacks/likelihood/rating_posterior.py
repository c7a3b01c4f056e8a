"""Soft decoding of noisy uploads: who rated what, given a distribution over the client's factor.

Paper 000, Eq. (8)-(10), (18), (22). A client's rating or attribute z has weight
c(z) (alpha for "unrated", else 1) and in round t uploads f = y p + noise with y = c(z) (z - p . q) and
independent noise on every coordinate, Laplace's of scale b unless the manifest names another law
(``attacks.likelihood.noise_laws``). Ratings and attributes are the same in all rounds; p^t follows from them.
Given p^t the rows are independent, so their posteriors are exact. What is left is one K-dimensional unknown
per client:

- semi-als: sum_j y_j q_j + lambda_1 sum_a y_a u_a = lambda_2 p (8) ties p to the ratings. Given the
  rows' posteriors the sum is nearly normal (many independent terms), with the mean m^t and covariance
  that the posteriors give. ``lam`` is the tilt exp(y q . lam) of those posteriors that moves the sum: the
  saddlepoint of the exact sum over all rating vectors, one lam for all rounds (q averaged over them);
- sgd: p at the start of every run of consecutive rounds; (9), (10) carry it on. If constants are missing,
  or for semi-als without lambda_2, every round is a run of its own.

Maximisation alternates posteriors and a damped Newton step in lam, with the noise annealed. All
functions are batched over clients and traced once per shape. Arrays with one entry per row have the
slots last and the clients before them, so that loops over slots are the inner, vectorised ones; they are
in the precision of ``Rows``, what is left per client is in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from attacks.likelihood.batches import Rows
from attacks.likelihood.noise_laws import LAPLACE, Law
from attacks.likelihood.rating_prior import log_shares
from victims.transcript.manifest import Manifest

jax.config.update("jax_enable_x64", True)

DAMPING = 0.7
LARGEST = 1e6  # coordinate of a client's factor or tilt
LEAST_VARIANCE = 0.02  # of a row in the tilt's covariance, so that near-certain rows bound the tilt
COMPLETE_SHARE = 0.5  # of the complete-data information in the Newton metric (1 is EM, 0 is BHHH)
AnyArray = Array | np.ndarray
SPAN = 4.0  # ratings are measured in quarters of the grid's span where priors are tilted


@dataclass(frozen=True)
class Layer:
    """What is fixed while a view is decoded; hashable, because compiled functions depend on it.

    Attributes
    ----------
    tied : bool
        p follows from the answers by (8); otherwise p is free at the start of each run.
    runs : tuple of int
        Run of each round; a single one where p is tied.
    levels : tuple of float
        Candidates for an item: 0 for unrated first, where it is one.
    weighted : tuple of bool
        Which candidates have weight alpha.
    blocks : tuple of int
        One-hot block of each attribute.
    loose : tuple of bool
        Blocks of a single attribute outside all groups, which may be inactive.
    clip : float or None
        Norm (the law's) that the clients clip their rows to before they add noise.
    law : Law
        Of the noise.
    """

    tied: bool
    runs: tuple[int, ...]
    levels: tuple[float, ...]
    weighted: tuple[bool, ...]
    blocks: tuple[int, ...]
    loose: tuple[bool, ...]
    clip: float | None = None
    law: Law = LAPLACE

    @property
    def n_runs(self) -> int:
        """Number of runs of rounds that the update rule connects."""
        return self.runs[-1] + 1

    @property
    def starts(self) -> tuple[bool, ...]:
        """Whether each round is the first of its run."""
        return tuple(a != b for a, b in zip(self.runs, (-1, *self.runs[:-1]), strict=True))

    @property
    def tilts(self) -> tuple[int, int]:
        """How many features a client's and an item's own tilts of the prior multiply.

        Items have too few raters to show a dispersion; and where p is free its length is open, which a
        dispersion of the client's own would leave more open still.
        """
        return (3 if self.tied else 2), 2

    def features(self) -> Float[np.ndarray, "candidates 3"]:
        """What tilts of the prior multiply: is rated; the rating's place on the grid from -SPAN/2 to
        SPAN/2; its square, less what the first two tell of it in typical ratings (0 for unrated)."""
        levels = np.array(self.levels)
        rated = levels > 0
        lowest, highest = levels[rated].min(), levels.max()
        place = SPAN * ((levels - lowest) / max(highest - lowest, 1e-300) - 0.5)
        if highest == lowest:
            place = np.zeros_like(levels)
        known = np.stack([np.ones(place.shape), place], axis=1)
        root = np.sqrt(np.exp(log_shares(levels[rated])))[:, None]
        fit = np.linalg.lstsq(root * known[rated], root[:, 0] * place[rated] ** 2, rcond=None)[0]
        return np.stack([rated * 1.0, rated * place, rated * (place**2 - known @ fit)], axis=1)


def layer(
    manifest: Manifest,
    rounds: Int[np.ndarray, " rounds"],
    *,
    tied: bool,
    linked: bool,
    clip: float | None = None,
    law: Law = LAPLACE,
) -> Layer:
    """The layer of a view; ``linked`` says that consecutive rounds are connected by (9), (10)."""
    blocks = np.full(manifest.n_attributes, -1)
    loose: list[bool] = []
    for group in manifest.attribute_groups:
        if group:
            blocks[list(group)] = len(loose)
            loose.append(False)
    for column in np.flatnonzero(blocks < 0):
        blocks[column] = len(loose)
        loose.append(True)
    breaks = np.diff(rounds) != 1 if linked else np.full(rounds.size - 1, not tied)
    runs = np.concatenate([[0], np.cumsum(breaks)]).astype(int)
    unrated = [0.0] if manifest.weighting == "include-unrated" else []
    levels = [*unrated, *manifest.rating_levels]
    return Layer(
        tied,
        tuple(runs.tolist()),
        tuple(float(level) for level in levels),
        tuple([True] * len(unrated) + [False] * len(manifest.rating_levels)),
        tuple(blocks.tolist()),
        tuple(loose),
        clip,
        law,
    )


class Constants(NamedTuple):
    """lambda_1, lambda_2, gamma, alpha and the noise scale (stars), scalars."""

    lambda_attributes: Float[Array, ""]
    lambda_factors: Float[Array, ""]
    rate: Float[Array, ""]
    alpha: Float[Array, ""]
    noise: Float[Array, ""]


class Prior(NamedTuple):
    """log pi_ij(z) = level_z + features(z) . (a_i + a_j), and attributes.

    level (candidates,); user (users, 2 or 3) and item (items, 2): the tilts a of activity, mean and
    dispersion (``Layer.tilts``); attribute (attributes,) or (users, attributes): log odds inside a block;
    start_mean (L,), start_precision (L, L): normal law of the free factors.
    """

    level: Float[Array, " candidates"]
    user: Float[Array, "users user_tilts"]
    item: Float[Array, "items item_tilts"]
    attribute: Float[Array, "*users attributes"]
    start_mean: Float[Array, " L"]
    start_precision: Float[Array, "L L"]


class Point(NamedTuple):
    """Where the decoder stands: p (users, rounds, K) and lam (users, L)."""

    p: Float[Array, "users rounds K"]
    lam: Float[Array, "users L"]


class Answers(NamedTuple):
    """Posterior over candidates: items (candidates, users, slots), attributes (users, attributes)."""

    items: Float[Array, "candidates users slots"]
    attributes: Float[Array, "users attributes"]


@partial(jax.jit, static_argnums=0)
def log_prior(layer: Layer, prior: Prior, rows: Rows) -> Float[Array, "candidates users slots"]:
    """Log prior of every slot, normalised, in the precision of the rows."""
    features, item = layer.features(), jnp.asarray(prior.item)
    logits = prior.level[:, None, None]
    for owner, width in zip((prior.user[:, None], item[rows.item]), layer.tilts, strict=True):
        for number in range(width):  # not a matrix product, which XLA fuses wrongly here (jaxlib 0.10.2)
            logits += jnp.asarray(features)[:, number, None, None] * owner[..., number]
    return jax.nn.log_softmax(logits, axis=0).astype(rows.items.dtype)


class _Kind(NamedTuple):
    """One kind of row: candidate values and weights, rows, broadcast factors, which rows were sent."""

    levels: Float[Array, " candidates"]
    weights: Float[Array, " candidates"]
    rows: Float[AnyArray, "rounds users K slots"]
    factors: Float[AnyArray, "rounds users K slots"]
    sent: AnyArray
    cap: float | None
    law: Law

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


def _items(layer: Layer, constants: Constants, rows: Rows) -> _Kind:
    kind = rows.items.dtype
    weights = jnp.where(jnp.array(layer.weighted), constants.alpha, 1.0)
    levels = jnp.array(layer.levels)
    values, weights = levels.astype(kind), weights.astype(kind)
    return _Kind(values, weights, rows.items, rows.factors, rows.sent, layer.clip, layer.law)


def _attributes(layer: Layer, own: Array, rows: Rows) -> _Kind:
    kind = rows.items.dtype
    factors = jnp.broadcast_to(own.astype(kind)[:, None], rows.attributes.shape)
    levels = jnp.array([0.0, 1.0], kind)
    sent = rows.attributes_sent
    return _Kind(levels, jnp.ones(2, kind), rows.attributes, factors, sent, layer.clip, layer.law)


def _distance(kind: _Kind, p: Array) -> Float[Array, "candidates users slots"]:
    """sum over rounds and coordinates of loss(f - y p) - loss(f): against a row that says nothing."""
    p = p.swapaxes(0, 1).astype(kind.rows.dtype)

    def add(total: Array, part: tuple[Any, ...]) -> tuple[Array, None]:
        rows, factors, sent, p = part
        y = kind.clipped(kind.y(slice(None), kind.predicted(factors, p)), p)
        away = jnp.zeros_like(total)
        # coordinates one by one: one fused loop over slots, with nothing of the size of the rows written
        for k in range(rows.shape[1]):
            f = rows[:, k]
            away = away + kind.law.gain(f, y * p[:, k, None])
        return total + jnp.where(sent, away, 0), None

    shape = kind.levels.shape + kind.rows.shape[1:2] + kind.rows.shape[3:]
    return jax.lax.scan(add, jnp.zeros(shape, kind.rows.dtype), (kind.rows, kind.factors, kind.sent, p))[0]


def posterior_attributes(layer: Layer, odds: Array) -> tuple[Array, Array]:
    """Softmax inside each block, of the log odds of each column being active; and its log norm."""
    block = np.array(layer.blocks)
    inside = block[:, None] == np.arange(len(layer.loose))
    none = np.array(layer.loose, np.float64)
    top = jnp.max(jnp.where(inside, odds[..., None], -jnp.inf), axis=1)
    top = jnp.where(none > 0, jnp.maximum(top, 0.0), top)
    weight = jnp.exp(odds - top[:, block])
    total = weight @ inside.astype(np.float64) + none * jnp.exp(-top)
    return weight / total[:, block], top + jnp.log(total)


class Fit(NamedTuple):
    """Posteriors at a point; all sums are relative to uploads that say nothing.

    log_likelihood (users,): tilted, of the uploads given p; distance (users,): expected loss of
    f - y p less that of f.
    """

    answers: Answers
    log_likelihood: Float[Array, " users"]
    distance: Float[Array, " users"]


def decode(
    layer: Layer,
    own: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
    assumed: Float[Array, "candidates users slots"],
    point: Point,
) -> Fit:
    """Posterior of every row given p, with the tilt lam where p is tied; ``assumed`` is the log prior."""
    p, unit = point.p, layer.law.unit(constants.noise)
    kind = rows.items.dtype
    away = _distance(_items(layer, constants, rows), p)
    logits = assumed - away / unit.astype(kind)
    if layer.tied:
        pull = jnp.einsum("ukr,uk->ur", rows.middle, point.lam.astype(kind))
        logits = logits + pulls(layer, rows, constants, p) * pull
    norm = logsumexp(logits, axis=0)
    items = jnp.exp(logits - norm) * rows.valid
    fit = jnp.sum(jnp.where(rows.valid, norm, 0.0), axis=-1, dtype=jnp.float64)
    distance = jnp.sum(jnp.sum(items * away, axis=0), axis=-1, dtype=jnp.float64)
    attributes = jnp.zeros((p.shape[0], 0))
    if layer.blocks:
        own = jnp.asarray(own)
        off, on = _distance(_attributes(layer, own, rows), p).astype(jnp.float64)
        odds = prior.attribute - (on - off) / unit
        if layer.tied:
            odds = odds + constants.lambda_attributes * point.lam @ own.mean(axis=0)
        attributes, log_norm = posterior_attributes(layer, odds)
        empty = posterior_attributes(layer, jnp.atleast_2d(prior.attribute))[1]
        fit += (log_norm - empty).sum(axis=-1) - off.sum(axis=-1) / unit
        distance += jnp.sum(off + attributes * (on - off), axis=-1)
    return Fit(Answers(items, attributes), fit, distance)


def pulls(layer: Layer, rows: Rows, constants: Constants, p: Array) -> Float[Array, "candidates users slots"]:
    """y of every candidate at the mean over rounds: what a row adds to the sum in (8)."""
    items = _items(layer, constants, rows)
    predicted = jnp.einsum("ukr,uk->ur", rows.middle, p.mean(axis=1).astype(rows.middle.dtype))
    return items.weights[:, None, None] * (items.levels[:, None, None] - predicted)


class Link(NamedTuple):
    """p^t = mean + basis (lam - lam_now), and the precision of lam a priori."""

    mean: Float[Array, "users rounds K"]
    basis: Float[Array, "users rounds K L"]
    precision: Float[Array, "users L L"]


class Slope(NamedTuple):
    """Gradient and information of the marginal likelihood with respect to lam.

    back: complete information times the distance of p from the curve p = mean; complete: information if
    the answers were known; observed: sum of outer products of the rows' marginal scores (BHHH), with the
    basis averaged over each run.
    """

    gradient: Float[Array, "users L"]
    back: Float[Array, "users L"]
    complete: Float[Array, "users L L"]
    observed: Float[Array, "users L L"]


class _Sums(NamedTuple):
    """Sums over the rows of one kind.

    score (rounds, users, K): of the marginal likelihood in p^t, times the law's unit; info (rounds, users, K,
    K): of the complete data, times the scale squared; outer (users, L, L): of the rows' scores in lam, summed
    over the rounds of a run, times the unit squared.
    """

    score: Array
    info: Array
    outer: Array


def _scores(
    layer: Layer, kind: _Kind, p: Array, answers: Array, squares: Array, average: Array, inside: Array | None
) -> _Sums:
    """Score of each row under its posterior; ``squares`` is sum of E[c^2] q q' (rounds, users, K, K),
    ``average`` (users, runs x K, L) what lam does to p in each run.

    d(y p)/dp = y I - c p q', and the log-density has the derivative score(f - y p) / unit, Laplace's sign(f -
    y p) / b. A clipped row is y' p with y' = +-C / |p|, and d(y' p)/dp = y' (I - p (d|p|/dp)' / |p|).
    """
    dtype = kind.rows.dtype
    n_users, k = kind.rows.shape[1:3]
    p = p.swapaxes(0, 1).astype(dtype)
    runs, ones = jnp.array(layer.runs), jnp.ones(kind.rows.shape[3], dtype)

    def add(total: Array, part: tuple[Any, ...]) -> tuple[Array, tuple[Array, Array, Array, Array]]:
        rows, factors, sent, p, run = part
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
        lean = jnp.einsum("ur,ukr->uk", jnp.where(sent, lean, 0), factors)
        # a product, not a sum: it is not fused with what computes the scores, which would do so twice
        gradient = jnp.einsum("ukr,r->uk", score, ones)
        total = total + score if layer.n_runs == 1 else total.at[run].add(score)
        return total, (gradient, energy, lean, p)

    shape = n_users, k, kind.rows.shape[3]
    start = jnp.zeros(shape if layer.n_runs == 1 else (layer.n_runs, *shape), dtype)
    total, (score, energy, lean, p) = jax.lax.scan(add, start, (kind.rows, kind.factors, kind.sent, p, runs))
    score, energy, lean, p = (a.astype(jnp.float64) for a in (score, energy, lean, p))
    cross = lean[..., :, None] * p[..., None, :]
    info = energy[..., None, None] * jnp.eye(k) - cross - cross.swapaxes(-1, -2)
    info += jnp.sum(p * p, axis=-1)[..., None, None] * squares
    if layer.n_runs > 1:
        total = total.swapaxes(0, 1).reshape(n_users, layer.n_runs * k, -1)
    if inside is not None:
        total = total @ inside.astype(dtype)
    if layer.n_runs > 1:  # many more rows than L: not their products, but those of what lam does to them
        total = average.astype(dtype).swapaxes(1, 2) @ total
        return _Sums(score, info, (total @ total.swapaxes(1, 2)).astype(jnp.float64))
    outer = jnp.einsum("ukr,ulr->ukl", total, total).astype(jnp.float64)
    return _Sums(score, info, average.swapaxes(1, 2) @ outer @ average)


def _gram(factors: AnyArray, share: Array, other: AnyArray | None = None) -> Float[Array, "rounds users K K"]:
    """sum over slots of share q q' (or q other') in every round."""

    def one(q: Array) -> Array:
        weighted = q * share[:, None]
        return (weighted @ (q if other is None else other).swapaxes(1, 2)).astype(jnp.float64)

    return jax.lax.map(one, jnp.asarray(factors))


class Fixed(NamedTuple):
    """Sums of q q' and u u' that do not depend on the answers, (rounds, users, K, K) and (rounds, K, K).

    items: sum over rated items of q q'; None where the weight of an item depends on the answer.
    """

    items: Array | None
    attributes: Array


def fixed(layer: Layer, own: AnyArray, rows: Rows) -> Fixed:
    """What can be summed once per climb."""
    own = jnp.asarray(own)
    attributes = jnp.einsum("tka,tla->tkl", own, own)
    if any(layer.weighted):
        return Fixed(None, attributes)
    return Fixed(_gram(rows.factors, jnp.asarray(rows.valid, rows.factors.dtype)), attributes)


def normal_equations(
    layer: Layer, own: AnyArray, rows: Rows, constants: Constants, answers: Answers, known: Fixed
) -> tuple[Float[Array, "users rounds K K"], Float[Array, "users rounds K"]]:
    """Q'CQ + lambda_1 U'U and Q'Cr + lambda_1 U'x of (8) at the posterior means, without lambda_2."""
    items = _items(layer, constants, rows)
    share = jnp.einsum("v,vur->ur", items.weights, answers.items)
    target = jnp.einsum("v,vur->ur", items.weights * items.levels, answers.items)
    first = constants.lambda_attributes
    square = _gram(rows.factors, share) if known.items is None else known.items
    square = square.swapaxes(0, 1) + first * known.attributes
    right = jnp.einsum("tukr,ur->utk", rows.factors, target).astype(jnp.float64)
    right += first * jnp.einsum("ua,tka->utk", answers.attributes, jnp.asarray(own))
    return square, right


def link(
    layer: Layer,
    own: AnyArray,
    rows: Rows,
    constants: Constants,
    prior: Prior,
    p: Array,
    answers: Answers,
    known: Fixed,
) -> Link:
    """What the update rule says about p^t given soft answers: (8) or the steps (9), (10)."""
    square, right = normal_equations(layer, own, rows, constants, answers, known)
    if layer.tied:
        return _tied(layer, jnp.asarray(own), rows, constants, p, answers, square, right)
    return _free(layer, constants, prior, square, right)


def _tied(
    layer: Layer,
    own: Array,
    rows: Rows,
    constants: Constants,
    p: Array,
    answers: Answers,
    square: Array,
    right: Array,
) -> Link:
    k = right.shape[-1]
    inverse = jnp.linalg.inv(square + constants.lambda_factors * jnp.eye(k))
    pull = pulls(layer, rows, constants, p)
    average = jnp.sum(answers.items * pull, axis=0)
    spread = jnp.sum(answers.items * (pull - average) ** 2, axis=0) + LEAST_VARIANCE
    across = _gram(rows.factors, spread, rows.middle).swapaxes(0, 1)
    precision = ((rows.middle * spread[:, None]) @ rows.middle.swapaxes(1, 2)).astype(jnp.float64)
    if layer.blocks:
        block = np.array(layer.blocks)
        same = (block[:, None] == block).astype(np.float64)
        x = answers.attributes
        covariance = jnp.eye(x.shape[1]) * x[:, :, None] - same * x[:, :, None] * x[:, None, :]
        middle = own.mean(axis=0).T
        half = constants.lambda_attributes**2 * covariance @ middle
        across += jnp.einsum("tka,ual->utkl", own, half)
        precision += jnp.einsum("ak,ual->ukl", middle, half)
    mean = jnp.einsum("utkl,utl->utk", inverse, right)
    return Link(mean, inverse @ across, precision + 1e-9 * jnp.eye(k))


def _free(layer: Layer, constants: Constants, prior: Prior, square: Array, right: Array) -> Link:
    n_users, _, k = right.shape
    size = layer.n_runs * k
    rate = constants.rate

    def carry(
        state: tuple[Array, Array], part: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        run, new, square, right = part
        mean, basis = state
        fresh = jax.lax.dynamic_update_slice(jnp.zeros((k, size)), jnp.eye(k), (0, run * k))
        mean = jnp.where(new, 0.0, mean)
        basis = jnp.where(new, fresh, basis)
        step = (1 - 2 * rate * constants.lambda_factors) * jnp.eye(k) - 2 * rate * square
        then = jnp.einsum("ukl,ul->uk", step, mean) + 2 * rate * right
        return (then, step @ basis), (mean, basis)

    state = jnp.zeros((n_users, k)), jnp.zeros((n_users, k, size))
    parts = jnp.array(layer.runs), jnp.array(layer.starts), square.swapaxes(0, 1), right.swapaxes(0, 1)
    _, (mean, basis) = jax.lax.scan(carry, state, parts)
    precision = jnp.broadcast_to(prior.start_precision, (n_users, size, size))
    return Link(mean.swapaxes(0, 1), basis.swapaxes(0, 1), precision)


def slope(
    layer: Layer,
    own: AnyArray,
    rows: Rows,
    constants: Constants,
    p: Array,
    answers: Answers,
    link: Link,
    known: Fixed,
) -> Slope:
    """Gradient and information of the marginal likelihood of the uploads with respect to lam."""
    items = _items(layer, constants, rows)
    squares = known.items
    if squares is None:
        squares = _gram(rows.factors, jnp.einsum("v,vur->ur", items.weights**2, answers.items))
    basis = link.basis
    member = np.array(layer.runs)[:, None] == np.arange(layer.n_runs)
    average = jnp.einsum("utkl,tg->ugkl", basis, member / member.sum(axis=0))
    average = average.reshape(basis.shape[0], -1, basis.shape[3])
    sums = _scores(layer, items, p, answers.items, squares, average, None)
    if layer.blocks:
        x = answers.attributes
        both = jnp.stack([1 - x, x]).astype(items.rows.dtype)
        inside = jnp.array(layer.blocks)[:, None] == jnp.arange(len(layer.loose))
        kind = _attributes(layer, jnp.asarray(own), rows)
        more = _scores(layer, kind, p, both, known.attributes[:, None], average, inside)
        sums = jax.tree.map(lambda a, b: a + b, sums, more)
    score, info = sums.score.swapaxes(0, 1), sums.info.swapaxes(0, 1)
    lifted = jnp.einsum("utkl,utkm->utlm", basis, info)
    scale, unit = constants.noise, layer.law.unit(constants.noise)
    return Slope(
        jnp.einsum("utkl,utk->ul", basis, score) / unit,
        jnp.einsum("utlm,utm->ul", lifted, p - link.mean) / scale**2,
        jnp.einsum("utlm,utmn->uln", lifted, basis) / scale**2,
        sums.outer / unit**2,
    )


def metric(slope: Slope, share: float) -> Float[Array, "users L L"]:
    """Information for a Newton step; ``share`` of it as if the answers were known."""
    return share * slope.complete + (1 - share) * slope.observed


@partial(jax.jit, static_argnums=0)
def climb(
    layer: Layer,
    own: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
    assumed: Float[Array, "candidates users slots"],
    point: Point,
    steps: Int[AnyArray, ""],
    heat: Float[AnyArray, ""],
) -> Point:
    """``steps`` rounds of posteriors and Newton; the noise cools from ``heat`` times its scale on the way."""
    cooling = jnp.maximum(1, (2 * steps) // 3)
    known = fixed(layer, own, rows)

    def step(number: Array, point: Point) -> Point:
        warmth = heat ** jnp.maximum(0.0, 1 - number / cooling)
        now = constants._replace(noise=constants.noise * warmth)
        answers = decode(layer, own, rows, now, prior, assumed, point).answers
        linked = link(layer, own, rows, now, prior, point.p, answers, known)
        steepness = slope(layer, own, rows, now, point.p, answers, linked, known)
        curvature = metric(steepness, COMPLETE_SHARE)
        here = point.lam
        right = steepness.gradient + jnp.einsum("ulm,um->ul", curvature, here)
        if layer.tied:
            right, origin = right + COMPLETE_SHARE * steepness.back, here
        else:
            right, origin = right + prior.start_precision @ prior.start_mean, jnp.zeros_like(here)
        lam = jnp.linalg.solve(linked.precision + curvature, right[..., None])[..., 0]
        p = linked.mean + jnp.einsum("utkl,ul->utk", linked.basis, lam - origin)
        new = Point(point.p + DAMPING * (p - point.p), here + DAMPING * (lam - here))
        # a client whose equations are singular or explode stays where it is
        size = jnp.abs(new.p).max(axis=(1, 2)) + jnp.abs(new.lam).max(axis=1)
        sane = size < LARGEST
        return Point(
            jnp.where(sane[:, None, None], new.p, point.p), jnp.where(sane[:, None], new.lam, point.lam)
        )

    return jax.lax.fori_loop(0, steps, step, point)


@partial(jax.jit, static_argnums=0)
def start_from_prior(
    layer: Layer,
    own: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
) -> Float[Array, "users rounds K"]:
    """The factor that (8) gives to a client whose answers are the prior's means."""
    items = jnp.exp(log_prior(layer, prior, rows)) * rows.valid
    _, n_users, k, _ = rows.items.shape
    attributes = jnp.zeros((n_users, 0))
    if layer.blocks:
        odds = jnp.broadcast_to(prior.attribute, (n_users, prior.attribute.shape[-1]))
        attributes = posterior_attributes(layer, odds)[0]
    answers, known = Answers(items, attributes), fixed(layer, own, rows)
    square, right = normal_equations(layer, own, rows, constants, answers, known)
    square += constants.lambda_factors * jnp.eye(k)
    return jnp.linalg.solve(square, right[..., None])[..., 0]


@jax.jit
def shift_of_one(rows: Rows) -> Float[Array, "users rounds K"]:
    """The change of p that raises p . q by one on all rated slots, in least squares."""
    square = _gram(rows.factors, jnp.asarray(rows.valid, rows.factors.dtype)).swapaxes(0, 1)
    k = square.shape[-1]
    ridge = 1e-3 * jnp.trace(square, axis1=2, axis2=3)[..., None, None] / k + 1e-12
    total = jnp.sum(rows.factors, axis=-1).swapaxes(0, 1).astype(jnp.float64)
    return jnp.linalg.solve(square + ridge * jnp.eye(k), total[..., None])[..., 0]


@partial(jax.jit, static_argnums=0)
def line(
    layer: Layer,
    own: Float[AnyArray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    prior: Prior,
    assumed: Float[Array, "candidates users slots"],
    direction: Float[AnyArray, "users K"],
    lengths: Float[AnyArray, " lengths"],
) -> Float[Array, "lengths users"]:
    """Marginal log-likelihood of the uploads at p = length x direction, the same in all rounds."""
    n_rounds, n_users, k, _ = rows.items.shape
    lam = jnp.zeros((n_users, k if layer.tied else layer.n_runs * k))

    def at(length: Array) -> Array:
        p = jnp.broadcast_to((length * direction)[:, None], (n_users, n_rounds, k))
        return decode(layer, own, rows, constants, prior, assumed, Point(p, lam)).log_likelihood

    return jax.lax.map(at, jnp.asarray(lengths))
