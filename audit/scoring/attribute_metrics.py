"""How right a reconstruction is about attributes: each by itself, and the active one of each group."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.base import Estimates
from audit.scoring.ratios import ratio
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE


def score_attributes(
    block: Estimates, manifest: Manifest, truth: Truth, row: np.ndarray
) -> dict[str, np.ndarray]:
    """Score the rows about attributes, client by client."""
    n_users = block.users.size
    estimate = np.zeros((n_users, manifest.n_attributes))
    given = ~np.isnan(block.value) & (block.kind == ATTRIBUTE)
    user, slot = np.nonzero(given)
    estimate[user, np.broadcast_to(block.index, block.value.shape)[user, slot]] = block.value[user, slot]
    actual = attribute_table(truth, manifest, row)
    scores = {"attribute_accuracy": ((estimate > 0.5) == (actual > 0.5)).mean(axis=1)}
    if manifest.attribute_groups:
        scores |= group_scores(estimate, actual, manifest)
    answered = given.any(axis=1)  # an answer about ratings alone says nothing here
    return {name: np.where(answered, values, np.nan) for name, values in scores.items()}


def attribute_table(truth: Truth, manifest: Manifest, row: np.ndarray) -> np.ndarray:
    """Take the attributes of some clients, with exactly ``n_attributes`` columns."""
    table = np.zeros((row.size, manifest.n_attributes))
    width = min(manifest.n_attributes, truth.attributes.shape[1])
    table[:, :width] = truth.attributes[row, :width]
    return table


def group_scores(
    estimate: Float[np.ndarray, "users attributes"],
    actual: Float[np.ndarray, "users attributes"],
    manifest: Manifest,
) -> dict[str, np.ndarray]:
    """Score whether the largest estimate of each one-hot block is at the active attribute."""
    scores = {}
    for number, group in enumerate(manifest.attribute_groups):
        if group:
            hit = estimate[:, group].argmax(axis=1) == actual[:, group].argmax(axis=1)
            active = actual[:, group].max(axis=1) > 0.5
            scores[f"attribute_group_accuracy/{number}"] = np.where(active, hit, np.nan)
        else:
            scores[f"attribute_group_accuracy/{number}"] = np.full(estimate.shape[0], np.nan)
    table = np.stack(list(scores.values()))
    scores["attribute_group_accuracy"] = ratio(np.nansum(table, axis=0), np.sum(~np.isnan(table), axis=0))
    return scores
