"""A client's rows as those of a client with at most K + 1 ratings, where its rule mixes rows.

Gradient steps on all ratings at once are linear in what a client has: with V its factors (n, K), r its
ratings and D the change of its copy of V,

    D = -V N' + r b',

N (K, K) and b (K,) the same for all rows, whatever the client's own factor did between the steps. So all
columns of D lie in the span of V and r, and what D has outside the span of V tells that of r. In an
orthonormal basis Z of the span the steps are those of a client with ratings Z'r and factors Z'V, so that the
fit takes no longer for a thousand ratings than for K + 1; r itself is Z times what is fitted. What is left
outside the span says that the client did something else. Beyond the papers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.least_squares import Problem


class Compressed(NamedTuple):
    """Some clients with at most n ratings as ones with m = K + 1."""

    problem: Problem  # of m rows
    basis: Float[np.ndarray, "clients n m"]  # Z; ratings are Z times those of the problem
    outside: Float[np.ndarray, " clients"]  # share of the rows' size that is not in the span

    def expanded(
        self, ratings: Float[np.ndarray, "clients trials m"]
    ) -> Float[np.ndarray, "clients trials n"]:
        """Ratings of the clients' own rows."""
        return np.matmul(ratings, self.basis.transpose(0, 2, 1))

    def of(self, ratings: Float[np.ndarray, "clients trials n"]) -> Float[np.ndarray, "clients trials m"]:
        """Ratings of the problem's rows."""
        return np.matmul(ratings, self.basis)


def compressed(rows: Rows) -> Compressed:
    """Compress the rows of some clients."""
    _users, n, k = rows.rows.shape
    factors, sent = rows.factors.astype(float), rows.rows
    if n < k + 1:
        lack = ((0, 0), (0, k + 1 - n), (0, 0))
        factors, sent = np.pad(factors, lack), np.pad(sent, lack)
    span = np.linalg.qr(factors)[0]
    off = sent
    for _ in range(2):  # twice: to the last digit
        off = off - np.matmul(span, np.matmul(span.transpose(0, 2, 1), off))
    direction = np.linalg.eigh(np.matmul(off.transpose(0, 2, 1), off))[1][..., -1:]
    beyond = np.matmul(off, direction)
    length = np.linalg.norm(beyond, axis=1, keepdims=True)
    basis = np.concatenate([span, beyond / np.where(length > 0, length, 1)], axis=2)
    basis = np.where(_few(rows)[:, None, None], _own_rows(rows, basis.shape), basis)
    inside = basis.transpose(0, 2, 1)
    problem = Problem(np.matmul(inside, sent), np.matmul(inside, factors))
    missed = np.linalg.norm(sent - np.matmul(basis, problem.rows), axis=(1, 2))
    size = np.linalg.norm(sent, axis=(1, 2))
    return Compressed(problem, basis[:, :n], missed / np.where(size > 0, size, 1))


def uncompressed(rows: Rows) -> Compressed:
    """Make the compressed form of rows whose rule does not mix them: every row is its own."""
    users, n, _k = rows.rows.shape
    basis = np.broadcast_to(np.eye(n), (users, n, n))
    return Compressed(Problem(rows.rows, rows.factors.astype(float)), basis, np.zeros(users))


def aside(rows: Rows) -> Float[np.ndarray, " clients"]:
    """Measure what no local steps along the items' factors make, of clients with fewer ratings than factors.

    Whatever their number, order and losses, steps move a client's factor along its items' factors, and its
    copies of these along its factor. So off the items' factors all its rows have the direction of its start.
    """
    factors, sent = rows.factors.astype(float), rows.rows
    count, k = rows.item.sum(axis=1), sent.shape[2]
    told = (count >= 2) & (count <= k - 2)
    out = np.full(count.size, np.nan)
    for n in np.unique(count[told]).tolist():
        here = np.flatnonzero(told & (count == n))
        items, off = (part[here][rows.item[here]].reshape(here.size, n, k) for part in (factors, sent))
        size = np.linalg.norm(off, axis=(1, 2))
        span = np.linalg.qr(items.transpose(0, 2, 1))[0]
        for _ in range(2):  # twice: to the last digit
            off = off - np.matmul(np.matmul(off, span), span.transpose(0, 2, 1))
        further = np.linalg.svd(off, compute_uv=False)[:, 1:]
        out[here] = np.linalg.norm(further, axis=1) / np.where(size > 0, size, 1)
    return out


def _few(rows: Rows) -> Bool[np.ndarray, " clients"]:
    """Who has no more rows than the problem."""
    return rows.item.sum(axis=1) <= rows.rows.shape[2] + 1


def _own_rows(rows: Rows, shape: tuple[int, ...]) -> Float[np.ndarray, "clients n m"]:
    """A basis that picks a client's rows one by one."""
    basis = np.zeros(shape)
    user, row = np.nonzero(rows.item)
    place = (np.cumsum(rows.item, axis=1) - 1)[user, row]
    some = place < shape[2]
    basis[user[some], row[some], place[some]] = 1.0
    return basis


def spare_of(n_rated: Int[np.ndarray, " clients"], factors: int, n_free: int) -> Int[np.ndarray, " clients"]:
    """Count by how many equations rows are more than there are unknowns.

    A factor moves along its items' alone. Off these all rows of a client have its one direction, so that few
    rows are fewer equations than numbers: n^2 + K - 1. Those have to tell more than factor and constants,
    without the ratings, of which each combination on the grid is a fit of its own.

    Examples
    --------
    >>> spare_of(np.array([2, 3, 11]), 10, 3)
    array([ 0,  5, 86])
    """
    return np.minimum(n_rated * (factors - 1), n_rated**2 + factors - 1) - factors - n_free
