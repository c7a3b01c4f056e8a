"""Ratings of which none is the highest: as they are, or less the lowest level by a program that learns so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import Reconstruction, Scope
from attacks.closed_form.fit.contradicted import silent_about, unless_all_alike
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from victims.transcript.view import View

CERTAIN = 0.999  # mean probability of answers that nothing but a level leaves open
MANY = 11  # clients at the lowest level: a quarter of them with one below it would show with probability 0.95
OPEN_OFFSET = (
    "its ratings may as well be higher by the lowest level: nobody here has a rating that tells whether the "
    "program learns them, or numbers from 0 on"
)
OPEN_SCALE = (
    "a multiple of its ratings is on the rating grid, too, and nobody else tells the scale of its rows"
)


def may_be_lowered(
    value: Float[np.ndarray, "users rows"], levels: Float[np.ndarray, " levels"]
) -> Bool[np.ndarray, " users"]:
    """Whose ratings would all be levels if each were higher by the lowest one.

    Examples
    --------
    >>> may_be_lowered(np.array([[1.0, 4.0, np.nan], [1.0, 5.0, 3.0]]), np.arange(1.0, 6.0))
    array([ True, False])
    """
    told = ~np.isnan(value) & (value != 0)
    away = distance_to_levels(nearest_level(np.where(told, value, 0), levels) + levels[0], levels)
    return told.any(axis=1) & ((away < step_of(levels) / 4) | ~told).all(axis=1)


def unless_shunned(
    found: Reconstruction,
    view: View,
    doubted: Bool[np.ndarray, " users"] | None = None,
    unscaled: bool = False,
) -> Reconstruction:
    """Answer differences alone where all who are answered may have ratings one level higher.

    The declared scale does not tell the two apart. Of several clients somebody has a rating of the highest
    level, or the program learns ratings less the lowest one; which of these, their rows leave open. Nothing
    is known of how many programs do that, so that few clients without such a rating say as little. What a
    client's ratings are to each other both have in common.
    """
    levels = np.array(view.manifest.rating_levels)
    found = unless_all_alike(found, levels)
    answered = ~np.isin(found.users, list(found.abstained))
    if answered.any() and _all_may_be_lowered(found, answered, levels):
        sure = min((np.nanmean(own) for own in _probabilities(found)), default=1.0) >= CERTAIN
        if sure:
            found = replace(found, scope=Scope.DIFFERENCES)
            return silent_about(found, _stretched(found, levels), OPEN_SCALE) if unscaled else found
        return silent_about(found, answered, OPEN_OFFSET)  # noise may have left no difference, either
    return found if doubted is None else silent_about(found, answered & doubted, OPEN_OFFSET)


def _all_may_be_lowered(
    found: Reconstruction, answered: Bool[np.ndarray, " users"], levels: Float[np.ndarray, " levels"]
) -> bool:
    """Whether nobody who is answered has a rating that tells; who has ends the search."""
    open_ = np.zeros(found.users.size, bool)
    for block in found.blocks:
        at = np.searchsorted(found.users, block.users)
        open_[at] = may_be_lowered(block.value, levels)
        if (answered[at] & ~open_[at]).any():
            return False
    return bool(open_[answered].all())


def _stretched(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> Bool[np.ndarray, " users"]:
    """Whose ratings have another multiple on the grid, as they are or less the lowest level."""
    out = np.zeros(found.users.size, bool)
    grids = (levels, levels - levels[0])
    for block in found.blocks:
        for user, own in zip(block.users, block.value, strict=True):
            told = own[np.isfinite(own) & (own > 0)]
            if not told.size:
                continue
            times = np.unique(np.concatenate(grids)) / told.max()
            away = [distance_to_levels(times[:, None] * told, grid).max(axis=1) for grid in grids]
            on_grid = (times > 0) & (np.minimum(*away) < step_of(levels) / 100)
            out[np.searchsorted(found.users, user)] = (on_grid & (np.abs(times - 1) > 0.01)).any()
    return out


def _probabilities(found: Reconstruction) -> Iterator[Float[np.ndarray, "users rows"]]:
    """Of blocks that have some."""
    for block in found.blocks:
        if block.probability is not None and not np.isnan(block.probability).all():
            yield block.probability
