"""Parts of ratings: held out for testing, some users or items, k-cores, communities of trust, components."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, between, require, strictly_between
from victims.data.ratings import Loss, Ratings, those

RULES = ("random", "time", "last:K")
COMMUNITY = re.compile(r"([0-9]{1,9})x([0-9]{1,9})x([0-9]{1,9})(?:x([0-9]{1,9}))?")


def with_principal_components(ratings: Ratings, n_components: int) -> Ratings:
    """Replace the item features by their first principal components (Mai & Pang 2022, section 6.1)."""
    features = ratings.item_features
    require(f"features of {ratings.name}", "n_components", n_components, between(1, features.shape[1]))
    left, scale, _ = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    return replace(
        ratings,
        item_features=left[:, :n_components] * scale[:n_components],
        item_feature_names=tuple(f"component {k + 1}" for k in range(n_components)),
    )


def split(ratings: Ratings, test_fraction: float, seed: int) -> tuple[Ratings, Ratings]:
    """Hold out a share of every user's ratings; a user always keeps at least one for training."""
    require("a split", "test_fraction", test_fraction, strictly_between(0, 1))
    wanted = np.rint(test_fraction * np.diff(ratings.indptr)).astype(np.int64)
    return _held_out(ratings, wanted, generator(seed, Purpose.HELD_OUT_SHARE))


def leave_out(ratings: Ratings, n_held_out: int, seed: int) -> tuple[Ratings, Ratings]:
    """Hold out that many ratings of every user; a user always keeps at least one for training."""
    require("ratings held out of every user", "number", n_held_out, at_least(1))
    rng = generator(seed, Purpose.HELD_OUT_NUMBER)
    return _held_out(ratings, np.full(ratings.n_users, n_held_out), rng)


def _held_out(
    ratings: Ratings, wanted: Int[np.ndarray, " users"], rng: np.random.Generator
) -> tuple[Ratings, Ratings]:
    rank = _rank(np.lexsort((rng.random(ratings.n_ratings), ratings.users)))
    held_out = np.minimum(wanted, np.diff(ratings.indptr) - 1)
    users = ratings.users
    return _parted(ratings, rank - ratings.indptr[users] < held_out[users])


def _rank(order: Int[np.ndarray, " ratings"]) -> Int[np.ndarray, " ratings"]:
    """The place of each rating in an order of them."""
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank


def without(ratings: Ratings, entries: Bool[np.ndarray, " ratings"]) -> Ratings:
    """Leave some of the ratings out; users and items stay, and a user may end with none."""
    return _select(ratings, ~entries)


def of_users(ratings: Ratings, users: Int[np.ndarray, " some"]) -> Ratings:
    """Take some users as a community of their own, in ascending order; all items stay."""
    chosen = np.unique(users)
    kept = _select(ratings, np.isin(ratings.users, chosen))
    indptr = np.concatenate([[0], np.cumsum(np.diff(kept.indptr)[chosen])])
    return replace(
        kept,
        indptr=indptr,
        attributes=ratings.attributes[chosen],
        user_ids=ratings.user_ids[chosen],
        trust=_trust_among(ratings, chosen),
    )


def _trust_among(ratings: Ratings, users: Int[np.ndarray, " some"]) -> Int[np.ndarray, "edges 2"]:
    """Statements of trust between some users, by their new index."""
    inside = np.isin(ratings.trust, users).all(axis=1)
    return np.searchsorted(users, ratings.trust[inside]).astype(np.int32)


def of_items(ratings: Ratings, items: Int[np.ndarray, " some"]) -> Ratings:
    """Take some items as the whole catalogue, in ascending order; all users stay."""
    chosen = np.unique(items)
    kept = _select(ratings, np.isin(ratings.items, chosen))
    return replace(
        kept,
        items=np.searchsorted(chosen, kept.items).astype(ratings.items.dtype),
        item_features=ratings.item_features[chosen],
        item_ids=ratings.item_ids[chosen],
    )


def most_rated(ratings: Ratings, n_items: int) -> Ratings:
    """Take the items with most ratings, and all users; ties go to the lower item."""
    require(f"most rated items of {ratings.name}", "n_items", n_items, between(1, ratings.n_items))
    counts = np.bincount(ratings.items, minlength=ratings.n_items)
    return of_items(ratings, np.argsort(-counts, kind="stable")[:n_items])


def _select(ratings: Ratings, keep: np.ndarray) -> Ratings:
    indptr = np.zeros_like(ratings.indptr)
    np.cumsum(np.bincount(ratings.users[keep], minlength=ratings.n_users), out=indptr[1:])
    times = None if ratings.times is None else ratings.times[keep]
    return replace(
        ratings, indptr=indptr, items=ratings.items[keep], values=ratings.values[keep], times=times
    )


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
    users = ratings.users
    fold = (_rank(np.lexsort((draws, users))) - ratings.indptr[users]) % count
    fold[np.diff(ratings.indptr)[users] == 1] = -1
    for number in range(count):
        yield _parted(ratings, fold == number)


class Rotation(NamedTuple):
    """Ratings to train on, to choose by, and to measure on."""

    train: Ratings
    validation: Ratings
    test: Ratings


def rotations(ratings: Ratings, seed: int, count: int = 5) -> Iterator[Rotation]:
    """Random equal parts of all ratings, as Duriakova et al. 2019 cuts them: each is the test part once."""
    require("rotations", "count", count, at_least(3))
    fold = _rank(generator(seed, Purpose.PARTS).permutation(ratings.n_ratings)) % count
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
    rank = _rank(np.lexsort((ratings.items, _times(ratings), users)))
    length = np.diff(ratings.indptr)
    held_out = np.minimum(count, length - 1)
    return ratings.indptr[users + 1] - rank <= held_out[users]


def with_enough(ratings: Ratings, min_ratings: int = 1, min_item_ratings: int = 1) -> Ratings:
    """Leave out users and items with fewer ratings, until nobody left has fewer.

    Notes
    -----
    Known as k-core filtering.
    """
    if min_ratings <= 1 and min_item_ratings <= 1:
        return ratings
    user, item = _core(ratings, min_ratings, min_item_ratings)
    if not user.any() or not item.any():
        raise InputError(
            f"{ratings.name}: nothing is left with min_ratings={min_ratings} and "
            f"min_item_ratings={min_item_ratings}; lower them"
        )
    gone = ~(user[ratings.users] & item[ratings.items])
    kept = without(ratings, gone)
    if min_item_ratings > 1:
        kept = of_items(kept, np.flatnonzero(item))
    if min_ratings > 1:
        kept = of_users(kept, np.flatnonzero(user))
    why = f"min_ratings={min_ratings}, min_item_ratings={min_item_ratings}"
    sizes = (
        ("users", ratings.n_users - kept.n_users, ratings.n_users),
        ("items", ratings.n_items - kept.n_items, ratings.n_items),
        ("ratings", int(gone.sum()), ratings.n_ratings),
    )
    lost = those(*(Loss(ratings.name, what, count, of, why) for what, count, of in sizes))
    return replace(kept, losses=(*ratings.losses, *lost))


def _core(
    ratings: Ratings, min_ratings: int, min_item_ratings: int
) -> tuple[Bool[np.ndarray, " users"], Bool[np.ndarray, " items"]]:
    """Users and items that stay."""
    users, items = ratings.users, ratings.items
    user = np.ones(ratings.n_users, bool)
    item = np.ones(ratings.n_items, bool)
    while True:
        alive = user[users] & item[items]
        n_user = np.bincount(users[alive], minlength=user.size)
        n_item = np.bincount(items[alive], minlength=item.size)
        fewer = (user & (n_user < min_ratings) & (min_ratings > 1)).any()
        rarer = (item & (n_item < min_item_ratings) & (min_item_ratings > 1)).any()
        if not fewer and not rarer:
            return user, item
        if min_ratings > 1:
            user &= n_user >= min_ratings
        if min_item_ratings > 1:
            item &= n_item >= min_item_ratings


class Community(NamedTuple):
    """Sizes of the part, and the seed that it is drawn with."""

    n_users: int
    n_items: int
    n_ratings: int
    seed: int = 0


def parse_community(text: str) -> Community:
    """Read sizes of the form ``USERSxITEMSxRATINGS`` or ``USERSxITEMSxRATINGSxSEED``.

    Examples
    --------
    >>> parse_community("1336x6584x30000")
    Community(n_users=1336, n_items=6584, n_ratings=30000, seed=0)
    """
    found = COMMUNITY.fullmatch(text)
    sizes = [int(size) for size in found.groups() if size] if found else [0]
    if min(sizes[:3]) < 1:
        raise InputError(
            f"community of the data must be USERSxITEMSxRATINGS, each >= 1, got {text!r:.40}; "
            "write community=1336x6584x30000"
        )
    return Community(*sizes)


def community(ratings: Ratings, sizes: Community) -> Ratings:
    """Users around one who is drawn, along trust; the items that they rated most; some of those ratings.

    From a user drawn at random among those who trust anybody, users are visited breadth first along
    statements of trust in both directions, in random order, until there are enough; the most rated items of
    these users are kept, then ratings drawn at random, and last the users and items that still have one.
    """
    if not len(ratings.trust):
        raise InputError(
            f"{ratings.name} has no statements of trust, which a community needs; add trust=FILE"
        )
    rng = generator(sizes.seed, Purpose.DENSE_SUBSET)
    some = of_users(ratings, _around(ratings, sizes.n_users, rng))
    rated = np.unique(some.items).size
    some = most_rated(some, min(sizes.n_items, rated))
    if some.n_ratings > sizes.n_ratings:
        order = rng.permutation(some.n_ratings)
        dropped = np.zeros(some.n_ratings, bool)
        dropped[order[sizes.n_ratings :]] = True
        some = without(some, dropped)
    some = of_users(some, np.flatnonzero(np.diff(some.indptr)))
    return of_items(some, np.unique(some.items))


def _around(ratings: Ratings, n_users: int, rng: np.random.Generator) -> Int[np.ndarray, " users"]:
    """Users met first, breadth first from one who is drawn."""
    pairs = np.concatenate([ratings.trust, ratings.trust[:, ::-1]])
    shape = ratings.n_users, ratings.n_users
    near = sp.csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=shape)
    seen = np.zeros(ratings.n_users, bool)
    found: list[int] = []
    for begin in rng.permutation(np.unique(ratings.trust[:, 0])).tolist():
        edge = [] if seen[begin] else [begin]
        while edge and len(found) < n_users:
            seen[edge] = True
            found += edge[: n_users - len(found)]
            reached = np.unique(near[edge].indices)
            edge = rng.permutation(reached[~seen[reached]]).tolist()
        if len(found) >= n_users:
            break
    return np.sort(np.array(found, np.int64))
