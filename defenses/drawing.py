"""Noise that each client draws by itself: what others do, or whether they are recorded, changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int


def by_client(
    sender: Int[np.ndarray, " rows"],
    factors: int,
    key: tuple[int, ...],
    law: Callable[[np.random.Generator, tuple[int, int]], Float[np.ndarray, "some K"]],
) -> Float[np.ndarray, "rows K"]:
    """Noise of law ``law``, seeded by ``key`` and the client.

    Parameters
    ----------
    sender : (n_rows,)
        Rows of one client follow each other.
    factors : int
        K
    key : tuple of int
        The seed, the defense's stage and the round.
    law : callable
        From a generator and a shape to noise.
    """
    noise = np.empty((sender.size, factors))
    start = np.concatenate([[0], np.flatnonzero(np.diff(sender)) + 1, [sender.size]])
    for low, high in pairwise(start):
        if high > low:
            rng = np.random.default_rng([*key, int(sender[low])])
            noise[low:high] = law(rng, (int(high - low), factors))
    return noise
