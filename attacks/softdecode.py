"""Soft decoding of noisy uploads: who rated what, given a distribution over the client's factor.

Paper 000, Eq. (8)-(10), (18), (22). A client's rating or attribute z has weight
c(z) (alpha for "unrated", else 1) and in round t uploads f = y p + noise with y = c(z) (z - p . q) and
independent Laplace noise of scale b on every coordinate. Ratings and attributes are the same in all
rounds; p^t follows from them. Given p^t the rows are independent, so their posteriors are exact. What is
left is one K-dimensional unknown per client:

- semi-als: sum_j y_j q_j + lambda_1 sum_a y_a u_a = lambda_2 p (8) ties p to the ratings. Given the
  rows' posteriors the sum is nearly normal (many independent terms), with the mean m^t and covariance
  that the posteriors give. ``lam`` is the tilt exp(y q . lam) of those posteriors that moves the sum: the
  saddlepoint of the exact sum over all rating vectors, one lam for all rounds (q averaged over them);
- sgd: p at the start of every run of consecutive rounds; (9), (10) carry it on. If constants are missing,
  or for semi-als without lambda_2, every round is a run of its own.

Maximisation alternates posteriors and a damped Newton step in lam, with the noise annealed. All
functions are batched over clients, traced once per shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from attacks.packing import Public, Rows
from victims.manifest import Manifest

jax.config.update("jax_enable_x64", True)

DAMPING = 0.7
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
        Run of each round.
    levels : tuple of float
        Candidates for an item: 0 for unrated first, where it is one.
    weighted : tuple of bool
        Which candidates have weight alpha.
    blocks : tuple of int
        One-hot block of each attribute.
    loose : tuple of bool
        Blocks of a single attribute outside all groups, which may be inactive.
    """

    tied: bool
    runs: tuple[int, ...]
    levels: tuple[float, ...]
    weighted: tuple[bool, ...]
    blocks: tuple[int, ...]
    loose: tuple[bool, ...]

    @property
    def n_runs(self) -> int:
        """Number of runs of rounds that the update rule connects."""
        return self.runs[-1] + 1

    def features(self) -> Float[np.ndarray, "candidates 2"]:
        """Is rated, and the rating's place on the grid from -SPAN/2 to SPAN/2 (0 for unrated)."""
        levels = np.array(self.levels)
        rated = levels > 0
        lowest, highest = levels[rated].min(), levels.max()
        place = SPAN * ((levels - lowest) / max(highest - lowest, 1e-300) - 0.5)
        if highest == lowest:
            place = np.zeros_like(levels)
        return np.stack([rated * 1.0, np.where(rated, place, 0.0)], axis=1)


def layer(manifest: Manifest, rounds: Int[np.ndarray, " rounds"], *, tied: bool, linked: bool) -> Layer:
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
    breaks = (np.diff(rounds) != 1) | (not linked)
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
    )


class Constants(NamedTuple):
    """lambda_1, lambda_2, gamma, alpha and the noise scale b (stars), scalars."""

    lambda_attributes: Float[Array, ""]
    lambda_factors: Float[Array, ""]
    rate: Float[Array, ""]
    alpha: Float[Array, ""]
    noise: Float[Array, ""]


class Prior(NamedTuple):
    """log pi_ij(z) = level_z + rated(z) (a_i + a_j) + place(z) (h_i + h_j), and attributes.

    level (candidates,); user (users, 2) and item (items, 2): a and h; attribute (attributes,): log odds
    inside a block; start_mean (L,), start_precision (L, L): normal law of the free factors.
    """

    level: Float[Array, " candidates"]
    user: Float[Array, "users two"]
    item: Float[Array, "items two"]
    attribute: Float[Array, " attributes"]
    start_mean: Float[Array, " L"]
    start_precision: Float[Array, "L L"]


class Point(NamedTuple):
    """Where the decoder stands: p (users, rounds, K) and lam (users, L)."""

    p: Float[Array, "users rounds K"]
    lam: Float[Array, "users L"]


class Answers(NamedTuple):
    """Posterior over candidates: items (users, slots, candidates), attributes (users, attributes)."""

    items: Float[Array, "users slots candidates"]
    attributes: Float[Array, "users attributes"]


def log_prior(layer: Layer, prior: Prior, item: AnyArray) -> Float[Array, "users slots candidates"]:
    """Log prior of every slot, normalised."""
    tilt = prior.user[:, None] + prior.item[item]
    return jax.nn.log_softmax(prior.level + tilt @ layer.features().T, axis=-1)


def _weights(layer: Layer, alpha: Array) -> list[Array | float]:
    return [alpha if weighted else 1.0 for weighted in layer.weighted]


def _distance(
    rows: AnyArray, factors: Array, sent: AnyArray, p: Array, level: float, weight: Array | float
) -> Float[Array, "users slots"]:
    """sum over rounds and coordinates of |f - y p| for one candidate."""
    y = weight * (level - jnp.einsum("utrk,utk->utr", factors, p))
    away = jnp.sum(jnp.abs(rows - y[..., None] * p[:, :, None]), axis=-1)
    return jnp.sum(jnp.where(sent, away, 0.0), axis=1)


def _item_factors(public: Public, rows: Rows) -> Float[Array, "users rounds slots K"]:
    return jnp.asarray(public.items)[:, rows.item].transpose(1, 0, 2, 3) * rows.valid[:, None, :, None]


def _posterior_attributes(layer: Layer, odds: Array) -> tuple[Array, Array]:
    """Softmax inside each block, of the log odds of each column being active; and its log norm."""
    block = np.array(layer.blocks)
    inside = block[:, None] == np.arange(len(layer.loose))
    none = np.array(layer.loose, np.float64)
    top = jnp.max(jnp.where(inside, odds[..., None], -jnp.inf), axis=1)
    top = jnp.where(none > 0, jnp.maximum(top, 0.0), top)
    weight = jnp.exp(odds - top[:, block])
    total = weight @ inside.astype(np.float64) + none * jnp.exp(-top)
    return weight / total[:, block], top + jnp.log(total)


class _Fit(NamedTuple):
    answers: Answers
    log_likelihood: Float[Array, " users"]  # tilted, of the uploads given p, b's own constant left out
    distance: Float[Array, " users"]  # expected sum of |f - y p|


def _decode(
    layer: Layer, public: Public, rows: Rows, constants: Constants, prior: Prior, point: Point
) -> _Fit:
    """Posterior of every row given p, with the tilt lam where p is tied."""
    factors = _item_factors(public, rows)
    p, b = point.p, constants.noise
    weights = _weights(layer, constants.alpha)
    away = jnp.stack(
        [
            _distance(rows.items, factors, rows.items_sent, p, level, weight)
            for level, weight in zip(layer.levels, weights, strict=True)
        ],
        axis=-1,
    )
    logits = log_prior(layer, prior, rows.item) - away / b
    if layer.tied:
        pull = jnp.einsum("urk,uk->ur", factors.mean(axis=1), point.lam)
        logits = logits + _pulls(layer, factors, constants, p) * pull[..., None]
    norm = logsumexp(logits, axis=-1, keepdims=True)
    items = jnp.exp(logits - norm) * rows.valid[..., None]
    fit = jnp.sum(jnp.where(rows.valid, norm[..., 0], 0.0), axis=-1)
    distance = jnp.sum(items * away, axis=(1, 2))
    attributes = jnp.zeros((p.shape[0], 0))
    if layer.blocks:
        own = jnp.asarray(public.attributes)[None]
        off, on = (
            _distance(rows.attributes, own, rows.attributes_sent, p, value, 1.0) for value in (0.0, 1.0)
        )
        odds = prior.attribute - (on - off) / b
        if layer.tied:
            mean = jnp.asarray(public.attributes).mean(axis=0)
            odds = odds + constants.lambda_attributes * point.lam @ mean.T
        attributes, log_norm = _posterior_attributes(layer, odds)
        empty = _posterior_attributes(layer, prior.attribute[None])[1]
        fit += (log_norm - empty).sum(axis=-1) - off.sum(axis=-1) / b
        distance += jnp.sum(off + attributes * (on - off), axis=-1)
    return _Fit(Answers(items, attributes), fit, distance)


def _pulls(
    layer: Layer, factors: Array, constants: Constants, p: Array
) -> Float[Array, "users slots candidates"]:
    """y of every candidate at the mean over rounds: what a row adds to the sum in (8)."""
    predicted = jnp.einsum("urk,uk->ur", factors.mean(axis=1), p.mean(axis=1))
    weights = _weights(layer, constants.alpha)
    return jnp.stack([w * (z - predicted) for z, w in zip(layer.levels, weights, strict=True)], axis=-1)


class _Link(NamedTuple):
    """p^t = mean + basis (lam - lam_now), and the precision of lam a priori."""

    mean: Float[Array, "users rounds K"]
    basis: Float[Array, "users rounds K L"]
    precision: Float[Array, "users L L"]


def _link(
    layer: Layer,
    public: Public,
    rows: Rows,
    constants: Constants,
    prior: Prior,
    p: Array,
    answers: Answers,
) -> _Link:
    """What the update rule says about p^t given soft answers: (8) or the steps (9), (10)."""
    factors, own = _item_factors(public, rows), jnp.asarray(public.attributes)
    square, right = _normal_equations(layer, factors, own, constants, answers)
    if layer.tied:
        return _tied(layer, factors, own, constants, p, answers, square, right)
    return _free(layer, constants, prior, square, right)


def _normal_equations(
    layer: Layer, factors: Array, own: Array, constants: Constants, answers: Answers
) -> tuple[Float[Array, "users rounds K K"], Float[Array, "users rounds K"]]:
    """Q'CQ + lambda_1 U'U and Q'Cr + lambda_1 U'x of (8) at the posterior means, without lambda_2."""
    weight = jnp.stack([jnp.asarray(w, jnp.float64) for w in _weights(layer, constants.alpha)])
    share, target = answers.items @ weight, answers.items @ (weight * jnp.array(layer.levels))
    first = constants.lambda_attributes
    square = jnp.einsum("utrk,utrl->utkl", share[:, None, :, None] * factors, factors)
    square += first * jnp.einsum("tak,tal->tkl", own, own)
    right = jnp.einsum("ur,utrk->utk", target, factors)
    right += first * jnp.einsum("ua,tak->utk", answers.attributes, own)
    return square, right


def _tied(
    layer: Layer,
    factors: Array,
    own: Array,
    constants: Constants,
    p: Array,
    answers: Answers,
    square: Array,
    right: Array,
) -> _Link:
    k = factors.shape[-1]
    square = square + constants.lambda_factors * jnp.eye(k)
    mean = jnp.linalg.solve(square, right[..., None])[..., 0]
    middle, middle_own = factors.mean(axis=1), own.mean(axis=0)
    pulls = _pulls(layer, factors, constants, p)
    average = jnp.sum(answers.items * pulls, axis=-1)
    spread = jnp.sum(answers.items * (pulls - average[..., None]) ** 2, axis=-1) + LEAST_VARIANCE
    across = jnp.einsum("utrk,url->utkl", spread[:, None, :, None] * factors, middle)
    precision = jnp.einsum("url,urm->ulm", spread[..., None] * middle, middle)
    if layer.blocks:
        block = np.array(layer.blocks)
        same = (block[:, None] == block).astype(np.float64)
        x = answers.attributes
        covariance = jnp.eye(x.shape[1]) * x[:, :, None] - same * x[:, :, None] * x[:, None, :]
        half = constants.lambda_attributes**2 * covariance @ middle_own
        across += jnp.einsum("tak,ual->utkl", own, half)
        precision += jnp.einsum("ak,ual->ukl", middle_own, half)
    precision = precision + 1e-9 * jnp.eye(k)
    return _Link(mean, jnp.linalg.solve(square, across), precision)


def _free(layer: Layer, constants: Constants, prior: Prior, square: Array, right: Array) -> _Link:
    n_users, n_rounds, k = right.shape
    eye = jnp.eye(k)
    size = layer.n_runs * k
    rate = constants.rate
    means, bases = [], []
    for number in range(n_rounds):
        run = layer.runs[number]
        if number == 0 or run != layer.runs[number - 1]:
            mean = jnp.zeros((n_users, k))
            basis = jnp.zeros((n_users, k, size)).at[:, :, run * k : (run + 1) * k].set(eye)
        else:
            step = (1 - 2 * rate * constants.lambda_factors) * eye - 2 * rate * square[:, number - 1]
            mean = jnp.einsum("ukl,ul->uk", step, mean) + 2 * rate * right[:, number - 1]
            basis = step @ basis
        means.append(mean)
        bases.append(basis)
    precision = jnp.broadcast_to(prior.start_precision, (n_users, size, size))
    return _Link(jnp.stack(means, axis=1), jnp.stack(bases, axis=1), precision)


class _Slope(NamedTuple):
    gradient: Float[Array, "users L"]
    back: Float[Array, "users L"]  # complete information times the distance of p from the curve p = mean
    complete: Float[Array, "users L L"]  # information if the answers were known
    observed: Float[Array, "users L L"]  # sum of outer products of the rows' marginal scores (BHHH)


def _slope(
    layer: Layer,
    public: Public,
    rows: Rows,
    constants: Constants,
    p: Array,
    answers: Answers,
    link: _Link,
) -> _Slope:
    """Gradient and information of the marginal likelihood of the uploads with respect to lam."""
    basis = link.basis
    factors = _item_factors(public, rows)
    weights = [jnp.asarray(w, jnp.float64) for w in _weights(layer, constants.alpha)]
    score, info = _scores(
        rows.items, factors, rows.items_sent, p, layer.levels, weights, answers.items, constants.noise
    )
    along = jnp.einsum("utkl,utrk->url", basis, score)
    gradient = along.sum(axis=1)
    observed = jnp.einsum("url,urm->ulm", along, along)
    if layer.blocks:
        own = jnp.asarray(public.attributes)[None]
        x = answers.attributes
        both = jnp.stack([1 - x, x], axis=-1)
        one = jnp.ones(())
        score, more = _scores(
            rows.attributes, own, rows.attributes_sent, p, (0.0, 1.0), [one, one], both, constants.noise
        )
        info = info + more
        inside = (np.array(layer.blocks)[:, None] == np.arange(len(layer.loose))).astype(np.float64)
        along = jnp.einsum("utkl,utak,ag->ugl", basis, score, inside)
        gradient = gradient + along.sum(axis=1)
        observed = observed + jnp.einsum("ugl,ugm->ulm", along, along)
    lifted = jnp.einsum("utkl,utkm->utlm", basis, info)
    back = jnp.einsum("utlm,utm->ul", lifted, p - link.mean)
    return _Slope(gradient, back, jnp.einsum("utlm,utmn->uln", lifted, basis), observed)


def _scores(
    rows: AnyArray,
    factors: Array,
    sent: AnyArray,
    p: Array,
    levels: tuple[float, ...],
    weights: list[Array],
    answer: Array,
    noise: Array,
) -> tuple[Float[Array, "users rounds slots K"], Float[Array, "users rounds K K"]]:
    """Score of each row with respect to p^t under its posterior, and the complete-data information.

    d(y p)/dp = y I - c p q', and the Laplace log-density has the derivative sign(f - y p) / b.
    """
    predicted = jnp.einsum("utrk,utk->utr", factors, p)
    straight = jnp.zeros(rows.shape)
    across, y2, cy, cc = (jnp.zeros(predicted.shape) for _ in range(4))
    for number, (level, c) in enumerate(zip(levels, weights, strict=True)):
        y = c * (level - predicted)
        sign = jnp.sign(rows - y[..., None] * p[:, :, None])
        w = jnp.where(sent, answer[:, None, :, number], 0.0)
        straight += (w * y)[..., None] * sign
        across += w * c * jnp.einsum("utrk,utk->utr", sign, p)
        y2 += w * y * y
        cy += w * c * y
        cc += w * c * c
    score = (straight - across[..., None] * factors) / noise
    lean = jnp.einsum("utr,utrk->utk", cy, factors * sent[..., None])
    cross = lean[..., :, None] * p[..., None, :]
    info = y2.sum(axis=-1)[..., None, None] * jnp.eye(p.shape[-1]) - cross - cross.swapaxes(-1, -2)
    info += jnp.sum(p * p, axis=-1)[..., None, None] * jnp.einsum(
        "utrk,utrl->utkl", cc[..., None] * factors, factors
    )
    return score, info / noise**2


def _metric(slope: _Slope, share: float) -> Float[Array, "users L L"]:
    return share * slope.complete + (1 - share) * slope.observed


@partial(jax.jit, static_argnums=(0, 6))
def climb(
    layer: Layer,
    public: Public,
    rows: Rows,
    constants: Constants,
    prior: Prior,
    point: Point,
    steps: int,
    heat: Float[Array, ""],
) -> Point:
    """``steps`` rounds of posteriors and Newton; the noise cools from ``heat`` times b to b on the way."""
    cooling = max(1, (2 * steps) // 3)

    def step(number: Array, point: Point) -> Point:
        warmth = heat ** jnp.maximum(0.0, 1 - number / cooling)
        now = constants._replace(noise=constants.noise * warmth)
        answers = _decode(layer, public, rows, now, prior, point).answers
        link = _link(layer, public, rows, now, prior, point.p, answers)
        slope = _slope(layer, public, rows, now, point.p, answers, link)
        metric = _metric(slope, COMPLETE_SHARE)
        here = point.lam
        right = slope.gradient + jnp.einsum("ulm,um->ul", metric, here)
        if layer.tied:
            right, origin = right + COMPLETE_SHARE * slope.back, here
        else:
            right, origin = right + prior.start_precision @ prior.start_mean, jnp.zeros_like(here)
        lam = jnp.linalg.solve(link.precision + metric, right[..., None])[..., 0]
        p = link.mean + jnp.einsum("utkl,ul->utk", link.basis, lam - origin)
        return Point(point.p + DAMPING * (p - point.p), here + DAMPING * (lam - here))

    return jax.lax.fori_loop(0, steps, step, point)


@partial(jax.jit, static_argnums=0)
def start_from_prior(
    layer: Layer, public: Public, rows: Rows, constants: Constants, prior: Prior
) -> Float[Array, "users rounds K"]:
    """The factor that (8) gives to a client whose answers are the prior's means."""
    items = jnp.exp(log_prior(layer, prior, rows.item)) * rows.valid[..., None]
    n_users, k = rows.items.shape[0], rows.items.shape[3]
    attributes = jnp.zeros((n_users, 0))
    if layer.blocks:
        attributes = _posterior_attributes(
            layer, jnp.broadcast_to(prior.attribute, (n_users, prior.attribute.size))
        )[0]
    factors, own = _item_factors(public, rows), jnp.asarray(public.attributes)
    square, right = _normal_equations(layer, factors, own, constants, Answers(items, attributes))
    square += constants.lambda_factors * jnp.eye(k)
    return jnp.linalg.solve(square, right[..., None])[..., 0]


@partial(jax.jit, static_argnums=0)
def shift_of_one(layer: Layer, public: Public, rows: Rows) -> Float[Array, "users rounds K"]:
    """The change of p that raises p . q by one on all rated slots, in least squares."""
    factors = _item_factors(public, rows)
    k = factors.shape[-1]
    square = jnp.einsum("utrk,utrl->utkl", factors, factors)
    ridge = 1e-3 * jnp.trace(square, axis1=2, axis2=3)[..., None, None] / k + 1e-12
    return jnp.linalg.solve(square + ridge * jnp.eye(k), factors.sum(axis=2)[..., None])[..., 0]


@partial(jax.jit, static_argnums=0)
def line(
    layer: Layer,
    public: Public,
    rows: Rows,
    constants: Constants,
    prior: Prior,
    direction: Float[Array, "users K"],
    lengths: Float[Array, " lengths"],
) -> Float[Array, "lengths users"]:
    """Marginal log-likelihood of the uploads at p = length x direction, the same in all rounds."""
    n_rounds = rows.items.shape[1]

    def at(length: Array) -> Array:
        p = jnp.broadcast_to(
            (length * direction)[:, None], (direction.shape[0], n_rounds, direction.shape[1])
        )
        lam = jnp.zeros((direction.shape[0], layer.n_runs * direction.shape[1]))
        if layer.tied:
            lam = jnp.zeros(direction.shape)
        return _decode(layer, public, rows, constants, prior, Point(p, lam)).log_likelihood

    return jax.lax.map(at, lengths)


class Summary(NamedTuple):
    """What is known at the end of a climb.

    answers: posteriors averaged over the uncertainty of p; evidence (users,): log marginal likelihood by
    Laplace's method; blank (users,): log-likelihood of the uploads if they were noise alone; distance,
    coordinates: for the noise scale; moments: for the prior, see ``attacks.prior``.
    """

    answers: Answers
    evidence: Float[Array, " users"]
    blank: Float[Array, " users"]
    distance: Float[Array, ""]
    coordinates: Float[Array, ""]
    moments: Moments
    lam_mean: Float[Array, " L"]
    lam_square: Float[Array, "L L"]


class Moments(NamedTuple):
    """Sums over rows of the posterior minus the prior, and of both variances.

    level_gap (candidates,), level_prior and level_posterior (candidates, candidates); user (users, 2, 3)
    and item (items, 2, 3): gap, prior variance, posterior variance of the two features; attribute
    (attributes,): expected number of clients.
    """

    level_gap: Float[Array, " candidates"]
    level_prior: Float[Array, "candidates candidates"]
    level_posterior: Float[Array, "candidates candidates"]
    user: Float[Array, "users 2 3"]
    item: Float[Array, "items 2 3"]
    attribute: Float[Array, " attributes"]


@partial(jax.jit, static_argnums=(0, 7))
def summarise(
    layer: Layer,
    public: Public,
    rows: Rows,
    constants: Constants,
    prior: Prior,
    point: Point,
    user_variance: Float[Array, " 2"],
    samples: int,
    key: Array,
) -> Summary:
    """Posteriors averaged over ``samples`` draws of p and the client's own tilts, and the evidence."""
    fit = _decode(layer, public, rows, constants, prior, point)
    link = _link(layer, public, rows, constants, prior, point.p, fit.answers)
    slope = _slope(layer, public, rows, constants, point.p, fit.answers, link)
    covariance = jnp.linalg.inv(link.precision + _metric(slope, 0.1))
    factor = jnp.linalg.cholesky(covariance)
    features = jnp.asarray(layer.features())

    def variance(weights: Array) -> Array:
        return weights @ features**2 - (weights @ features) ** 2

    assumed = jnp.exp(log_prior(layer, prior, rows.item)) * rows.valid[..., None]
    before, after = variance(assumed).sum(axis=1), variance(fit.answers.items).sum(axis=1)
    tilt_variance = 1 / (jnp.maximum(before - after, 0.1 * before) + 1 / user_variance)
    response = _response(layer, public, rows, constants, point.p, fit.answers, covariance)

    def draw(total: Answers, noise: Array) -> tuple[Answers, None]:
        tilt = noise[:, -2:] * jnp.sqrt(tilt_variance)
        move = jnp.einsum("ulm,um->ul", factor, noise[:, :-2])
        move += jnp.einsum("ulf,uf->ul", response, tilt)
        p = point.p + jnp.einsum("utkl,ul->utk", link.basis, move)
        varied = prior._replace(user=prior.user + tilt)
        found = _decode(layer, public, rows, constants, varied, Point(p, point.lam)).answers
        return jax.tree.map(lambda a, b: a + b / samples, total, found), None

    noise = jax.random.normal(key, (samples, *point.lam.shape[:1], point.lam.shape[1] + 2))
    answers, _ = jax.lax.scan(draw, jax.tree.map(jnp.zeros_like, fit.answers), noise)

    evidence = fit.log_likelihood + 0.5 * jnp.linalg.slogdet(covariance)[1]
    evidence += 0.5 * jnp.linalg.slogdet(link.precision)[1]
    if layer.tied:
        evidence -= _paid(layer, public, rows, constants, point, fit.answers)
    else:
        away = point.lam - prior.start_mean
        evidence -= 0.5 * jnp.einsum("ul,ulm,um->u", away, link.precision, away)
    live = rows.live
    coordinates = rows.items_sent.sum(axis=(1, 2)) + rows.attributes_sent.sum(axis=(1, 2))
    size = jnp.abs(rows.items).sum(axis=(1, 2, 3)) + jnp.abs(rows.attributes).sum(axis=(1, 2, 3))
    spread = jnp.where(live[:, None, None] > 0, covariance, 0.0).sum(axis=0)
    lam = jnp.where(live[:, None] > 0, point.lam, 0.0)
    return Summary(
        answers,
        evidence,
        -size / constants.noise,
        jnp.sum(live * fit.distance),
        jnp.sum(live * coordinates) * rows.items.shape[-1],
        _moments(layer, rows, prior, assumed, answers),
        lam.sum(axis=0),
        jnp.einsum("ul,um->lm", lam, lam) + spread,
    )


def _response(
    layer: Layer,
    public: Public,
    rows: Rows,
    constants: Constants,
    p: Array,
    answers: Answers,
    covariance: Array,
) -> Float[Array, "users L 2"]:
    """How lam moves when the client's tilts a, h do, through the sum in (8)."""
    if not layer.tied:
        return jnp.zeros((p.shape[0], covariance.shape[-1], 2))
    factors = _item_factors(public, rows)
    features = jnp.asarray(layer.features())
    pulls = _pulls(layer, factors, constants, p)
    w = answers.items
    shared = jnp.einsum("urv,urv,vf->urf", w, pulls, features)
    shared -= jnp.sum(w * pulls, axis=-1)[..., None] * (w @ features)
    return covariance @ jnp.einsum("urf,urk->ukf", shared, factors.mean(axis=1))


def _paid(
    layer: Layer, public: Public, rows: Rows, constants: Constants, point: Point, answers: Answers
) -> Float[Array, " users"]:
    """lam . E[sum], the saddlepoint's cost of the tilt."""
    factors = _item_factors(public, rows)
    pulls = _pulls(layer, factors, constants, point.p)
    along = jnp.einsum("urk,uk->ur", factors.mean(axis=1), point.lam)
    paid = jnp.sum(jnp.sum(answers.items * pulls, axis=-1) * along, axis=-1)
    if layer.blocks:
        own = jnp.asarray(public.attributes).mean(axis=0)
        paid += constants.lambda_attributes * jnp.sum(answers.attributes * (point.lam @ own.T), axis=-1)
    return paid


def _moments(layer: Layer, rows: Rows, prior: Prior, assumed: Array, answers: Answers) -> Moments:
    features = jnp.asarray(layer.features())
    live = rows.live[:, None, None]
    assumed, found = assumed * live, answers.items * live

    def parts(weights: Array) -> tuple[Array, Array]:
        mean = weights @ features
        return mean, weights @ features**2 - mean**2

    (mean_0, variance_0), (mean_1, variance_1) = parts(assumed), parts(found)
    table = jnp.stack([mean_1 - mean_0, variance_0, variance_1], axis=-1)

    def second(weights: Array) -> Array:
        return jnp.diag(weights.sum(axis=(0, 1))) - jnp.einsum("urv,urw->vw", weights, weights)

    flat = table.reshape(-1, *table.shape[2:])
    return Moments(
        (found - assumed).sum(axis=(0, 1)),
        second(assumed),
        second(found),
        table.sum(axis=1),
        jax.ops.segment_sum(flat, rows.item.ravel(), prior.item.shape[0]),
        jnp.sum(rows.live[:, None] * answers.attributes, axis=0),
    )
