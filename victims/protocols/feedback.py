"""Ratings taken apart into explicit and implicit feedback, with sampled negatives (paper 004, 4.1.2 and 4.3).

A share alpha of the observed pairs become positives and lose their rating; the rest keep it. As many
negatives as positives are drawn uniformly for every user, among the items that it did not rate: the paper
says "uniformly", and not whether an item with an explicit rating may be a negative.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.trust_graph import draw_absent

EXPLICIT, POSITIVE, NEGATIVE = range(3)
RatingMap = Literal["max", "min-max"]


class Samples(NamedTuple):
    """What users step on in a round, ascending by user, then kind, then item."""

    user: Int[np.ndarray, " samples"]
    item: Int[np.ndarray, " samples"]
    kind: Int[np.ndarray, " samples"]  # ``EXPLICIT``, ``POSITIVE`` or ``NEGATIVE``
    target: Float[np.ndarray, " samples"]  # ratings in 0..1 where explicit, else 0

    def of_kind(self, *kinds: int) -> Int[np.ndarray, " some"]:
        """Indices of the samples of these kinds."""
        return np.flatnonzero(np.isin(self.kind, kinds))


def unit_ratings(
    values: Float[np.ndarray, " ratings"], levels: tuple[float, ...], rating_map: RatingMap
) -> Float[np.ndarray, " ratings"]:
    """Ratings on the scale 0..1.

    Examples
    --------
    >>> unit_ratings(np.array([0.5, 4.0]), (0.5, 4.0), "max").tolist()
    [0.125, 1.0]
    >>> unit_ratings(np.array([0.5, 4.0]), (0.5, 4.0), "min-max").tolist()
    [0.0, 1.0]
    """
    if rating_map == "max" or levels[-1] == levels[0]:
        return values / levels[-1]
    return (values - levels[0]) / (levels[-1] - levels[0])


def in_stars(
    unit: Float[np.ndarray, "*shape"], levels: tuple[float, ...], rating_map: RatingMap
) -> Float[np.ndarray, "*shape"]:
    """Turn numbers on the scale 0..1 back into stars; the inverse of ``unit_ratings``.

    Examples
    --------
    >>> in_stars(np.array([0.0, 1.0]), (0.5, 4.0), "min-max").tolist()
    [0.5, 4.0]
    """
    if rating_map == "max" or levels[-1] == levels[0]:
        return unit * levels[-1]
    return levels[0] + unit * (levels[-1] - levels[0])


def positives(ratings: Ratings, share: float, seed: int) -> np.ndarray:
    """Draw which of the observed pairs become implicit feedback: a share of all of them."""
    order = generator(seed, Purpose.IMPLICIT_SHARE).permutation(ratings.n_ratings)
    chosen = np.zeros(ratings.n_ratings, bool)
    chosen[order[: round(share * ratings.n_ratings)]] = True
    return chosen


def observed(ratings: Ratings, share: float, rating_map: RatingMap, seed: int) -> Samples:
    """Explicit and positive samples, which stay the same in all rounds."""
    implicit = positives(ratings, share, seed)
    target = np.where(implicit, 0.0, unit_ratings(ratings.values, ratings.levels, rating_map))
    kind = np.where(implicit, POSITIVE, EXPLICIT).astype(np.int8)
    return _sorted(Samples(ratings.users, ratings.items.astype(np.int32), kind, target))


def explicit_only(ratings: Ratings, share: float, rating_map: RatingMap, seed: int) -> Samples:
    """The explicit samples of ``observed``, for a protocol that knows no implicit feedback."""
    samples = observed(ratings, share, rating_map, seed)
    return Samples(*(column[samples.kind == EXPLICIT] for column in samples))


def with_negatives(samples: Samples, ratings: Ratings, seed: int, draw: int) -> Samples:
    """Add as many sampled negatives to every user as it has positives, or all its unrated items if fewer."""
    counts = np.bincount(samples.user[samples.kind == POSITIVE], minlength=ratings.n_users)
    if not counts.any():
        return samples
    rated = ratings.users.astype(np.int64) * ratings.n_items + ratings.items
    rng = generator(seed, Purpose.SAMPLED_NEGATIVES, draw)
    drawn = draw_absent(rated, counts, ratings.n_items, rng).astype(np.int32)
    more = len(drawn)
    return _sorted(
        Samples(
            np.concatenate([samples.user, drawn[:, 0]]),
            np.concatenate([samples.item, drawn[:, 1]]),
            np.concatenate([samples.kind, np.full(more, NEGATIVE, np.int8)]),
            np.concatenate([samples.target, np.zeros(more)]),
        )
    )


def _sorted(samples: Samples) -> Samples:
    order = np.lexsort((samples.item, samples.kind, samples.user))
    return Samples(*(column[order] for column in samples))
