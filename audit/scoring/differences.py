"""How right the differences between a client's ratings are: what is left where all may be a level higher.

Told one of its ratings, which share of the others follows? Whatever is added to all of a client's answers
takes nothing away from that, so that it is asked of answers that leave it open
(``attacks.base.Scope.DIFFERENCES``) and of nobody else's.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from attacks.base import Estimates
from audit.scoring.answers_said import round_ratings
from audit.scoring.metrics import lookup
from audit.scoring.ratios import ratio
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM

DIFFERENCES = "rating_difference_accuracy"


def difference_accuracy(
    blocks: tuple[Estimates, ...], manifest: Manifest, truth: Truth, users: Int[np.ndarray, " users"]
) -> Float[np.ndarray, " users"]:
    """Compute the share of the pairs of each client's ratings whose difference is right.

    Parameters
    ----------
    blocks : tuple of Estimates
    manifest : Manifest
    truth : Truth
    users : (n_users,)
        Ascending.

    Returns
    -------
    (n_users,)
        In 0..1, pairs with a rating that is not answered counted as wrong; NaN of clients without an answer
        or with fewer than two ratings.
    """
    out = np.full(users.size, np.nan)
    for block in blocks:
        row = truth.rows(block.users)
        given = ~np.isnan(block.value) & (block.kind == ITEM)
        actual = np.where(given, lookup(truth, row, block.index, block.value.shape), 0.0)
        answer = round_ratings(np.where(given, block.value, 0.0), manifest.rating_levels)
        n_rated = np.diff(truth.ratings.indptr)[row]
        rated = actual > 0
        share = _pairs_alike((answer - actual)[rated], np.nonzero(rated)[0], n_rated)
        answered = given.any(axis=1)
        out[np.searchsorted(users, block.users[answered])] = share[answered]
    return out


def difference_guesses(
    truth: Truth, users: Int[np.ndarray, " users"]
) -> dict[str, Float[np.ndarray, " users"]]:
    """Score what is said of differences without the transcript: that there are none, the commonest one.

    Parameters
    ----------
    truth : Truth
    users : (n_users,)

    Returns
    -------
    dict of str to (n_users,)
        ``majority``, any rating that is the same for all items.
    """
    ratings = truth.ratings[truth.rows(users)]
    n_rated = np.diff(ratings.indptr)
    return {"majority": _pairs_alike(ratings.data, np.repeat(np.arange(users.size), n_rated), n_rated)}


def _pairs_alike(
    number: Float[np.ndarray, " ratings"],
    owner: Int[np.ndarray, " ratings"],
    n_rated: Int[np.ndarray, " users"],
) -> Float[np.ndarray, " users"]:
    """Share of the pairs of each client's ratings that have one number."""
    different, place = np.unique(np.round(number, 9), return_inverse=True)
    width = max(different.size, 1)
    same, count = np.unique(owner * width + place, return_counts=True)
    pairs = np.bincount(same // width, (count * (count - 1)).astype(np.float64), minlength=n_rated.size)
    return ratio(pairs, (n_rated * (n_rated - 1)).astype(np.float64))
