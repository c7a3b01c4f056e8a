"""How right the differences between a client's ratings are: what is left where all may be a level higher.

Told one of its ratings, which share of the others follows? Whatever is added to all of a client's answers
takes nothing away from that, so that it is asked of answers that leave it open
(``attacks.base.Scope.DIFFERENCES``) and of nobody else's. Where ratings may be upside down as well
(``attacks.base.Scope.SIZES``), it is asked how far two ratings of a client are from each other.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.base import Estimates, Scope
from audit.scoring.answers_said import round_ratings
from audit.scoring.metrics import lookup
from audit.scoring.ratios import ratio
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM

DIFFERENCES, SIZES = "rating_difference_accuracy", "rating_difference_size_accuracy"
OF_SCOPE = {Scope.DIFFERENCES: DIFFERENCES, Scope.SIZES: SIZES}
#: How many of a client's ratings are told beside one that says how the others lie.
TOLD = {DIFFERENCES: 1, SIZES: 2}
MOST_LEVELS = 32  # whose sizes are guessed, the commonest ones


class _Pairs(NamedTuple):
    """Ratings of clients, those of one client together, and how many it has."""

    owner: Int[np.ndarray, " ratings"]
    n_rated: Int[np.ndarray, " users"]

    def alike(self, *numbers: Float[np.ndarray, " ratings"]) -> Float[np.ndarray, " users"]:
        """Pairs of each client's ratings, in either order, that have the same numbers."""
        label = self.owner
        for number in numbers:
            different, place = np.unique(np.round(number, 9), return_inverse=True)
            label = label * max(different.size, 1) + place
            _, label = np.unique(label, return_inverse=True)
        _, first, count = np.unique(label, return_index=True, return_counts=True)
        pairs = (count * (count - 1)).astype(np.float64)
        return np.bincount(self.owner[first], pairs, minlength=self.n_rated.size).astype(np.float64)

    def share(self, pairs: Float[np.ndarray, " users"]) -> Float[np.ndarray, " users"]:
        """Of all pairs; NaN where there is none."""
        return ratio(pairs, (self.n_rated * (self.n_rated - 1)).astype(np.float64))


def difference_accuracy(
    blocks: tuple[Estimates, ...], manifest: Manifest, truth: Truth, users: Int[np.ndarray, " users"]
) -> dict[str, Float[np.ndarray, " users"]]:
    """Compute the share of the pairs of each client's ratings whose difference is right, and its size."""
    out = {metric: np.full(users.size, np.nan) for metric in (DIFFERENCES, SIZES)}
    for block in blocks:
        row = truth.rows(block.users)
        given = ~np.isnan(block.value) & (block.kind == ITEM)
        actual = np.where(given, lookup(truth, row, block.index, block.value.shape), 0.0)
        answer = round_ratings(np.where(given, block.value, 0.0), manifest.rating_levels)
        rated = actual > 0
        pairs = _Pairs(np.nonzero(rated)[0], np.diff(truth.ratings.indptr)[row])
        less, more = (answer - actual)[rated], (answer + actual)[rated]
        upright = pairs.alike(less)
        # a difference is right either way round; where there is none, both are
        either = upright + pairs.alike(more) - pairs.alike(less, more)
        answered = given.any(axis=1)
        here = np.searchsorted(users, block.users[answered])
        out[DIFFERENCES][here] = pairs.share(upright)[answered]
        out[SIZES][here] = pairs.share(either)[answered]
    return out


def difference_guesses(
    metric: str, truth: Truth, users: Int[np.ndarray, " users"]
) -> dict[str, Float[np.ndarray, " users"]]:
    """Score what is said of differences without the transcript: the same for every pair, the commonest."""
    ratings = truth.ratings[truth.rows(users)]
    n_rated = np.diff(ratings.indptr)
    pairs = _Pairs(np.repeat(np.arange(users.size), n_rated), n_rated)
    guesses = [pairs.share(pairs.alike(ratings.data))]
    if metric == SIZES:
        guesses += [pairs.share(same) for same in _apart(ratings.data, pairs)]
    means = [np.nanmean(one) if not np.isnan(one).all() else 0.0 for one in guesses]
    return {"majority": guesses[int(np.argmax(means))]}


def _apart(value: Float[np.ndarray, " ratings"], pairs: _Pairs) -> list[Float[np.ndarray, " users"]]:
    """Pairs of each client's ratings, in either order, that are so far from each other: each size but 0."""
    levels, place, count = np.unique(value, return_inverse=True, return_counts=True)
    common = np.sort(np.argsort(-count, kind="stable")[:MOST_LEVELS])
    of_level = np.zeros((levels.size, pairs.n_rated.size))
    np.add.at(of_level, (place, pairs.owner), 1.0)
    sizes: dict[float, np.ndarray] = {}
    for first, second in combinations(common.tolist(), 2):
        size = round(float(levels[second] - levels[first]), 9)
        sizes[size] = sizes.get(size, 0.0) + 2 * of_level[first] * of_level[second]
    return list(sizes.values())
