"""Ratings as integers: multiples of the unit of their grid, of which one vector lies in a known subspace."""

from __future__ import annotations

from math import gcd

import numpy as np
from jaxtyping import Float

from attacks.closed_form.numbers.short_vectors import primitive_vector

DENOMINATOR = 1000  # of rating levels
LARGEST = 1000  # levels, as multiples of the unit of their grid


def ratings_in_basis(
    basis: Float[np.ndarray, "n m"], levels: Float[np.ndarray, " levels"], shift: float, limit: float
) -> tuple[Float[np.ndarray, " n"], float] | None:
    """Find the one list of ratings in a span, less a number.

    Examples
    --------
    >>> stars = np.array([4.0, 1, 5, 3, 3, 2, 4, 5, 1])
    >>> table = np.stack([stars, *np.random.RandomState(0).randn(3, 9)], axis=1)
    >>> ratings, left = ratings_in_basis(np.linalg.qr(table)[0], np.arange(1.0, 6.0), 0.0, 1e-12)
    >>> bool((ratings == stars).all()), left < 1e-12
    (True, True)
    """
    multiples = _multiples(levels - shift)
    if multiples is None:
        return None
    primitive = primitive_vector(basis, int(multiples[-1]), limit)
    if primitive is None:
        return None
    fitting = [k for k in range(1, multiples[-1] + 1) if np.isin(k * primitive, multiples).all()]
    if len(fitting) != 1:
        return None
    ratings = fitting[0] * primitive
    left = float(np.linalg.norm(ratings - basis @ (basis.T @ ratings)) / np.linalg.norm(ratings))
    value = levels[np.searchsorted(multiples, np.rint(ratings).astype(int))]
    return (value, left) if left <= limit * basis.shape[1] else None


def _multiples(levels: Float[np.ndarray, " levels"]) -> np.ndarray | None:
    """The levels in units of the grid, or None where they are no multiples of anything, or some are < 0."""
    if levels[0] < 0 or levels.size < 2:
        return None
    if np.abs(levels * DENOMINATOR - np.rint(levels * DENOMINATOR)).max() > 1e-6:
        return None
    multiples = np.rint(levels / _unit(levels)).astype(int)
    return multiples if multiples[-1] <= LARGEST else None


def _unit(levels: Float[np.ndarray, " levels"]) -> float:
    """The number of which all levels are multiples."""
    whole = np.rint(levels * DENOMINATOR).astype(int)
    return gcd(*whole.tolist()) / DENOMINATOR
