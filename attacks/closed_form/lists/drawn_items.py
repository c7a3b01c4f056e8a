"""Ratings at the rounded mean of a client's ratings, that may be of items that it drew and did not rate.

A client that hides what it rated among items that it drew, and gives those the mean of its ratings rounded
to a level, sends rows that nothing tells from those of ratings (``attacks.closed_form.uploads.averaged_rows``
reads means that are no level). Then most of what it seems to have rated is at one level, the one nearest to
the mean of all of it. Of a single client this may be so; where it is so of nearly all of them, the ratings at
that level are not answered.

Clients whose ratings seem to be of one or two levels say nothing about it: of two neighbours the more
frequent one is always nearest to the mean. Nor do clients whose rows tell which items they did not rate.

References
----------
G. Lin, F. Liang, W. Pan, Z. Ming, "FedRec: Federated Recommendation With Explicit Feedback", IEEE Intelligent
Systems 36(5), 2021, doi:10.1109/MIS.2020.3017205.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import RELATIVE, Estimates, Reconstruction, Scope
from attacks.closed_form.fit.contradicted import TELLING, silent_about
from attacks.closed_form.fit.decoding import nearest_level
from victims.transcript.view import ITEM

HALF = 0.5  # of a client's ratings, that are at one level where it drew as many items as it rated
MOST = 0.8  # of the clients that say something, who have so many; of 900 of ML-100K, by 60 ratings, 13 % do

DRAWN = (
    "most ratings of nearly every client are at the level nearest to its mean: they may be of items that it "
    "drew and gave its rounded mean, and of all that is read of this client"
)


def unless_drawn(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> Reconstruction:
    """Take back ratings at the level nearest to each client's mean, where they may stand for no ratings."""
    if found.scope not in (Scope.RATINGS_AND_ATTRIBUTES, *RELATIVE) or levels.size < TELLING:
        return found
    blocks, said = [], []
    for block in found.blocks:
        at_mean, telling = _at_the_mean(block, levels)
        blocks.append(replace(block, value=np.where(at_mean, np.nan, block.value)))
        rated = np.isfinite(block.value) & (block.kind == ITEM)
        said += (at_mean.sum(axis=1) >= HALF * rated.sum(axis=1))[telling].tolist()
    if not said or np.mean(said) < MOST:
        return found
    left = {user for one in blocks for user in one.users[np.isfinite(one.value).any(axis=1)].tolist()}
    told = ~np.isin(found.users, list(found.abstained)) & ~np.isin(found.users, list(left))
    return silent_about(replace(found, blocks=tuple(blocks)), told, DRAWN)


def _at_the_mean(
    block: Estimates, levels: Float[np.ndarray, " levels"]
) -> tuple[Bool[np.ndarray, "users rows"], Bool[np.ndarray, " users"]]:
    """Whose ratings are nearest to the mean, and which clients say whether that is by chance."""
    ratings = np.isfinite(block.value) & (block.kind == ITEM)
    at_mean, telling = np.zeros(ratings.shape, bool), np.zeros(len(ratings), bool)
    for user, own in enumerate(ratings):
        zeros = own & (block.value[user] == 0)
        here = np.flatnonzero(own & ~zeros)
        if not here.size or zeros.any():
            continue
        near = nearest_level(block.value[user, here], levels)
        at_mean[user, here] = near == nearest_level(near.mean(keepdims=True), levels)
        telling[user] = np.unique(near).size >= TELLING
    return at_mean, telling
