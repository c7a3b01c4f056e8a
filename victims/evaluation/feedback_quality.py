"""How well ratings are predicted and items recommended, as paper 004 measures it (section 4.1.4).

RMSE on the explicit half of the test part, in units of 0..1. P@5 and R@5 are means over users with relevant
items, in two universes, for the paper does not say which: ``implicit``, where the implicit half of the test
part is relevant and every item may be listed but the user's own positives of the training; and ``all``, where
all of the test part is relevant and nothing that the user rated in training is listed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.evaluation.feedback_split import FeedbackSplit
from victims.evaluation.ranking_cases import EXISTING, Case
from victims.evaluation.ranks import Cut, rank
from victims.protocols.feedback import RatingMap, unit_ratings

LISTED = 5
UNIVERSES = ("implicit", "all")


def unit_values(ratings: Ratings, rating_map: RatingMap) -> Float[np.ndarray, " ratings"]:
    """Put ratings on the scale 0..1.

    References
    ----------
    Paper 004 (doi:10.3390/app122111118), which only says that ratings are scaled.
    """
    return unit_ratings(ratings.values, ratings.levels, rating_map)


def unit_rmse(predicted: Float[np.ndarray, " ratings"], test: Ratings, rating_map: RatingMap) -> float:
    """Root mean square error of predictions in 0..1, which are clipped to the levels."""
    levels = unit_ratings(np.array([test.levels[0], test.levels[-1]]), test.levels, rating_map)
    error = np.clip(predicted, levels[0], levels[1]) - unit_values(test, rating_map)
    return float(np.sqrt(np.mean(error**2)))


def hits(split: FeedbackSplit, scores: Callable[[np.ndarray], np.ndarray]) -> dict[str, float]:
    """P@5 and R@5 in both universes."""
    everything = np.ones(split.train.both.n_items, bool)
    cut = Cut(LISTED, split.train.both.levels[0])
    found = {}
    for universe, train, test in (
        ("implicit", split.train.implicit, split.test.implicit),
        ("all", split.train.both, split.test.both),
    ):
        quality = rank(Case(EXISTING, train, test, everything), scores, cut)["all"]
        found[f"precision_at_{LISTED}_{universe}"] = quality.precision
        found[f"recall_at_{LISTED}_{universe}"] = quality.recall
    return found


def popularity(split: FeedbackSplit, seed: int) -> dict[str, float]:
    """The same by the number of training ratings of an item."""
    ties = generator(seed, Purpose.POPULARITY_TIES)
    found: dict[str, float] = {}
    for universe, train in (("implicit", split.train.implicit), ("all", split.train.both)):
        counts = np.bincount(train.items, minlength=train.n_items) + 0.5 * ties.random(train.n_items)
        values = hits(split, lambda users, counts=counts: np.tile(counts, (users.size, 1)))
        found |= {name: value for name, value in values.items() if name.endswith(f"_{universe}")}
    return found
