"""Ratings less the lowest level, or less the lowest one of each client: nobody lacks the lowest level then.

Beyond the papers. A program that takes off each client's own lowest rating (min-max scaling of each, say)
sends the rows of lower ratings less the lowest level, for all clients who have none of it. What differs is
that in such a recording everybody is read with that level. Where people rate as they like somebody lacks it:
the expected number is the sum of (1 - f)^n over clients with n ratings, f the share of ratings of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from attacks.base import Reconstruction, Scope
from attacks.closed_form.fit.coarser_grids import in_larger_steps
from attacks.closed_form.fit.contradicted import silent_about
from attacks.closed_form.fit.goodness_of_fit import step_of

EXPECTED = 0.7  # clients who would lack the lowest level: by chance nobody then does in one case of two
OPEN_LOWEST = (
    "its ratings may as well be less its own lowest one: everybody here is read with the lowest level, and "
    "it has not the highest one, too, or rates in larger steps"
)


def unless_own_lowest(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> Reconstruction:
    """Leave open whose ratings may be less their own lowest one; differences are the answer if all are."""
    told, half = _told(found), step_of(levels) / 2
    if found.scope != Scope.RATINGS_AND_ATTRIBUTES or not told:
        return found
    count = np.array([own.size for own in told.values()])
    low = np.array([(own < levels[0] + half).sum() for own in told.values()])
    share = low.sum() / count.sum()
    if (low == 0).any() or ((1 - share) ** count).sum() < EXPECTED:
        return found
    coarse = {user for user, own in told.items() if in_larger_steps(own, levels)}
    open_ = coarse | {user for user, own in told.items() if own.max() < levels[-1] - half}
    if open_ == set(told):
        found, open_ = replace(found, scope=Scope.DIFFERENCES), coarse
    return silent_about(found, np.isin(found.users, list(open_)), OPEN_LOWEST)


def _told(found: Reconstruction) -> dict[int, np.ndarray]:
    """Ratings of each client that is answered, unrated items left out."""
    out = {}
    for block in found.blocks:
        for user, own in zip(block.users.tolist(), block.value, strict=True):
            told = own[np.isfinite(own) & (own > 0)]
            if told.size and user not in found.abstained:
                out[user] = told
    return out
