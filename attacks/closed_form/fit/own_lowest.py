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
from attacks.closed_form.fit.contradicted import silent_about
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.plausible_biases import in_larger_steps

EXPECTED = 0.7  # clients who would lack the lowest level: by chance nobody then does in one case of two
OPEN_LOWEST = (
    "its ratings may as well be less its own lowest one: everybody here is read with the lowest level, and "
    "it has not the highest one, too"
)


def unless_own_lowest(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> Reconstruction:
    """Leave open whose ratings may be less their own lowest one; differences are the answer if all are.

    Parameters
    ----------
    found : Reconstruction
        Of ratings less the lowest level.
    levels : (n_levels,)
        An even grid, ascending, in stars.

    Returns
    -------
    Reconstruction
        The same where somebody lacks the lowest level, or that nobody does is no surprise.
    """
    steps = _steps_of(found, levels)
    if found.scope != Scope.RATINGS_AND_ATTRIBUTES or not steps:
        return found
    count = np.array([own.size for own in steps.values()])
    low = np.array([(own == 0).sum() for own in steps.values()])
    share = low.sum() / count.sum()
    if (low == 0).any() or ((1 - share) ** count).sum() < EXPECTED:
        return found
    coarse = {user for user, own in steps.items() if in_larger_steps(own)}
    open_ = coarse | {user for user, own in steps.items() if own.max() < levels.size - 1}
    if open_ == set(steps):
        found, open_ = replace(found, scope=Scope.DIFFERENCES), coarse
    return silent_about(found, np.isin(found.users, list(open_)), OPEN_LOWEST)


def _steps_of(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> dict[int, np.ndarray]:
    """Steps above the lowest level of each rating of who is answered."""
    out = {}
    for block in found.blocks:
        for user, own in zip(block.users.tolist(), block.value, strict=True):
            told = own[np.isfinite(own) & (own > 0)]
            if told.size and user not in found.abstained:
                out[user] = np.rint((told - levels[0]) / step_of(levels)).astype(int)
    return out
