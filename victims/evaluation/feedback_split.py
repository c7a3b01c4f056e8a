"""Paper 004's data (4.1.2): 70 % of the records to train on, a share of both parts as implicit feedback."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import require, strictly_between
from victims.data.ratings import Ratings
from victims.data.subsets import without
from victims.protocols.feedback import positives


class Feedback(NamedTuple):
    """Ratings of one part, and its explicit and implicit halves; same users and items."""

    both: Ratings
    explicit: Ratings
    implicit: Ratings


class FeedbackSplit(NamedTuple):
    """What is trained on, and what is measured on."""

    train: Feedback
    test: Feedback


def feedback_split(ratings: Ratings, test_fraction: float, share: float, seed: int) -> FeedbackSplit:
    """Hold out records at random, whoever they are of, and take both parts apart."""
    require("a split", "test_fraction", test_fraction, strictly_between(0, 1))
    order = generator(seed, Purpose.HELD_OUT_RECORDS).permutation(ratings.n_ratings)
    is_test = np.zeros(ratings.n_ratings, bool)
    is_test[order[: round(test_fraction * ratings.n_ratings)]] = True
    parts = [_halved(without(ratings, left_out), share, seed) for left_out in (is_test, ~is_test)]
    for part in parts:
        for half in part:
            if half.n_ratings == 0:
                raise InputError(
                    f"{ratings.name} has too few ratings ({ratings.n_ratings}) to hold some out and to take "
                    "some as implicit feedback; use more of them"
                )
    return FeedbackSplit(*parts)


def _halved(ratings: Ratings, share: float, seed: int) -> Feedback:
    implicit = positives(ratings, share, seed)
    return Feedback(ratings, without(ratings, implicit), without(ratings, ~implicit))
