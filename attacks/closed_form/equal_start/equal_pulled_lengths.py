"""Ratings of clients that step after every rating from equal factors, from five numbers and their rows.

Symbols and equations as in ``attacks.closed_form.equal_start.equal_pulled``: numbers are (A, p, rho, c, a).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.decoding import distance_to_levels

UNIT = 1e-30  # imaginary, of a derivative by complex steps


class Lists(NamedTuple):
    """g, h, offset, and whether there is a row, (users, rows), in the order in which they were sent."""

    g: Float[np.ndarray, "users rows"]
    h: Float[np.ndarray, "users rows"]
    offset: Float[np.ndarray, "users rows"]
    there: Bool[np.ndarray, "users rows"]

    def of(self, here: Any) -> Lists:
        """Those of some clients."""
        return Lists(*(part[here] for part in self))


class Grid(NamedTuple):
    """The rating grid, how far off it exact answers are at most, and whether rows are about later lengths."""

    levels: Float[np.ndarray, " levels"]
    tolerance: float
    after: bool

    def missed(self, value: np.ndarray, there: np.ndarray) -> np.ndarray:
        """Largest distance from the grid; infinite off the numbers."""
        away = np.where(there, distance_to_levels(value, self.levels), 0.0).max(axis=-1)
        return np.where(np.isfinite(away), away, np.inf)


def sloped(
    numbers: np.ndarray, lists: Lists, after: bool, only_first: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Ratings, and their derivatives by each number, or by A alone, to the digits: by complex steps."""
    n = 1 if only_first else 5
    moved = np.repeat(numbers.astype(complex)[None], n, axis=0)
    moved[np.arange(n), ..., np.arange(n)] += 1j * UNIT
    value = values_of(moved, lists, after)
    return value[0].real, np.moveaxis(value.imag, 0, -1) / UNIT


def values_of(numbers: np.ndarray, lists: Lists, after: bool) -> np.ndarray:
    """Ratings in the order sent."""
    first, p, rate, c, shrink = np.moveaxis(numbers, -1, 0)
    g, h, offset, _ = np.broadcast_arrays(*lists)
    out = np.empty(np.broadcast_shapes((*first.shape, 1), g.shape), numbers.dtype)
    length = np.ones_like(first)
    for k in range(g.shape[-1]):
        freed = g[..., k] + c * h[..., k]
        step = rate * first**2 * h[..., k] * freed
        if after:
            square = shrink**2 * length**2 + 4 * step
            following = 0.5 * (shrink * length + np.sqrt(np.where(square.real < 0, np.nan, square)))
        else:
            following = shrink * length + step / length
        out[..., k] = first * freed / (following if after else length) + p / first * length * h[..., k]
        length = following
    return out + offset
