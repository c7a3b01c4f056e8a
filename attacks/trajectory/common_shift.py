"""A number that a program takes off all ratings, under a declared scale: whom it explains, against none.

Exact trajectories say what a client learns, up to the sign of all of it. Less a number that nobody told, the
ratings of some clients are levels by accident, lower ones; those of others are none, or 0, or negative. One
number that puts more clients on the grid than are there without it is then what the program takes off, or
may be, and who is on the grid without it is so by accident.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import step_of

NEAR = 0.05  # of a step: four numbers of nothing are as near to levels with probability 1e-4
ASKED = 24  # clients whose numbers say which shifts are tried


def clients_explained(
    value: Float[np.ndarray, "users rows"], levels: Float[np.ndarray, " levels"], shift: float
) -> Bool[np.ndarray, " users"]:
    """Find the clients whose numbers are levels once a number is added to them, or to their mirror image."""
    there = np.isfinite(value)
    near = NEAR * step_of(levels)
    fits = [
        ((distance_to_levels(np.where(there, sign * value, 0) + shift, levels) < near) | ~there).all(axis=1)
        for sign in (1, -1)
    ]
    return there.any(axis=1) & (fits[0] | fits[1])


def explained_otherwise(
    value: Float[np.ndarray, "users rows"], levels: Float[np.ndarray, " levels"], shift: float
) -> int:
    """Count the clients whom the best other shift explains.

    Nobody takes the highest level off, or more: of each number that explains somebody this leaves out that
    of the mirror image.

    Examples
    --------
    >>> stars = np.array([[3.0, 4.0], [1.0, 2.0], [4.0, 5.0]])
    >>> levels = np.arange(1.0, 6.0)
    >>> explained_otherwise(stars - 2, levels, 0.0), int(clients_explained(stars - 2, levels, 0.0).sum())
    (3, 2)
    """
    if not value.size:
        return 0
    there = np.isfinite(value)
    width = np.where(there, value, -np.inf).max(axis=1) - np.where(there, value, np.inf).min(axis=1)
    widest = np.argsort(np.where(there.any(axis=1), -width, np.inf), kind="stable")[:ASKED]
    first = np.array([own[np.isfinite(own)][0] for own in value[widest] if np.isfinite(own).any()])
    tried = np.unique(np.round((levels - np.array([1, -1])[:, None, None] * first[:, None]).ravel(), 3))
    near = NEAR * step_of(levels)
    other = tried[(np.abs(tried - shift) > near) & (tried < levels[-1] - near)]
    return max((int(clients_explained(value, levels, one).sum()) for one in other), default=0)
