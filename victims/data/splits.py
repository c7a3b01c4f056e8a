"""Ratings held out for testing: at random, the last of every user, or all after a moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, require, strictly_between
from victims.data.ratings import Ratings
from victims.data.subsets import split, without

RULES = ("random", "time", "last:K")


def split_by(rule: str, ratings: Ratings, test_fraction: float, seed: int) -> tuple[Ratings, Ratings]:
    """Hold out ratings by a rule in words."""
    refuse_unknown_rule(rule)
    if rule == "random":
        return split(ratings, test_fraction, seed)
    if rule == "time":
        return _parted(ratings, _latest(ratings, test_fraction))
    return _parted(ratings, _last(ratings, int(rule.partition(":")[2])))


def refuse_unknown_rule(rule: str) -> None:
    """Refuse what is no rule of ``split_by``."""
    name, _, count = rule.partition(":")
    counted = name == "last" and count.isascii() and count.isdigit() and len(count) < 10 and int(count) >= 1
    if rule not in ("random", "time") and not counted:
        raise InputError(
            f"a split must be one of {', '.join(RULES)} with K >= 1, got {rule!r:.40}; last:1 holds out one "
            "rating of each client"
        )


def folds(ratings: Ratings, count: int, seed: int) -> Iterator[tuple[Ratings, Ratings]]:
    """Part every user's ratings at random, and hold out one part after the other."""
    require("folds", "count", count, at_least(2))
    draws = generator(seed, Purpose.FOLDS).random(ratings.n_ratings)
    order = np.lexsort((draws, ratings.users))
    rank = np.empty(ratings.n_ratings, np.int64)
    rank[order] = np.arange(ratings.n_ratings)
    users = ratings.users
    fold = (rank - ratings.indptr[users]) % count
    fold[np.diff(ratings.indptr)[users] == 1] = -1
    for number in range(count):
        yield _parted(ratings, fold == number)


class Rotation(NamedTuple):
    """Ratings to train on, to choose by, and to measure on."""

    train: Ratings
    validation: Ratings
    test: Ratings


def rotations(ratings: Ratings, seed: int, count: int = 5) -> Iterator[Rotation]:
    """Random equal parts of all ratings, as paper 003 cuts them: each is the test part once."""
    require("rotations", "count", count, at_least(3))
    fold = np.empty(ratings.n_ratings, np.int64)
    fold[generator(seed, Purpose.PARTS).permutation(ratings.n_ratings)] = np.arange(fold.size) % count
    for number in range(count):
        is_test, is_validation = fold == number, fold == (number + 1) % count
        yield Rotation(
            without(ratings, is_test | is_validation),
            without(ratings, ~is_validation),
            without(ratings, ~is_test),
        )


def _parted(ratings: Ratings, is_test: Bool[np.ndarray, " ratings"]) -> tuple[Ratings, Ratings]:
    return without(ratings, is_test), without(ratings, ~is_test)


def _times(ratings: Ratings) -> np.ndarray:
    """When each rating was given; all must be told."""
    if ratings.times is None:
        raise InputError(
            f"{ratings.name} tells no times, which this split needs; name their column as time=NAME"
        )
    missing = int(np.isnan(ratings.times).sum())
    if missing:
        raise InputError(
            f"{ratings.name} has {missing:,} of {ratings.n_ratings:,} ratings without a time; split at random"
        )
    return ratings.times


def _latest(ratings: Ratings, test_fraction: float) -> Bool[np.ndarray, " ratings"]:
    """The latest share of all; those of one moment stay together, in training."""
    require("a split", "test_fraction", test_fraction, strictly_between(0, 1))
    times = _times(ratings)
    moment = np.sort(times)[round((1 - test_fraction) * times.size) - 1]
    return times > moment


def _last(ratings: Ratings, count: int) -> Bool[np.ndarray, " ratings"]:
    """The latest of every user; of one moment, those of the higher item count as later."""
    users = ratings.users
    order = np.lexsort((ratings.items, _times(ratings), users))
    rank = np.empty(ratings.n_ratings, np.int64)
    rank[order] = np.arange(ratings.n_ratings)
    length = np.diff(ratings.indptr)
    held_out = np.minimum(count, length - 1)
    return ratings.indptr[users + 1] - rank <= held_out[users]
