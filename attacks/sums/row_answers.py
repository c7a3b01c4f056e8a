"""The answers z behind rows y p of clients, y = c (z - p . t): possible ones, their y, and back."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.decoding import distance_to_levels, looks_unrated
from victims.transcript.manifest import Manifest

ON_GRID = 1e-3  # stars, within which answers must be on the grid


def possible_answers(manifest: Manifest, item: bool) -> Float[np.ndarray, " answers"]:
    """List the answers that a row may hold."""
    if not item:
        return np.array([0.0, 1.0])
    unrated = [0.0] if manifest.weighting == "include-unrated" else []
    return np.array([*unrated, *manifest.rating_levels])


def scalars_of(
    manifest: Manifest,
    answer: Float[np.ndarray, "*batch rows"],
    predicted: Float[np.ndarray, " rows"],
    item: bool,
) -> Float[np.ndarray, "*batch rows"]:
    """Compute y = c (z - p . t) of known answers."""
    weight = np.ones_like(answer)
    if item and manifest.weighting == "include-unrated":
        weight[answer == 0] = manifest.hyperparameters["alpha"]
    return weight * (answer - predicted)


def answers_of(
    manifest: Manifest,
    scalar: Float[np.ndarray, "*rows"],
    predicted: Float[np.ndarray, "*rows"],
    item: Bool[np.ndarray, "*some"],
) -> Float[np.ndarray, "*rows"]:
    """Decode answers from y = c (z - p . t)."""
    value = scalar + predicted
    levels = np.array(manifest.rating_levels)
    away = distance_to_levels(value, levels)
    nearest = levels[np.abs(value[..., None] - levels).argmin(axis=-1)]
    if manifest.weighting == "include-unrated":
        alpha = manifest.hyperparameters["alpha"]
        unrated = looks_unrated(scalar, predicted, levels, alpha)
        nearest = np.where(unrated, 0.0, nearest)
        away = np.where(unrated, np.abs(scalar + alpha * predicted), away)
    flag = np.clip(np.rint(value), 0, 1)
    away, nearest = np.where(item, away, np.abs(value - flag)), np.where(item, nearest, flag)
    return np.where(away < ON_GRID, nearest, np.nan)
