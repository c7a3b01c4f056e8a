"""Rows of which a bound is told alone, beside others of the same client that are read.

A program that clips leaves of a large error how large it is at least. The rows that were not clipped tell A
and B of r = A g + B h + offset, and so the least that a clipped rating is away from its prediction: it is
answered where one level is as far (``attacks.closed_form.grid.grid_reading``).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.grid.grid_reading import beyond
from attacks.closed_form.uploads.readings import Reading

SURE = 0.01  # of a step: ratings that the two numbers give are nearer to those that were read
FEWEST = 3  # rows that were read, from which on two numbers are more than fitted


def with_bounded(
    best: Reading,
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    offset: Float[np.ndarray, "users rows"],
    bounded: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
) -> Reading:
    """Answer rows of which a bound is told, where one level is left."""
    value = best.value.copy()
    for user in np.flatnonzero(best.answered & bounded.any(axis=1)):
        read = np.isfinite(value[user]) & ~bounded[user]
        table = np.stack([scalar[user], along[user]], axis=1)
        numbers, _, rank, _ = np.linalg.lstsq(table[read], (value[user] - offset[user])[read], rcond=None)
        fitted = table @ numbers + offset[user]
        away = np.abs(fitted - value[user])[read]
        if rank < 2 or read.sum() < FEWEST or away.max() > SURE * step_of(levels):
            continue
        least = beyond(fitted[None], (table[:, 0] * numbers[0])[None], levels)[0]
        value[user] = np.where(bounded[user], least, value[user])
    return best._replace(value=value)
