"""A prior over ratings and attributes that is estimated from the uploads themselves.

Empirical Bayes: level frequencies, the activity, mean and dispersion of each client's ratings and the
popularity and mean rating of each item (popularity is public through Q as well), with normal laws over
clients and over items whose variances are estimated, too. One Newton step
per pass, with Louis' observed information: the prior's variance minus the posterior's. Nothing here sees
the truth.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float, Int

from attacks.likelihood.batches import Rows
from attacks.likelihood.model import Answers, AnyArray, Model, Prior
from attacks.metadata.rating_prior import MIDDLE, PSEUDO_COUNTS, log_shares

MEAN_PSEUDO_COUNTS = 40.0  # ratings of each client that what is known of their mean anyhow counts as
OPEN_SHARE = 0.1  # of the ratings that are open, which usual frequencies count as where p is free
LARGEST_LEVEL_STEP = 0.5
START_VARIANCE = np.array([0.25, 0.15, 0.05])
STEP = 0.8
LARGEST_STEP = 1.0
LARGEST_VARIANCE = np.array([4.0, 0.2, 0.2])  # of activity or popularity, means, dispersions, nats squared
SMALLEST_VARIANCE = 1e-3


class Spread(NamedTuple):
    """Variances of the random effects over clients and over items (``Model.effects``)."""

    user: Float[np.ndarray, " user_effects"]
    item: Float[np.ndarray, " item_effects"]


def flat(model: Model, n_users: int, n_items: int, size: int) -> Prior:
    """Make the prior under which every answer is equally likely, and free factors come from N(0, 10^2)."""
    return Prior(
        np.zeros(len(model.levels)),
        np.zeros((n_users, model.effects[0])),
        np.zeros((n_items, model.effects[1])),
        np.zeros(len(model.blocks)),
        np.zeros(size),
        0.01 * np.eye(size),
    )


def start_spread(model: Model) -> Spread:
    """Variances of the random effects before anything was read."""
    return Spread(*(START_VARIANCE[:width] for width in model.effects))


def bell(model: Model, middle: float, unrated: float) -> Float[np.ndarray, " candidates"]:
    """Log frequencies of a discretised normal law over the rating grid."""
    levels = np.array(model.levels)
    rated = levels > 0
    log = np.full(levels.shape, np.log(unrated))
    log[rated] = log_shares(levels[rated], middle) + (0.0 if rated.all() else np.log(1 - unrated))
    return log


def improve(
    model: Model, prior: Prior, spread: Spread, moments: Moments, n_users: int, *, pulled: bool = True
) -> tuple[Prior, Spread]:
    """Take one Newton step in every parameter of the prior."""
    counts, mean_counts = (
        (usual_counts(model, moments), MEAN_PSEUDO_COUNTS * n_users) if pulled else (0.0, 0.0)
    )
    level = np.asarray(prior.level) + _level_step(model, prior, moments, counts, mean_counts)
    loose = np.array(model.loose)[np.array(model.blocks, int)] if model.blocks else np.zeros(0, bool)
    shares, odds = (np.asarray(log) for log in _attribute_logs(moments.attribute, n_users))
    prior = prior._replace(level=level - level.max(), attribute=np.where(loose, odds, shares))
    user, user_spread = new_effects(model, np.asarray(prior.user), np.asarray(moments.user), spread.user)
    item, item_spread = new_effects(model, np.asarray(prior.item), np.asarray(moments.item), spread.item)
    prior = prior._replace(user=user, item=item)
    return prior, Spread(user_spread, item_spread)


def usual_counts(model: Model, moments: Moments) -> float:
    """Ratings that the usual frequencies of levels count as.

    Where p is free they count as a share of the ratings that the uploads leave open: what is known of these
    is an average over p, and its errors add up over all ratings.
    """
    if model.tied:
        return PSEUDO_COUNTS
    rated = np.array(model.levels) > 0
    open_variance = np.diag(np.asarray(moments.level_posterior))[rated].sum()
    usual = _usual_shares(model)[rated]
    return PSEUDO_COUNTS + OPEN_SHARE * float(open_variance / (usual @ (1 - usual)))


@jax.jit
def _attribute_logs(
    expected: Float[AnyArray, " attributes"], n_users: Int[AnyArray, ""]
) -> tuple[Float[Array, " attributes"], Float[Array, " attributes"]]:
    """Log shares and log odds of attributes by Laplace's rule of succession."""
    return jnp.log((expected + 1) / (n_users + 2)), jnp.log((expected + 1) / (n_users - expected + 1))


def _level_step(
    model: Model, prior: Prior, moments: Moments, counts: float, mean_counts: float
) -> Float[np.ndarray, " candidates"]:
    before, after = np.asarray(moments.level_prior), np.asarray(moments.level_posterior)
    usual, now = _usual_shares(model), _among_rated(model, prior)
    away, slope = _mean_away(model, prior)
    gap = np.asarray(moments.level_gap) + counts * (usual - now) - mean_counts * away * slope
    size, axes = np.linalg.eigh(before - after)
    floor = np.maximum(np.einsum("vi,vw,wi->i", axes, before, axes), 0)
    information = (axes * np.maximum(size, 0.1 * floor)) @ axes.T
    information += counts * (np.diag(now) - np.outer(now, now)) + np.eye(now.size)
    information += mean_counts * np.outer(slope, slope)
    step = np.linalg.solve(information, gap)
    return np.clip(STEP * (step - step.mean()), -LARGEST_LEVEL_STEP, LARGEST_LEVEL_STEP)


def _usual_shares(model: Model) -> Float[np.ndarray, " candidates"]:
    """Frequencies of ratings as one knows them without the uploads, 0 for unrated."""
    rated = np.array(model.levels) > 0
    frequency = np.where(rated, np.exp(bell(model, MIDDLE, 0.5)), 0.0)
    return frequency / frequency.sum()


def _among_rated(model: Model, prior: Prior) -> Float[np.ndarray, " candidates"]:
    """Frequencies of the prior given that an item is rated, for a client and an item without effects."""
    rated = np.array(model.levels) > 0
    log = np.where(rated, np.asarray(prior.level), -np.inf)
    frequency = np.exp(log - log.max())
    return frequency / frequency.sum()


def _mean_away(model: Model, prior: Prior) -> tuple[float, Float[np.ndarray, " candidates"]]:
    """How far the prior's mean rating is from a usual one, in standard deviations, and the slope in the
    levels. The uploads tell how ratings differ much better than how high they are: where the length of p is
    open, small errors of the evidence would carry the mean away. Their shape (half stars are rare) is told.
    """
    position, now, usual = model.features()[:, 1], _among_rated(model, prior), _usual_shares(model)
    width = np.sqrt(max(usual @ position**2 - (usual @ position) ** 2, 1e-12))
    return float((now - usual) @ position / width), now * (position - now @ position) / width


def penalty(model: Model, prior: Prior, spread: Spread, moments: Moments) -> float:
    """What the prior costs in evidence: of the random effects their law and, by Laplace's method, their
    uncertainty.

    Where p is free the evidence has integrated the clients' own effects out
    (``attacks.likelihood.summaries``). And what the levels cost against what is known of ratings anyhow.
    """
    usual, now = _usual_shares(model), _among_rated(model, prior)
    total = usual_counts(model, moments) * float(np.sum(scipy.special.rel_entr(usual, now)))
    total += MEAN_PSEUDO_COUNTS * len(prior.user) * _mean_away(model, prior)[0] ** 2 / 2
    if model.tied:
        total += float(effect_cost(model, prior.user, moments.user, spread.user).sum())
    return total + float(effect_cost(model, prior.item, moments.item, spread.item).sum())


class Moments(NamedTuple):
    """Sums over rows of the posterior minus the prior, and of both variances."""

    level_gap: Float[AnyArray, " candidates"]
    level_prior: Float[AnyArray, "candidates candidates"]
    level_posterior: Float[AnyArray, "candidates candidates"]
    user: Float[AnyArray, "users user_effects 3"]  # gap, prior variance, posterior variance of the features
    item: Float[AnyArray, "items item_effects 3"]  # gap, prior variance, posterior variance of the features
    attribute: Float[AnyArray, " attributes"]  # expected number of clients


@partial(jax.jit, static_argnums=0)
def moments(model: Model, rows: Rows, prior: Prior, assumed: Array, answers: Answers) -> Moments:
    """Sums over the rows of one batch."""
    live = rows.live[:, None].astype(assumed.dtype)
    assumed, found = assumed * live, answers.items * live
    gap = _feature_mean(model, found - assumed)
    variances = feature_variance(model, assumed), feature_variance(model, found)
    table = jnp.stack([gap, *variances]).astype(jnp.float64)

    def second(weights: Array) -> Array:
        diagonal = jnp.diag(weights.sum(axis=(1, 2), dtype=jnp.float64))
        return diagonal - jnp.einsum("vur,wur->vw", weights, weights).astype(jnp.float64)

    of_user, of_item = (table[:, :width] for width in model.effects)
    flat = of_item.transpose(2, 3, 1, 0).reshape(-1, model.effects[1], 3)
    return Moments(
        (found - assumed).sum(axis=(1, 2), dtype=jnp.float64),
        second(assumed),
        second(found),
        of_user.sum(axis=3).transpose(2, 1, 0),
        jax.ops.segment_sum(flat, jnp.asarray(rows.item).ravel(), prior.item.shape[0]),
        jnp.sum(rows.live[:, None] * answers.attributes, axis=0),
    )


def _feature_mean(model: Model, weights: AnyArray) -> Float[Array, "features users slots"]:
    """Means of the features of a rating under weights over candidates."""
    return jnp.einsum("fv,vur->fur", model.features().T.astype(weights.dtype), weights)


def feature_variance(model: Model, weights: AnyArray) -> Float[Array, "features users slots"]:
    """Variances of the features of a rating under weights over candidates."""
    square = jnp.einsum("fv,vur->fur", (model.features().T ** 2).astype(weights.dtype), weights)
    return square - _feature_mean(model, weights) ** 2


def new_effects(
    model: Model, now: np.ndarray, moments: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Take one Newton step in random effects and their variance; the common part belongs to the levels."""
    out, spread = now.copy(), variance.copy()
    for feature in _open(model, now.shape[1]):
        known = moments[:, feature, 1] > 1e-9
        if not known.any():
            continue
        step, weight = _effect_step(now[:, feature], moments[:, feature], variance[feature])
        effect = now[:, feature] + step
        effect -= np.average(effect[known], weights=_information(moments[:, feature])[known] + 1e-12)
        out[:, feature] = np.where(known, effect, 0.0)
        estimate = np.mean((out[:, feature] ** 2 + 1 / weight)[known])
        spread[feature] = np.clip(estimate, SMALLEST_VARIANCE, LARGEST_VARIANCE[feature])
    return out, spread


def effect_cost(model: Model, effect: AnyArray, table: AnyArray, variance: np.ndarray) -> np.ndarray:
    """What each client's or item's random effects cost in evidence."""
    cost = np.zeros(len(effect))
    for feature in _open(model, len(variance)):
        information = _information(np.asarray(table)[:, feature])
        cost += 0.5 * np.asarray(effect)[:, feature] ** 2 / variance[feature]
        cost += 0.5 * np.log1p(information * variance[feature])
    return cost


def effect_gain(model: Model, effect: AnyArray, table: AnyArray, variance: np.ndarray) -> np.ndarray:
    """What a whole Newton step in each client's own random effects gains in evidence."""
    gain = np.zeros(len(effect))
    for feature in _open(model, len(variance)):
        slope = np.asarray(table)[:, feature, 0] - np.asarray(effect)[:, feature] / variance[feature]
        gain += 0.5 * slope**2 / (_information(np.asarray(table)[:, feature]) + 1 / variance[feature])
    return gain


def with_better_effects(model: Model, prior: Prior, moments: Moments, variance: np.ndarray) -> Prior:
    """Take one Newton step in the clients' own random effects and leave everything else as it is."""
    now, table = np.asarray(prior.user), np.asarray(moments.user)
    user = now.copy()
    for feature in _open(model, now.shape[1]):
        user[:, feature] += _effect_step(now[:, feature], table[:, feature], variance[feature])[0]
    return prior._replace(user=user)


def _information(moments: np.ndarray) -> np.ndarray:
    before, after = moments[..., 1], moments[..., 2]
    return np.maximum(before - after, 0.1 * before)


def _open(model: Model, width: int) -> tuple[int, ...]:
    """The features that are not known: where every listed item is rated, activity tells nothing."""
    return tuple(range(1 if model.levels[0] > 0 else 0, width))


def _effect_step(now: np.ndarray, table: np.ndarray, variance: float) -> tuple[np.ndarray, np.ndarray]:
    """A Newton step of one feature's effects, and the precision of their posterior."""
    weight = _information(table) + 1 / variance
    step = STEP * (table[:, 0] - now / variance) / weight
    return np.clip(step, -LARGEST_STEP, LARGEST_STEP), weight
