"""Whose ratings a fit tells: some on the grid leave nothing of the rows, and no others do.

There have to be more equations than unknowns. Where the hypothesis leaves a multiple of the ratings open, no
other multiple may be on the grid.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.images import one_multiple
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.guess import Guess
from attacks.inversion.least_squares import Unknowns
from attacks.inversion.many_starts import chosen

SPARE = 2  # equations more than unknowns, at least


class Told(NamedTuple):
    """What is told of some clients."""

    ratings: Float[np.ndarray, "clients n"]  # in stars, on the grid; NaN off the items
    at: Unknowns  # the best fit of each client, (clients, 1, ...), for a neighbour to start from
    left: Float[np.ndarray, " clients"]  # what the best ratings leave of the rows, relative to their size
    allowed: Float[np.ndarray, " clients"]  # what right ratings may leave
    rivals: Bool[np.ndarray, " clients"]  # whether other ratings leave as little
    spare: Int[np.ndarray, " clients"]  # equations less unknowns
    # whether other multiples of the ratings leave as little, and are on the grid
    several: Bool[np.ndarray, " clients"]

    @property
    def explained(self) -> Bool[np.ndarray, " clients"]:
        """Whose ratings are told up to a multiple: the hypothesis is right."""
        return (self.left <= self.allowed) & ~self.rivals & (self.spare >= SPARE)

    @property
    def answered(self) -> Bool[np.ndarray, " clients"]:
        """Whose ratings are told."""
        return self.explained & ~self.several


def judged(
    ratings: np.ndarray, at: Unknowns, left: np.ndarray, allowed: np.ndarray, spare: np.ndarray, rows: Rows
) -> Told:
    """Choose the best answer of each client, and tell whether another is as good."""
    left = np.where(np.isnan(left), np.inf, left)
    number = left.argmin(axis=1)[:, None]
    mine = np.take_along_axis(ratings, number[..., None], axis=1)
    rivals = ((ratings != mine).any(axis=2) & (left <= allowed[:, None])).any(axis=1)
    best = np.take_along_axis(left, number, axis=1)[:, 0]
    ratings = np.where(rows.item, mine[:, 0], np.nan)
    return Told(ratings, chosen(at, number), best, allowed, rivals, spare, np.zeros_like(rivals))


def of_one_multiple(new: Told, guess: Guess, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Told:
    """Tell whose ratings may be a multiple of the answer, where the hypothesis tells no length of a factor.

    Two rates, say, take up what a factor that is twice as long, and ratings half as large, change of the
    rows: whole stars of a grid of halves may then be their halves, whatever the number of equations.
    """
    if not guess.family.multiples or guess.constants is not None:
        return new
    several = np.zeros_like(new.rivals)
    for user in np.flatnonzero(new.explained):
        item = rows.item[user]
        offset = rows.offset[user, item]
        several[user] = not one_multiple(new.ratings[user, item] - offset, offset, levels)
    return new._replace(several=several)


def of_one_shift(new: Told, guess: Guess, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Told:
    """Tell whose ratings may be another number higher or lower, where the hypothesis leaves that open.

    Without numbers of the items that are known, the ratings mirrored at any point, with the factor negated,
    make the same rows, too, and the grid has room for them always.
    """
    if not guess.family.shifts:
        return new
    several = new.several.copy()
    for user in np.flatnonzero(new.explained):
        item = rows.item[user]
        ratings = new.ratings[user, item]
        mirrored = np.ptp(rows.offset[user, item]) == 0
        moved = ratings + (levels - ratings[0])[:, None]
        several[user] |= mirrored or int(np.isin(moved, levels).all(axis=1).sum()) > 1
    return new._replace(several=several)
