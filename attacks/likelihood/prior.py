"""A prior over ratings and attributes that is estimated from the uploads themselves.

Empirical Bayes: level frequencies, the activity, mean and dispersion of each client's ratings and the
popularity and mean rating of each item (popularity is public through Q as well), with normal laws over
clients and over items whose variances are estimated, too. One Newton step per pass, with Louis' observed
information: the prior's variance minus the posterior's. Nothing here sees the truth.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Float

from attacks.likelihood.rating_posterior import AnyArray, Layer, Prior
from attacks.likelihood.rating_prior import TYPICAL, WORTH, log_shares
from attacks.likelihood.summaries import Moments

MEAN_WORTH = 40.0  # ratings of each client that what is known of their mean anyhow is worth
STEP = 0.8
LARGEST_STEP = 1.0
LARGEST_LEVEL_STEP = 0.5
LARGEST_VARIANCE = np.array([4.0, 0.2, 0.2])  # of activity or popularity, means, dispersions, nats squared
SMALLEST_VARIANCE = 1e-3
START_VARIANCE = np.array([0.25, 0.15, 0.05])


class Spread(NamedTuple):
    """Variances of the tilts over clients and over items (``Layer.tilts``)."""

    user: Float[np.ndarray, " user_tilts"]
    item: Float[np.ndarray, " item_tilts"]


def flat(layer: Layer, n_users: int, n_items: int, size: int) -> Prior:
    """Every answer equally likely; free factors from N(0, 10^2)."""
    return Prior(
        jnp.zeros(len(layer.levels)),
        jnp.zeros((n_users, layer.tilts[0])),
        jnp.zeros((n_items, layer.tilts[1])),
        jnp.zeros(len(layer.blocks)),
        jnp.zeros(size),
        0.01 * jnp.eye(size),
    )


def start_spread(layer: Layer) -> Spread:
    """Variances before anything was read."""
    return Spread(*(START_VARIANCE[:width] for width in layer.tilts))


def bell(layer: Layer, middle: float, unrated: float) -> Float[np.ndarray, " candidates"]:
    """Log frequencies of a discretised normal law: ``middle`` in 0..1 of the rating grid."""
    levels = np.array(layer.levels)
    rated = levels > 0
    log = np.full(levels.shape, np.log(unrated))
    log[rated] = log_shares(levels[rated], middle) + (0.0 if rated.all() else np.log(1 - unrated))
    return log


def improve(
    layer: Layer, prior: Prior, spread: Spread, moments: Moments, n_users: int, *, pulled: bool = True
) -> tuple[Prior, Spread]:
    """One Newton step in every parameter; ``pulled``: levels are drawn to what is known of ratings anyhow."""
    worth, mean_worth = (WORTH, MEAN_WORTH * n_users) if pulled else (0.0, 0.0)
    level = np.asarray(prior.level) + _level_step(layer, prior, moments, worth, mean_worth)
    # Laplace's rule of succession in each block
    attribute = jnp.log((moments.attribute + 1) / (n_users + 2))
    loose = np.array(layer.loose)[np.array(layer.blocks, int)] if layer.blocks else np.zeros(0, bool)
    odds = jnp.log((moments.attribute + 1) / (n_users - moments.attribute + 1))
    prior = prior._replace(
        level=jnp.asarray(level - level.max()), attribute=jnp.where(loose, odds, attribute)
    )
    user, user_spread = _tilts(layer, np.asarray(prior.user), np.asarray(moments.user), spread.user)
    item, item_spread = _tilts(layer, np.asarray(prior.item), np.asarray(moments.item), spread.item)
    prior = prior._replace(user=jnp.asarray(user), item=jnp.asarray(item))
    return prior, Spread(user_spread, item_spread)


def _level_step(
    layer: Layer, prior: Prior, moments: Moments, worth: float, mean_worth: float
) -> Float[np.ndarray, " candidates"]:
    before, after = np.asarray(moments.level_prior), np.asarray(moments.level_posterior)
    typical, now = _typical(layer), _among_rated(layer, prior)
    away, slope = _mean_away(layer, prior)
    gap = np.asarray(moments.level_gap) + worth * (typical - now) - mean_worth * away * slope
    size, axes = np.linalg.eigh(before - after)
    floor = np.maximum(np.einsum("vi,vw,wi->i", axes, before, axes), 0)
    information = (axes * np.maximum(size, 0.1 * floor)) @ axes.T
    information += worth * (np.diag(now) - np.outer(now, now)) + np.eye(now.size)
    information += mean_worth * np.outer(slope, slope)
    step = np.linalg.solve(information, gap)
    return np.clip(STEP * (step - step.mean()), -LARGEST_LEVEL_STEP, LARGEST_LEVEL_STEP)


def _typical(layer: Layer) -> Float[np.ndarray, " candidates"]:
    """Frequencies of ratings as one knows them without the uploads, 0 for unrated."""
    rated = np.array(layer.levels) > 0
    frequency = np.where(rated, np.exp(bell(layer, TYPICAL, 0.5)), 0.0)
    return frequency / frequency.sum()


def _among_rated(layer: Layer, prior: Prior) -> Float[np.ndarray, " candidates"]:
    """Frequencies of the prior given that an item is rated, for a client and an item without tilts."""
    rated = np.array(layer.levels) > 0
    log = np.where(rated, np.asarray(prior.level), -np.inf)
    frequency = np.exp(log - log.max())
    return frequency / frequency.sum()


def _mean_away(layer: Layer, prior: Prior) -> tuple[float, Float[np.ndarray, " candidates"]]:
    """How far the prior's mean rating is from a typical one, in standard deviations, and the slope in the
    levels. The uploads tell how ratings differ much better than how high they are: where the length of p is
    open, small errors of the evidence would carry the mean away. Their shape (half stars are rare) is told.
    """
    place, now, typical = layer.features()[:, 1], _among_rated(layer, prior), _typical(layer)
    width = np.sqrt(max(typical @ place**2 - (typical @ place) ** 2, 1e-12))
    return float((now - typical) @ place / width), now * (place - now @ place) / width


def _information(moments: np.ndarray) -> np.ndarray:
    before, after = moments[..., 1], moments[..., 2]
    return np.maximum(before - after, 0.1 * before)


def _open(layer: Layer, width: int) -> tuple[int, ...]:
    """The features that are not known: where every listed item is rated, activity tells nothing."""
    return tuple(range(1 if layer.levels[0] > 0 else 0, width))


def _tilt_step(now: np.ndarray, table: np.ndarray, variance: float) -> tuple[np.ndarray, np.ndarray]:
    """A Newton step of one feature's tilts, and the precision of their posterior."""
    weight = _information(table) + 1 / variance
    step = STEP * (table[:, 0] - now / variance) / weight
    return np.clip(step, -LARGEST_STEP, LARGEST_STEP), weight


def _tilts(
    layer: Layer, now: np.ndarray, moments: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """New tilts with mean zero (the common part belongs to the levels), and their variance."""
    out, spread = now.copy(), variance.copy()
    for feature in _open(layer, now.shape[1]):
        known = moments[:, feature, 1] > 1e-9
        if not known.any():
            continue
        step, weight = _tilt_step(now[:, feature], moments[:, feature], variance[feature])
        tilt = now[:, feature] + step
        tilt -= np.average(tilt[known], weights=_information(moments[:, feature])[known] + 1e-12)
        out[:, feature] = np.where(known, tilt, 0.0)
        estimate = np.mean((out[:, feature] ** 2 + 1 / weight)[known])
        spread[feature] = np.clip(estimate, SMALLEST_VARIANCE, LARGEST_VARIANCE[feature])
    return out, spread


def penalty(layer: Layer, prior: Prior, spread: Spread, moments: Moments) -> float:
    """What the prior costs in evidence: of the tilts their law and, by Laplace's method, their uncertainty.

    Where p is free the evidence has integrated the clients' own tilts out (``attacks.likelihood.summaries``).
    And what the levels cost against what is known of ratings anyhow.
    """
    typical, now = _typical(layer), _among_rated(layer, prior)
    total = WORTH * float(np.sum(scipy.special.rel_entr(typical, now)))
    total += MEAN_WORTH * len(prior.user) * _mean_away(layer, prior)[0] ** 2 / 2
    if layer.tied:
        total += float(tilt_cost(layer, prior.user, moments.user, spread.user).sum())
    return total + float(tilt_cost(layer, prior.item, moments.item, spread.item).sum())


def tilt_cost(layer: Layer, tilt: AnyArray, table: AnyArray, variance: np.ndarray) -> np.ndarray:
    """What each client's or item's tilts (owners, tilts) cost in evidence, (owners,) nats."""
    cost = np.zeros(len(tilt))
    for feature in _open(layer, len(variance)):
        information = _information(np.asarray(table)[:, feature])
        cost += 0.5 * np.asarray(tilt)[:, feature] ** 2 / variance[feature]
        cost += 0.5 * np.log1p(information * variance[feature])
    return cost


def tilt_gain(layer: Layer, tilt: AnyArray, table: AnyArray, variance: np.ndarray) -> np.ndarray:
    """What a whole Newton step in each client's own tilts gains in evidence, (owners,) nats."""
    gain = np.zeros(len(tilt))
    for feature in _open(layer, len(variance)):
        slope = np.asarray(table)[:, feature, 0] - np.asarray(tilt)[:, feature] / variance[feature]
        gain += 0.5 * slope**2 / (_information(np.asarray(table)[:, feature]) + 1 / variance[feature])
    return gain


def leaning(layer: Layer, prior: Prior, moments: Moments, variance: np.ndarray) -> Prior:
    """The prior after one Newton step in the clients' own tilts, everything else as it is."""
    now, table = np.asarray(prior.user), np.asarray(moments.user)
    user = now.copy()
    for feature in _open(layer, now.shape[1]):
        user[:, feature] += _tilt_step(now[:, feature], table[:, feature], variance[feature])[0]
    return prior._replace(user=jnp.asarray(user))
