"""Rows that fit a client and are not of its ratings: those of items that it drew.

A client that hides what it rated among items that it draws in each round sends rows of these as well. Where
it makes up ratings for them one round tells nothing, and several tell which items last; where it gives
them the mean of its ratings, rounded to a level, nearly all clients have most of their ratings there.

References
----------
G. Lin, F. Liang, W. Pan, Z. Ming, "FedRec: Federated Recommendation With Explicit Feedback", IEEE Intelligent
Systems 36(5), 2021, doi:10.1109/MIS.2020.3017205.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float

from attacks.base import RELATIVE, Reconstruction, Scope, silent_about
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import nearest_level
from attacks.closed_form.implicit.positives import EVEN, UNEVEN, off_even_draws
from attacks.closed_form.lists.sent_items import lists_of
from victims.transcript.view import ITEM, View

EXCESS = 2.0  # times as many items are in all rounds as of a sample would be
SAMPLES = ("personalized-sampling", "unrated-sampling")  # defenses after which lists come and go
HALF = 0.5  # of a client's ratings, that are at one level where it drew as many items as it rated
MOST = 0.8  # of the clients that say something, who have so many; of 900 of ML-100K, by 60 ratings, 13 % do
AT_MEAN = (
    "most ratings of nearly every client are at the level nearest to its mean: they may be of items that it "
    "drew and gave its rounded mean, and of all that is read of this client"
)
COMES_AND_GOES = "what is read is of items that come and go from round to round as even draws do"


def abstain_if_drawn(found: Reconstruction, view: View) -> Reconstruction:
    """Answer items that last alone, where others come and go as even draws do: their ratings are made up."""
    if view.rounds.size < 2 or not found.blocks or found.scope == Scope.RATED_SET or _sampled(view):
        return found
    lists = lists_of(view, every_round=True)
    lasting = lists.lasting
    passing = sp.csr_array(lists.sent - lasting)
    passing.eliminate_zeros()
    if 2 * passing.nnz <= lasting.nnz or not lasting.nnz or off_even_draws(passing, lasting) > EVEN:
        return found
    n_rounds = int(lists.n_rounds.max())
    missed = np.repeat(lists.n_rounds, np.diff(lists.listed.indptr)) - lists.listed.data
    once, twice = ((missed == n).sum() for n in (1, 2))
    # of a sample of the ratings in each round so many would be in all of them, by the binomial law
    by_chance = (n_rounds - 1) / (2 * n_rounds) * (once + 1) ** 2 / max(twice, 1)
    few = off_even_draws(lasting, passing) < UNEVEN if n_rounds == 2 else lasting.nnz <= EXCESS * by_chance
    if few:
        return found
    there = _table(lasting)
    return _without(
        found,
        [
            (block.value != 0) & ~there[np.searchsorted(view.users, block.users)[:, None], block.index]
            for block in found.blocks
        ],
        COMES_AND_GOES,
    )


def abstain_if_at_mean(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> Reconstruction:
    """Abstain on the level nearest to each mean where nearly all clients have most ratings there."""
    if found.scope not in (Scope.RATINGS_AND_ATTRIBUTES, *RELATIVE) or levels.size < BARS.levels:
        return found
    said, at_mean = [], [np.zeros(block.value.shape, bool) for block in found.blocks]
    for block, here in zip(found.blocks, at_mean, strict=True):
        rated = np.isfinite(block.value) & (block.kind == ITEM)
        for user in np.flatnonzero(rated.any(axis=1) & ~(rated & (block.value == 0)).any(axis=1)):
            near = nearest_level(block.value[user, rated[user]], levels)
            here[user, rated[user]] = near == nearest_level(near.mean(keepdims=True), levels)
            if (
                np.unique(near).size >= BARS.levels
            ):  # of two neighbours the more frequent one is always nearest
                said.append(here[user].sum() >= HALF * near.size)
    return _without(found, at_mean, AT_MEAN) if said and np.mean(said) >= MOST else found


def _sampled(view: View) -> bool:
    """Whether clients are declared to send a sample of their ratings in each round."""
    sampled = any(entry.get("name") in SAMPLES for entry in view.manifest.defenses)
    return sampled or isinstance(view.manifest.rule.batch_size, int)


def _without(found: Reconstruction, some: list[Bool[np.ndarray, "_ _"]], reason: str) -> Reconstruction:
    """Take back some of the ratings that are answered, block by block."""
    blocks = tuple(
        replace(block, value=np.where(here & (block.kind == ITEM), np.nan, block.value))
        for block, here in zip(found.blocks, some, strict=True)
    )
    told = [user for one in blocks for user in one.users[np.isfinite(one.value).any(axis=1)].tolist()]
    quiet = ~np.isin(found.users, [*found.abstained, *told])
    return silent_about(replace(found, blocks=blocks), quiet, reason)


def _table(lists: sp.csr_array) -> Bool[np.ndarray, "users items"]:
    """Which items are on whose list."""
    there = np.zeros(lists.shape, bool)
    there[np.repeat(np.arange(lists.shape[0]), np.diff(lists.indptr)), lists.indices] = True
    return there
