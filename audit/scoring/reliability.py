"""Are an attack's probabilities right? Answers in bins of what was claimed, and the share that is right.

Of the probability that an item is rated, "right" is the share that is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.base import RELATIVE, Reconstruction
from audit.scoring.answers import Answers
from audit.scoring.statistics import ends, resampled_sums
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM

EDGES = (0.0, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0)  # the last but one is "0.9"
RATINGS, ATTRIBUTES, RATED = "ratings", "attributes", "is it rated"


class Bin(NamedTuple):
    """Answers of one kind whose probability lies in one interval."""

    what: str
    least: float  # at least, and below (or 1)
    below: float
    answers: int  # of how many
    clients: int
    claimed: float  # mean probability
    right: float  # share that is right, with its 95 % bootstrap interval over clients
    right_low: float
    right_high: float


def reliability(reconstruction: Reconstruction, manifest: Manifest, truth: Truth, seed: int = 0) -> list[Bin]:
    """Bin the claimed probabilities of ratings, of attributes and of being rated, and count what is right."""
    users = np.unique(reconstruction.users)
    truth.refuse_unless_about(manifest)
    truth.rows(users)
    blocks = [Answers(block, manifest, truth) for block in reconstruction.blocks]
    found = []
    for what in (RATINGS, ATTRIBUTES, RATED):
        if what == RATINGS and reconstruction.scope in RELATIVE:
            continue
        # per client and bin: answers, sum of probabilities, right answers
        sums = np.zeros((3, len(EDGES) - 1, users.size))
        for block in blocks:
            _add(sums, block, what, users)
        for number, (least, below) in enumerate(pairwise(EDGES)):
            there = sums[0, number] > 0
            if there.any():
                found.append(_bin(what, least, below, sums[:, number, there], seed))
    return found


def _bin(what: str, least: float, below: float, sums: Float[np.ndarray, "3 clients"], seed: int) -> Bin:
    counts, claimed, right = sums
    n_right, n_answers = resampled_sums((right, counts), seed)
    ((low, high),) = ends(n_right / n_answers)
    total = counts.sum()
    return Bin(
        what, least, below, int(total), counts.size, claimed.sum() / total, right.sum() / total, low, high
    )


def _add(sums: Float[np.ndarray, "3 bins users"], answers: Answers, what: str, users: np.ndarray) -> None:
    """Count a block's answers of one kind."""
    block, kind = answers.block, ATTRIBUTE if what == ATTRIBUTES else ITEM
    claimed = block.rated_probability if what == RATED else block.probability
    if claimed is None:
        return
    probability = np.where(np.broadcast_to(block.kind, block.value.shape) == kind, claimed, np.nan)
    keep = ~np.isnan(probability) & ~np.isnan(block.value)
    if what == ATTRIBUTES:
        width = answers.truth.attributes.shape[1]
        index = np.broadcast_to(np.where(block.kind == ATTRIBUTE, block.index, 0), block.value.shape)
        padded = np.pad(answers.truth.attributes, ((0, 0), (0, 1)))  # beyond the last one: the empty column
        actual = padded[answers.row[:, None], np.minimum(index, width)]
        right = (block.value >= 0.5) == (actual > 0.5)
    else:
        right = answers.rated if what == RATED else answers.right
    bin_ = np.clip(np.searchsorted(EDGES, probability[keep], side="right") - 1, 0, len(EDGES) - 2)
    user = np.broadcast_to(np.searchsorted(users, block.users)[:, None], keep.shape)[keep]
    for part, values in zip(sums, (np.ones(user.size), probability[keep], right[keep]), strict=True):
        np.add.at(part, (bin_, user), values)
