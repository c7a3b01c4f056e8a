"""Ratings less a number that nobody told: whether the levels that clients use leave room for another one.

Rows of an unknown scale tell r - o up to a factor (``attacks.closed_form.fit.affine_grid``), o what the
program takes off every rating. What is read as n with o' taken off may be r = c (n - o') + o, for any c > 0
and o that put all ratings on the grid: 3 and 5 as they are, or twice 4 and 5 less 2.5. All five levels of
whole stars leave no c and o, {1, 3, 5} leaves some. o is the same for all clients, and so is c where they
show one scale: what a single client's levels exclude is excluded for all.

What it assumes: that o, if anything is taken off, lies in the range of the grid, as a mean, its middle or its
ends do; that ratings are not their mirror image, from a number above all of them. Multiples of the ratings,
with the same o, are not its subject (``attacks.closed_form.fit.credible``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import RELATIVE, Reconstruction
from attacks.closed_form.fit.contradicted import silent_about
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of

NEAR = 1e-6  # of a step, within which numbers are one
MOST_LEVELS = 32  # of a grid that is searched: finer ones have a rating to tell them apart
OPEN_SHIFT = (
    "its ratings may as well be others, less a number that nobody told: the levels that are used here leave "
    "several such numbers"
)


def unless_shifted(
    found: Reconstruction,
    levels: Float[np.ndarray, " levels"],
    plain: Bool[np.ndarray, " users"],
    lowered: float,
    *,
    one_scale: bool,
    settled: bool = False,
    alike: bool = False,
) -> Reconstruction:
    """Answer nobody whose ratings ask for no other constant, where another shift explains all of them.

    Where differences alone are answered, a shift that leaves these is no other answer.
    """
    answered = plain & ~np.isin(found.users, list(found.abstained))
    if not answered.any() or levels.size > MOST_LEVELS:
        return found
    used = [
        np.unique(nearest_level(own[np.isfinite(own) & (own != 0)], levels))
        for block in found.blocks
        for own in block.value[np.isin(block.users, found.users[answered])]
    ]
    alike = alike or found.scope in RELATIVE
    left = _open(used, levels, lowered, one_scale, partial(other_shifts, higher=not settled, alike=alike))
    return silent_about(found, answered, OPEN_SHIFT) if left else found


def _open(
    used: list[np.ndarray],
    levels: Float[np.ndarray, " levels"],
    lowered: float,
    one_scale: bool,
    others: Callable[..., Float[np.ndarray, " n"]],
) -> bool:
    """Whether a shift is left by the levels of all clients, or by those that any of them uses."""
    if one_scale:
        used = [np.unique(np.concatenate(used))]
    shifts: Float[np.ndarray, " n"] | None = None
    for one in used:
        if one.size < 2:  # a single level tells nothing
            continue
        own = others(one, levels, lowered)
        shifts = own if shifts is None else shifts[(np.abs(shifts[:, None] - own) < NEAR).any(axis=1)]
        if not shifts.size:
            return False
    return bool(shifts is not None)


def other_shifts(
    used: Float[np.ndarray, " some"],
    levels: Float[np.ndarray, " levels"],
    lowered: float = 0.0,
    *,
    higher: bool = True,
    alike: bool = False,
) -> Float[np.ndarray, " n"]:
    """What else may be taken off ratings that are read as these levels.

    Examples
    --------
    >>> stars = np.arange(1.0, 6.0)
    >>> other_shifts(np.array([1.0, 3.0, 5.0]), stars), other_shifts(np.array([1.0, 2.0, 5.0]), stars)
    (array([1.5, 2.5]), array([], dtype=float64))
    """
    first, second = (part.ravel() for part in np.meshgrid(levels, levels))
    times = (second - first) / (used[-1] - used[0])
    step = step_of(levels)
    images = first[:, None] + times[:, None] * (used - used[0])
    near = NEAR * step
    of_length = np.abs(times - 1) <= NEAR
    possible = (times > 0) & ~(of_length & (alike or (not higher and first >= used[0] + near)))
    on_grid = possible & (distance_to_levels(images, levels) <= near).all(axis=1)
    shift = first - times * (used[0] - lowered)
    within = (shift >= levels[0] - near) & (shift <= levels[-1] + near) | (np.abs(shift) <= near)
    return np.unique(np.round(shift[on_grid & within & (np.abs(shift - lowered) > near)], 9))
