"""Ratings of clients that take any number of linear steps: the integers that lie in the span of what is seen.

Let a client step its factor u as it likes (any number of steps, any rate, momentum, decay, an optimizer of
its own), and its copy of the items, or their gradients, by rules that are linear in what an item has: sums of
c_t (r_j - u_t . v_j^t) u_t, weight decay, momentum, a schedule, a scale, a mean. Then the rows D (n, K) that
it uploads are affine in its factors V (n, K) and its ratings r (n,),

    D = V A + r b',        A (K, K) and b (K,) the same for all rows of the client,

so that r lies in the span of V and of the one direction that D has outside it: K + 1 dimensions out of n,
told without any constant, step, order or start. Ratings are integers times the unit of their grid. So r is an
integer vector in a known subspace, where n - K - 1 equations leave one, up to a multiple: a short vector of a
lattice. Known biases of the items are one more dimension.

With an orthonormal basis of the subspace, and W the directions outside it over what rounding may leave there,
the rows of (1, W) span a lattice in which a vector of integers is as long as it is itself, and longer by what
it has outside. The algorithm of Lenstra, Lenstra and Lovasz finds the shortest: the vector in the subspace,
where there are rows enough that no other can be as short by accident.

What it assumes: uploads in the clear, rounded at most, of clients with K + 1 ratings and a few more, the more
the less exact the rows are. It answers where the vector is much shorter than all others, lies on the rating
grid, and in the span to the rows' last digits, in all rows of the client; and where no other multiple does.
Every rule under which rows depend on anything else of an item leaves rows outside the span, and no answer.

References
----------
Integer relations: J. Hastad, B. Just, J. C. Lagarias, C. P. Schnorr 1989, doi:10.1137/0218059.
A. K. Lenstra, H. W. Lenstra, L. Lovasz 1982, doi:10.1007/BF01457454. The use on recommenders is ours.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import numpy as np
from flint import fmpz_mat
from jaxtyping import Bool, Float
from scipy.linalg import qr

DENOMINATOR = 1000  # of rating levels
NATS = 20.0  # of evidence beyond what accidental vectors ask for
LONGER = 8.0  # times as long as right vectors can be, that accidental ones are to be
SHORTER = 3.0  # times, that all other vectors must be longer
MOST = 96  # rows that take part in the search: its time grows with their fourth power
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


LOOSE = 100.0  # times the rows' last digits, by which right ratings may leave the span
COARSEST = 1e-3  # relative, above which rows are too inexact for integers
AS_KNOWN = 0.05  # within which biases have the factor 1: decay of a client's copies takes that much off


class Relation(NamedTuple):
    """Ratings (users, rows) of who is told, NaN elsewhere; share of them outside the span; unlike rows."""

    value: Float[np.ndarray, "users rows"]  # in stars
    told: Bool[np.ndarray, " users"]
    # share of the ratings' size that is not in the span; NaN where nothing was searched for
    left: Float[np.ndarray, " users"]
    # share of the rows' size that is not in the span; NaN where a client has too few rows to say
    outside: Float[np.ndarray, " users"]
    allowed: Float[np.ndarray, " users"]  # what rounding may leave there


class Span(NamedTuple):
    """Of one client: an orthonormal basis (n, m), and the share of the rows outside, NaN if unknown."""

    basis: Float[np.ndarray, "n m"]
    outside: float


def precision_of(
    rows: Float[np.ndarray, "users rows K"], factors: Float[np.ndarray, "users rows K"], digit: float
) -> Float[np.ndarray, " users"]:
    """Relative size of the rows' last digits: rows may be differences of numbers as large as the factors."""
    size = np.abs(rows).max(axis=(1, 2), initial=0)
    broadcast = np.abs(factors).max(axis=(1, 2), initial=0)
    return digit * np.maximum(1.0, broadcast / np.where(size > 0, size, np.inf))


def ratings_in_span(
    rows: Float[np.ndarray, "users rows K"],
    factors: Float[np.ndarray, "users rows K"],
    offset: Float[np.ndarray, "users rows"],
    item: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    digit: float,
) -> Relation:
    """Find the ratings of each client that lie in the span of its factors and rows.

    Examples
    --------
    Five steps of a client on copies of its own:

    >>> random = np.random.RandomState(0)
    >>> v, u, r = random.randn(12, 3), random.randn(3), random.randint(1, 6, 12) * 1.0
    >>> copy = v.copy()
    >>> for _ in range(5):
    ...     error = r - copy @ u
    ...     copy, u = copy + 0.01 * error[:, None] * u, u + 0.01 * error @ copy
    >>> none, all_ = np.zeros((1, 12)), np.ones((1, 12), bool)
    >>> found = ratings_in_span((copy - v)[None], v[None], none, all_, np.arange(1.0, 6.0), 2e-16)
    >>> bool((found.value == r).all())
    True
    """
    users, n_rows, _k = rows.shape
    value = np.full((users, n_rows), np.nan)
    left, outside = np.full(users, np.nan), np.full(users, np.nan)
    told = np.zeros(users, bool)
    limit = LOOSE * precision_of(rows, factors, digit)
    for user in np.flatnonzero(np.isfinite(rows).all(axis=(1, 2)) & (limit < COARSEST)):
        here = item[user]
        sent, (known, shift) = rows[user, here], _taken_off(offset[user, here])
        span = span_of(sent, factors[user, here].astype(float), known)
        outside[user] = span.outside
        if not span.outside <= limit[user]:
            continue
        answer = ratings_in_basis(span.basis, levels, shift, limit[user])
        if answer is not None and known.any():
            # the combination of the rows' columns that has r - b
            beyond = sent @ (sent.T @ span.basis[:, -1])
            table = np.concatenate([factors[user, here], beyond[:, None]], axis=1)
            answer = answer if _as_known(answer[0], known, table, limit[user]) else None
        if answer is not None and not _without_factors(answer[0], sent, limit[user]):
            value[user, here], left[user] = answer
            told[user] = True
    return Relation(value, told, left, outside, limit)


def ratings_in_columns(
    columns: Float[np.ndarray, "n m"],
    offset: Float[np.ndarray, " n"],
    levels: Float[np.ndarray, " levels"],
    limit: float,
) -> Float[np.ndarray, " n"] | None:
    """Find one client's ratings, less the offset, in the span of columns that are known.

    Examples
    --------
    >>> random = np.random.RandomState(0)
    >>> columns, ratings = random.randn(9, 4), np.array([4.0, 1, 5, 3, 3, 2, 4, 5, 1])
    >>> columns[:, 0] = ratings - columns[:, 1:] @ [0.3, -0.2, 0.7]
    >>> found = ratings_in_columns(columns, np.zeros(9), np.arange(1.0, 6.0), 1e-12)
    >>> found is not None and bool((found == ratings).all())
    True
    """
    known, shift = _taken_off(offset)
    table = np.concatenate([columns, known[:, None]], axis=1) if known.any() else columns
    answer = ratings_in_basis(_basis_of(table, limit), levels, shift, limit)
    return None if answer is None or _without_factors(answer[0], columns[:, :1], limit) else answer[0]


def _basis_of(columns: Float[np.ndarray, "n m"], limit: float) -> Float[np.ndarray, "n some"]:
    """An orthonormal basis of what columns span to that precision, each of them of length 1."""
    size = np.linalg.norm(columns, axis=0)
    left, values, _ = np.linalg.svd(columns / np.where(size > 0, size, 1), full_matrices=False)
    return left[:, values > limit * values[0]]


def _as_known(ratings: np.ndarray, biases: np.ndarray, table: np.ndarray, limit: float) -> bool:
    """Whether biases are taken off the ratings once, as far as the rest of the span lets that be seen.

    A multiple of ratings less a bias of the client may meet the grid, too: it takes the biases of items off
    as many times.
    """
    unit = np.linalg.norm(table, axis=0)
    axes = np.linalg.qr(table / np.where(unit > 0, unit, 1.0))[0]
    off = biases - axes @ (axes.T @ biases)
    square = float(off @ off)
    inexact = limit * (table.shape[1] + 1) * np.linalg.norm(ratings) * np.sqrt(square)
    return bool(abs(off @ ratings - square) <= AS_KNOWN * square + inexact)


def _without_factors(ratings: np.ndarray, rows: np.ndarray, limit: float) -> bool:
    """Whether rows alone make the ratings up, as errors do of a prediction that is one number."""
    left, size, _ = np.linalg.svd(rows, full_matrices=False)
    basis = left[:, size > limit * size[0]]
    return bool(
        np.linalg.norm(ratings - basis @ (basis.T @ ratings)) <= limit * len(rows) * np.linalg.norm(ratings)
    )


def _taken_off(offset: np.ndarray) -> tuple[np.ndarray, float]:
    """Biases of items, and in their place one number where all are equal: it is taken off the levels."""
    if offset.size and np.ptp(offset) == 0:
        return np.zeros(offset.size), float(offset[0])
    return offset, 0.0


def span_of(rows: np.ndarray, factors: np.ndarray, offset: np.ndarray) -> Span:
    """The span of factors, known biases and rows."""
    columns = factors if not offset.any() else np.concatenate([factors, offset[:, None]], axis=1)
    size = np.linalg.norm(rows)
    if len(rows) <= columns.shape[1] + 1 or not size > 0:
        return Span(np.eye(len(rows)), np.nan)
    first = np.linalg.qr(columns)[0]
    off = rows
    for _ in range(2):  # twice: to the last digit
        off = off - first @ (first.T @ off)
    left, values, _ = np.linalg.svd(off, full_matrices=False)
    rest = float(np.linalg.norm(values[1:]) / size)
    if not values[0] > 0:
        return Span(first, rest)
    return Span(np.concatenate([first, left[:, :1]], axis=1), rest)


def integers_in_columns(
    columns: Float[np.ndarray, "n m"], largest: int, limit: float
) -> Float[np.ndarray, " n"] | None:
    """Find the one vector of integers in the span of columns, in lowest terms, of either sign.

    Examples
    --------
    >>> columns, whole = np.random.RandomState(0).randn(9, 4), np.array([2.0, 0, -1, 3, 3, 0, 1, -2, 1])
    >>> columns[:, 0] = whole - columns[:, 1:] @ [0.3, -0.2, 0.7]
    >>> found = integers_in_columns(columns, 4, 1e-12)
    >>> found is not None and bool((np.abs(found) == np.abs(whole)).all())
    True
    """
    basis = _basis_of(columns, limit)
    found = primitive_vector(basis, largest, limit)
    if found is None or np.abs(found).max() > largest:
        return None
    away = np.linalg.norm(found - basis @ (basis.T @ found))
    return found if away <= limit * basis.shape[1] * np.linalg.norm(found) else None


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
