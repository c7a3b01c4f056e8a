"""Was it trained on? Likelihood ratios from the outputs of shadow models, and the attacks they are beside.

N. Carlini, S. Chien, M. Nasr, S. Song, A. Terzis, F. Tramer, "Membership Inference Attacks From First
Principles", IEEE S&P 2022, arXiv:2112.03570 (LiRA: Algorithm 1 and, offline, Eq. 4), with ratings in place of
confidences. S. Yeom et al. 2018, arXiv:1709.01604, is the global threshold on an error.

Models are trained on random parts of one population; each is attacked with all others as its shadows, as in
section V.A of Carlini et al. The adversary is taken to know the population (all other ratings, or as many of
the same law), the protocol and its constants, and to train models of its own; of the attacked one it sees
outputs, and no message. ``member`` says of each model which targets it was trained on: of the attacked one it
is left out.

A predicted rating is near normal over models and takes its place as it is: it has no end that a confidence
has at 1, and so needs no logit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

PRIOR = 8.0  # models that the common variance counts as, where few shadows leave a target's own uncertain
RIDGE = 1.0  # variance in squared stars of a rating about what predictions explain


class _World(NamedTuple):
    """The law of one number of each target over the shadows of one world: in, or out."""

    mean: Float[np.ndarray, " targets"]
    variance: Float[np.ndarray, " targets"]
    known: Bool[np.ndarray, " targets"]  # two models at least


def likelihood_ratios(
    value: Float[np.ndarray, "models targets"], member: Bool[np.ndarray, "models targets"]
) -> Float[np.ndarray, "models targets"]:
    """Score each target of each model: log density of its value if it was trained on, less if it was not."""
    score = np.zeros(value.shape)
    worlds = zip(_worlds(value, member), _worlds(value, ~member), strict=True)
    for model, (inside, outside) in enumerate(worlds):
        ratio = _log_normal(value[model], inside) - _log_normal(value[model], outside)
        score[model] = np.where(inside.known & outside.known, ratio, 0.0)
    return score


def offline_ratios(
    value: Float[np.ndarray, "models targets"],
    member: Bool[np.ndarray, "models targets"],
    towards: Float[np.ndarray, " targets"],
) -> Float[np.ndarray, "models targets"]:
    """Score without shadows that were trained on the target: how far towards it the value lies of theirs.

    ``towards`` is where training on the target draws its value: its rating, or infinity.
    """
    score = np.zeros(value.shape)
    for model, outside in enumerate(_worlds(value, ~member)):
        away = np.sign(towards - outside.mean) * (value[model] - outside.mean)
        score[model] = np.where(outside.known, away / np.sqrt(outside.variance), 0.0)
    return score


def list_ratios(
    listed: Bool[np.ndarray, "models targets"], member: Bool[np.ndarray, "models targets"]
) -> Float[np.ndarray, "models targets"]:
    """Score each target of each model by whether its item is on its user's list: Bernoulli in both worlds."""
    score = np.zeros(listed.shape)
    for sign, world in ((1, member), (-1, ~member)):
        others = world.sum(axis=0) - world
        chance = ((listed & world).sum(axis=0) - (listed & world) + 0.5) / (others + 1)  # Jeffreys
        score += sign * np.log(np.where(listed, chance, 1 - chance))
    return score


def unexplained(
    predictions: Float[np.ndarray, "observers items"],
    items: np.ndarray,
    ratings: Float[np.ndarray, " rated"],
) -> float:
    """Mean squared error, in squared stars, at which a model's predictions for others tell a user's ratings.

    Each rating is predicted from the user's others, by the normal law whose second moments are those of the
    observers' predictions: what a factor model does for a new user, from outputs alone.
    """
    seen = predictions[:, items]
    kernel = seen.T @ seen / len(seen) + RIDGE * np.eye(items.size)
    inverse = np.linalg.inv(kernel)
    return float(np.mean((inverse @ ratings / np.diag(inverse)) ** 2))


def _worlds(
    value: Float[np.ndarray, "models targets"], world: Bool[np.ndarray, "models targets"]
) -> Iterator[_World]:
    """The law of one world, for each model without that model."""
    centre = value.mean(axis=0)
    moved = np.where(world, value - centre, 0.0)
    count, total, squares = world.sum(axis=0), moved.sum(axis=0), (moved**2).sum(axis=0)
    for own, weight in zip(moved, world, strict=True):
        n = count - weight
        mean = (total - own) / np.maximum(n, 1)
        spread = np.maximum(squares - own**2 - n * mean**2, 0.0)
        common = spread.sum() / max(int(np.maximum(n - 1, 0).sum()), 1)
        variance = (spread + PRIOR * common) / (np.maximum(n - 1, 0) + PRIOR)
        yield _World(centre + mean, np.maximum(variance, np.finfo(float).tiny), n >= 2)


def _log_normal(value: Float[np.ndarray, " targets"], world: _World) -> Float[np.ndarray, " targets"]:
    return -0.5 * ((value - world.mean) ** 2 / world.variance + np.log(world.variance))
