"""Which of a sender's implicit samples are positives, and which were sampled beside them.

Beyond Yang et al. 2022, whose clients send a row for every positive and for as many sampled negatives,

    -lambda (1 - g) u + mu z    and    lambda W g (1 - g) / (1 - W g) u + mu z.

Freed of mu z the rows lie along u, on its one side or on the other, so that one round splits them in two.
Which half is the positives follows from

- several rounds: positives come again in each, and negatives that are drawn anew do not;
- the explicit rows, which lie along a factor of nearly the same direction, once ratings tell its sign
  (``attacks.peers.explicit``);
- how long rows are: where scores are near 0 and so g is near 1/2, those of positives are lambda |u| / 2,
  those of negatives W / (2 - W) of that.

Where neither tells, nothing is answered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.uploads.reduction import leading_direction

SPREAD = 0.3  # of the rows' size, across their common direction: above it they have none
CLEARLY = 3.0  # standard errors by which a row must lie on one side
SAME = 1.3  # factor within which the lengths of the two halves are in the ratio that W tells
FEWEST = 2  # rows of a half whose length is asked
REPEATED = 0.5  # share of its rounds by which one half's items must come again more often than the other's


class Halves(NamedTuple):
    """A sender's implicit rows in two halves."""

    # 1 where a row lies along ``direction``, -1 where against it, 0 where neither is clear
    side: Float[np.ndarray, " rows"]
    # of u in each round, each with the sign of the one before; 0 where there is none
    direction: Float[np.ndarray, "rounds K"]
    size: Float[np.ndarray, " rows"]  # length of each row along it; 0 where there is none


def halves(rows: Float[np.ndarray, "rows K"], round_: Int[np.ndarray, " rows"]) -> Halves:
    """Split one sender's implicit rows."""
    n = int(round_.max(initial=-1)) + 1
    side, size, directions = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros((n, rows.shape[1]))
    for number in range(n):
        here = round_ == number
        direction, energy = leading_direction(rows[here][None])
        scalar = rows[here] @ direction[0]
        across = np.linalg.norm(rows[here] - scalar[:, None] * direction[0])
        if not energy[0] > 0 or across > SPREAD * np.sqrt(energy[0]):
            continue
        # what is across the direction in one of its coordinates may be along it, too
        noise = across / np.sqrt(max((here.sum() - 1) * (rows.shape[1] - 1), 1))
        turn = 1.0 if number == 0 or directions[number - 1] @ direction[0] >= 0 else -1.0
        directions[number] = turn * direction[0]
        size[here] = np.abs(scalar)
        side[here] = np.where(np.abs(scalar) > CLEARLY * noise, np.sign(turn * scalar), 0.0)
    return Halves(side, directions, size)


class Sampled(NamedTuple):
    """One sender's implicit rows of some rounds, and what they tell by themselves."""

    item: Int[np.ndarray, " rows"]
    split: Halves
    told: int  # which side is the positives, 1 or -1, as repetition or length tells it; else 0

    @property
    def toward(self) -> Float[np.ndarray, " K"] | None:
        """What the sender's factor has a positive product with; None where the rows do not tell it."""
        if self.told == 0:
            return None
        known = np.flatnonzero(self.split.direction.any(axis=1))
        return -self.told * self.split.direction[known[0]]

    def side(self, factor: Float[np.ndarray, " K"]) -> int:
        """Which side is the positives, told by an explicit factor where the rows do not tell it."""
        return self.told or -int(np.sign(np.sum(self.split.direction @ factor)))

    def positives(self, factor: Float[np.ndarray, " K"]) -> Int[np.ndarray, " items"]:
        """Items of the positives."""
        return np.unique(self.item[self.side(factor) * self.split.side > 0])


def sampled_of(
    rows: Float[np.ndarray, "rows K"],
    index: Int[np.ndarray, " rows"],
    round_: Int[np.ndarray, " rows"],
    weight: float,
) -> Sampled:
    """Split one sender's implicit rows, and ask them which half is the positives.

    Examples
    --------
    >>> rows = np.array([[-1.0, 0.0], [0.4, 0.0], [-2.0, 0.0], [0.5, 0.0]])
    >>> found = sampled_of(rows, np.array([3, 5, 3, 7]), np.array([0, 0, 1, 1]), np.nan)
    >>> found.positives(np.zeros(2))
    array([3])
    """
    split = halves(rows, round_)
    told = _by_repetition(split, index, round_)
    if told == 0 and 0 < weight < 1:
        told = _by_size(split, round_, weight / (2 - weight))
    return Sampled(index, split, told)


def _by_repetition(split: Halves, index: np.ndarray, round_: np.ndarray) -> int:
    """The side whose items come again in every round, while the other's do not; 0 where neither does."""
    n = np.unique(round_[split.side != 0]).size
    if n < 2:
        return 0
    share = []
    for side in (-1, 1):
        here = split.side == side
        _, count = np.unique(index[here], return_counts=True)
        share.append((count.mean() - 1) / (n - 1) if count.size else 0.0)
    if abs(share[1] - share[0]) < REPEATED:
        return 0
    return 1 if share[1] > share[0] else -1


def _by_size(split: Halves, round_: np.ndarray, ratio: float) -> int:
    """The side of the longer rows, if the others are shorter by what W makes of them; else 0.

    Asked of the first round that has both halves, for scores grow with training.
    """
    if SAME**2 * ratio >= 1:
        return 0
    for number in np.unique(round_).tolist():
        size = [split.size[(round_ == number) & (split.side == side)] for side in (-1, 1)]
        if min(one.size for one in size) < FEWEST:
            continue
        against, along = (float(np.median(one)) for one in size)
        shorter, longer = sorted((against, along))
        if not ratio / SAME <= shorter / longer <= ratio * SAME:
            return 0
        return 1 if along > against else -1
    return 0
