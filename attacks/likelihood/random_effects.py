"""Random effects of clients and of items in the prior: Newton steps, and what they cost and gain in evidence.

Each feature's effects have a normal law whose variance is estimated, too. Their information is that of Louis,
as observed: the prior's variance minus the posterior's.
"""

from __future__ import annotations

import numpy as np

from attacks.likelihood.model import AnyArray, Model, Prior
from attacks.likelihood.moments import Moments

STEP = 0.8
LARGEST_STEP = 1.0
LARGEST_VARIANCE = np.array([4.0, 0.2, 0.2])  # of activity or popularity, means, dispersions, nats squared
SMALLEST_VARIANCE = 1e-3


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
