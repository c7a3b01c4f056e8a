"""Noise that each client draws by itself: what others do, or whether they are recorded, changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from victims.common.seeds import Purpose, generator


def by_client(
    sender: Int[np.ndarray, " rows"],
    factors: int,
    seed: int,
    purpose: Purpose,
    draw: int,
    law: Callable[[np.random.Generator, tuple[int, int]], Float[np.ndarray, "some K"]],
) -> Float[np.ndarray, "rows K"]:
    """Draw noise of one law, seeded by (seed, purpose, draw, client)."""
    noise = np.empty((sender.size, factors))
    start = np.concatenate([[0], np.flatnonzero(np.diff(sender)) + 1, [sender.size]])
    for low, high in pairwise(start):
        if high > low:
            rng = generator(seed, purpose, draw, int(sender[low]))
            noise[low:high] = law(rng, (int(high - low), factors))
    return noise


def standard_normal(rng: np.random.Generator, shape: tuple[int, int]) -> Float[np.ndarray, "rows K"]:
    """Draw normal noise of scale 1."""
    return rng.standard_normal(shape)
