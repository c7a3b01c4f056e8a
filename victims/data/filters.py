"""Users and items with few ratings left out, and everything that hangs on them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool

from victims.common.errors import InputError
from victims.data.losses import Loss, those
from victims.data.ratings import Ratings
from victims.data.subsets import of_items, of_users, without


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
