"""Which of a sender's implicit samples are positives, and which were sampled beside them.

Beyond paper 004, whose clients send a row for every positive and for as many sampled negatives,

    -lambda (1 - g) u + mu z    and    lambda W g (1 - g) / (1 - W g) u + mu z.

Freed of mu z the rows lie along u, on its one side or on the other, so that one round splits them in two.
Which half is the positives follows from

- several rounds: positives come again in each, and negatives that are drawn anew do not;
- the explicit rows, which lie along a factor of nearly the same direction, once ratings tell its sign
  (``attacks.peers.sigmoid_grid``).

Where neither tells, nothing is answered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.reduction import leading_direction

SPREAD = 0.3  # of the rows' size, across their common direction: above it they have none
CLEARLY = 3.0  # standard errors by which a row must lie on one side
REPEATED = 0.5  # share of its rounds by which one half's items must come again more often than the other's


class Halves(NamedTuple):
    """A sender's implicit rows in two halves.

    Attributes
    ----------
    side : (rows,)
        1 where a row lies along ``direction``, -1 where against it, 0 where neither is clear.
    direction : (rounds, K)
        Of u in each round, each with the sign of the one before; 0 where there is none.
    """

    side: Float[np.ndarray, " rows"]
    direction: Float[np.ndarray, "rounds K"]


def halves(rows: Float[np.ndarray, "rows K"], round_: Int[np.ndarray, " rows"]) -> Halves:
    """Split one sender's implicit rows.

    Parameters
    ----------
    rows : (rows, K)
        Freed of multiples of their item factors.
    round_ : (rows,) int
        0, 1, ...

    Returns
    -------
    Halves
    """
    n = int(round_.max(initial=-1)) + 1
    side, directions = np.zeros(len(rows)), np.zeros((n, rows.shape[1]))
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
        side[here] = np.where(np.abs(scalar) > CLEARLY * noise, np.sign(turn * scalar), 0.0)
    return Halves(side, directions)


def positives(
    split: Halves,
    index: Int[np.ndarray, " rows"],
    round_: Int[np.ndarray, " rows"],
    factor: Float[np.ndarray, "rounds K"],
) -> Float[np.ndarray, " rows"]:
    """Decide which half of one sender's rows are positives.

    Parameters
    ----------
    split : Halves
    index : (rows,) int
        Items.
    round_ : (rows,) int
        0, 1, ...
    factor : (rounds, K)
        The sender's explicit factor, of the right sign; 0 where it is not known.

    Returns
    -------
    (rows,)
        1 for positives, -1 for negatives, 0 where it is not told.

    Examples
    --------
    >>> rows = np.array([[-1.0, 0.0], [0.4, 0.0], [-2.0, 0.0], [0.5, 0.0]])
    >>> index, round_ = np.array([3, 5, 3, 7]), np.array([0, 0, 1, 1])
    >>> positives(halves(rows, round_), index, round_, np.zeros((2, 2)))
    array([ 1., -1.,  1., -1.])
    """
    seen = _by_repetition(split, index, round_)
    if seen == 0:
        seen = -int(np.sign(np.sum(split.direction * factor)))
    return seen * split.side


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
