"""Who an anonymous sender is: the neighbour whose weight is the one that its rows tell.

Beyond Duriakova et al. 2019, whose helper tells a client N_u and its row of W. A sender's rows tell W in up
to three ways:

- they are about all items I_w that it rated, so W = |I_w and I_u| / sqrt(|I_w| |I_u|) (Eq. 5) follows from
  the list of the rows and the receiver's own;
- each holds W alpha v (``attacks.peers.planes``), and alpha may be public;
- the numbers that put the ratings on the grid tell W (``attacks.peers.reading``).

All of those that there are must agree with the weight of the neighbour, and no other neighbour may have
that weight. Neighbours of equal weights (all of them, where W is 1) are not told apart, and nobody is
named.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

SAME = 1e-6  # relative difference of weights that are the same


def cosine(
    together: Int[np.ndarray, " senders"], size: Int[np.ndarray, " senders"], own: int
) -> Float[np.ndarray, " senders"]:
    """W of Eq. (5); NaN where nothing is shared.

    Examples
    --------
    >>> cosine(np.array([2, 0]), np.array([8, 5]), 2)
    array([0.5, nan])
    """
    product = np.maximum(size * own, 1)
    return np.where(together > 0, together / np.sqrt(product), np.nan)


def candidates(
    told: Float[np.ndarray, "senders ways"], weights: Float[np.ndarray, "neighbours ways"]
) -> Bool[np.ndarray, "senders neighbours"]:
    """Neighbours of whom everything is true that a sender's rows tell."""
    known = np.isfinite(told)
    away = np.abs(np.where(known, told, 0)[:, None, :] - weights)
    agrees = (away <= SAME * np.abs(weights)) | ~known[:, None, :]
    return agrees.all(axis=2) & known.any(axis=1)[:, None]


def named(possible: Bool[np.ndarray, "senders neighbours"]) -> Int[np.ndarray, " senders"]:
    """The neighbour of each sender, where it is the only one; -1 elsewhere.

    A neighbour sends under one name: two senders that could only be the same one are not named.

    Examples
    --------
    >>> named(np.array([[True, False, False], [True, True, False], [False, False, False]]))
    array([ 0,  1, -1])
    """
    left = possible.copy()
    out = np.full(len(left), -1)
    while True:
        single = np.flatnonzero((left.sum(axis=1) == 1) & (out < 0))
        if not single.size:
            return out
        choice = left[single].argmax(axis=1)
        claimed = np.bincount(choice, minlength=left.shape[1])
        clear = claimed[choice] == 1
        out[single[clear]] = choice[clear]
        left[:, choice] = False  # whoever is claimed is no other sender
        if not clear.any():
            return out
