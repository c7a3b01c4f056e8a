"""Are an attack's probabilities right? Answers in bins of what was claimed, and the share that is right.

Of the probability that an item is rated, "right" is the share that is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import RELATIVE, Estimates, Reconstruction
from audit.scoring.answers_said import round_ratings
from audit.scoring.metrics import lookup
from audit.scoring.statistics import interval
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM

EDGES = (0.0, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0)  # the last but one is "0.9"
RATINGS, RATED = "ratings", "is it rated"
KINDS = {RATINGS: ITEM, "attributes": ATTRIBUTE, RATED: ITEM}


class Bin(NamedTuple):
    """Answers of one kind whose probability lies in one interval."""

    what: str
    least: float  # at least, and below (or 1)
    below: float  # at least, and below (or 1)
    answers: int  # of how many
    clients: int  # of how many
    claimed: float  # mean probability
    right: float  # share that is right, with its 95 % bootstrap interval over clients
    right_low: float  # share that is right, with its 95 % bootstrap interval over clients
    right_high: float  # share that is right, with its 95 % bootstrap interval over clients


def reliability(reconstruction: Reconstruction, manifest: Manifest, truth: Truth, seed: int = 0) -> list[Bin]:
    """Bin the claimed probabilities of ratings, of attributes and of being rated, and count what is right."""
    users = np.unique(reconstruction.users)
    truth.refuse_unless_about(manifest)
    truth.rows(users)
    found = []
    for what in KINDS:
        if what == RATINGS and reconstruction.scope in RELATIVE:
            continue
        # per client and bin: answers, sum of probabilities, right answers
        sums = np.zeros((3, len(EDGES) - 1, users.size))
        for block in reconstruction.blocks:
            _add(sums, block, what, manifest, truth, users)
        for number, (least, below) in enumerate(pairwise(EDGES)):
            there = sums[0, number] > 0
            if there.any():
                found.append(_bin(what, least, below, sums[:, number, there], seed))
    return found


def _bin(what: str, least: float, below: float, sums: Float[np.ndarray, "3 clients"], seed: int) -> Bin:
    counts, claimed, right = sums

    def share(right: np.ndarray, counts: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(right.sum(axis=axis) / counts.sum(axis=axis))

    low, high = interval(share, (right, counts), seed)
    total = counts.sum()
    return Bin(
        what, least, below, int(total), counts.size, claimed.sum() / total, right.sum() / total, low, high
    )


def _add(
    sums: Float[np.ndarray, "3 bins users"],
    block: Estimates,
    what: str,
    manifest: Manifest,
    truth: Truth,
    users: np.ndarray,
) -> None:
    """Count a block's answers of one kind."""
    claimed = block.rated_probability if what == RATED else block.probability
    if claimed is None:
        return
    probability = np.where(np.broadcast_to(block.kind, block.value.shape) == KINDS[what], claimed, np.nan)
    keep = ~np.isnan(probability) & ~np.isnan(block.value)
    right = RIGHT[what](block, manifest, truth, truth.rows(block.users))
    bin_ = np.clip(np.searchsorted(EDGES, probability[keep], side="right") - 1, 0, len(EDGES) - 2)
    user = np.broadcast_to(np.searchsorted(users, block.users)[:, None], keep.shape)[keep]
    for part, values in zip(sums, (np.ones(user.size), probability[keep], right[keep]), strict=True):
        np.add.at(part, (bin_, user), values)


def _right_ratings(
    block: Estimates, manifest: Manifest, truth: Truth, row: np.ndarray
) -> Bool[np.ndarray, "users rows"]:
    index = np.where(block.kind == ITEM, block.index, 0)
    actual = lookup(truth, row, index, block.value.shape)
    return round_ratings(np.nan_to_num(block.value), manifest.rating_levels) == actual


def _right_attributes(
    block: Estimates, manifest: Manifest, truth: Truth, row: np.ndarray
) -> Bool[np.ndarray, "users rows"]:
    index = np.broadcast_to(np.where(block.kind == ATTRIBUTE, block.index, 0), block.value.shape)
    padded = np.pad(truth.attributes, ((0, 0), (0, 1)))  # beyond the last one: the empty last column
    actual = padded[row[:, None], np.minimum(index, truth.attributes.shape[1])]
    return (block.value >= 0.5) == (actual > 0.5)


def _rated(
    block: Estimates, manifest: Manifest, truth: Truth, row: np.ndarray
) -> Bool[np.ndarray, "users rows"]:
    index = np.where(block.kind == ITEM, block.index, 0)
    return lookup(truth, row, index, block.value.shape) > 0


RIGHT = {"ratings": _right_ratings, "attributes": _right_attributes, RATED: _rated}
