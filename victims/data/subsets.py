"""Parts of ratings: held-out shares, some users, the most rated items, fewer features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int

from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, between, require, strictly_between
from victims.data.ratings import Ratings


def with_principal_components(ratings: Ratings, n_components: int) -> Ratings:
    """Replace the item features by their first principal components (paper 000, section 6.1).

    References
    ----------
    Paper 000 (arXiv:2210.07775), section 6.1.
    """
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
    shuffled = np.lexsort((rng.random(ratings.n_ratings), ratings.users))
    rank = np.empty(ratings.n_ratings, np.int64)
    rank[shuffled] = np.arange(ratings.n_ratings)
    held_out = np.minimum(wanted, np.diff(ratings.indptr) - 1)
    users = ratings.users
    is_test = rank - ratings.indptr[users] < held_out[users]
    return _select(ratings, ~is_test), _select(ratings, is_test)


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
