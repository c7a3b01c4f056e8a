"""The one vector of integers in a known subspace: a short vector of a lattice.

With an orthonormal basis of the subspace, and W the directions outside it over what rounding may leave there,
the rows of (1, W) span a lattice in which a vector of integers is as long as it is itself, and longer by what
it has outside. The algorithm of Lenstra, Lenstra and Lovasz finds the shortest: the vector in the subspace,
where there are rows enough that no other can be as short by accident.

References
----------
A. K. Lenstra, H. W. Lenstra, L. Lovasz 1982, doi:10.1007/BF01457454.
"""

from __future__ import annotations

from math import gcd

import numpy as np
from flint import fmpz_mat
from jaxtyping import Float
from scipy.linalg import qr

NATS = 20.0  # of evidence beyond what accidental vectors ask for
LONGER = 8.0  # times as long as right vectors can be, that accidental ones are to be
SHORTER = 3.0  # times, that all other vectors must be longer
MOST = 96  # rows that take part in the search: its time grows with their fourth power


def primitive_vector(
    basis: Float[np.ndarray, "n m"], largest: int, limit: float
) -> Float[np.ndarray, " n"] | None:
    """Find the vector of integers in a span, in lowest terms, where it is much shorter than all others.

    Examples
    --------
    >>> whole = np.array([2.0, 0, -1, 3, 3, 0, 1, -2, 1])
    >>> table = np.stack([whole, *np.random.RandomState(0).randn(3, 9)], axis=1)
    >>> primitive_vector(np.linalg.qr(table)[0], 4, 1e-12).astype(int).tolist()
    [2, 0, -1, 3, 3, 0, 1, -2, 1]
    """
    n_used = _needed(basis.shape[1], limit, largest)
    if n_used is None or len(basis) < n_used:
        return None
    _, _, order = qr(basis.T, mode="economic", pivoting=True)
    used = np.sort(order[:n_used])
    vector = _shortest(basis[used], limit)
    if vector is None:
        return None
    # the others follow from those that were searched for
    known, *_ = np.linalg.lstsq(basis[used], vector.astype(float), rcond=None)
    whole = np.rint(basis @ known)
    return whole * (np.sign(whole.sum()) or 1.0) / max(1, gcd(*np.abs(whole).astype(int).tolist()))


def _needed(dimensions: int, limit: float, largest: int) -> int | None:
    """How many ratings make accidental vectors longer than right ones can be; None where too many.

    In a lattice of n dimensions with c equations of that precision the shortest accidental vector has a
    length of about sqrt(n) (1 / precision)^(c / n), and right ratings one of sqrt(n) times the highest level
    at most.
    """
    each = np.log(LONGER * largest)
    gain = np.log(1 / limit) - each
    if gain <= 0:
        return None
    n_used = dimensions + max(2, int(np.ceil((dimensions * each + NATS) / gain)))
    return n_used if n_used <= MOST else None


def _shortest(basis: np.ndarray, limit: float) -> np.ndarray | None:
    """The integer vector (n,) in a span, where it is much shorter than all others."""
    n, m = basis.shape
    outside = np.linalg.qr(basis, mode="complete")[0][:, m:]
    weight = np.rint(outside / limit).astype(object)
    lattice = fmpz_mat(
        [[int(row == column) for column in range(n)] + [int(x) for x in weight[row]] for row in range(n)]
    ).lll()
    reduced = np.array(lattice.table(), dtype=object)[:2].astype(float)
    first, second = np.linalg.norm(reduced, axis=1)
    return reduced[0, :n] if second > SHORTER * first else None
