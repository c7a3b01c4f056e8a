"""Rows with an unknown multiple of their own factor in them: regularisation of the item, or weight decay.

Beyond the papers, for programs that send row j = sigma e_j u + mu v_j and tell nobody mu (FedMF's 2 gamma mu
is public, Chai et al. 2021). With the rows F and their factors V of one client, F - mu V has rank one. So
with V+, the pseudo-inverse of V, V+ F (where rows are fewer than factors, F V+) is mu times the identity and
a matrix of rank one: all of its eigenvalues but one are mu, and their median is where a least-squares fit of
mu and the direction of u starts.

What it assumes: one u for all rows of the client, three rows or more of three factors or more, uploads in the
clear. mu may differ from client to client; of clients with fewer rows it is taken from the others where these
agree.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.uploads.reduction import leading_direction

LEAST_ROWS, LEAST_FACTORS = 3, 3
ROUNDS = 20  # of the fit, which turns from mu to the direction and back
EXPLAINED = 0.05  # what may be left across the direction, of what was there before
AGREE = 1e-3  # relative, within which clients name one mu
RANK = 1e-9  # relative size of a singular value that counts


def without_pull(
    rows: Float[np.ndarray, "users rows K"],
    factors: Float[np.ndarray, "users rows K"],
    valid: Bool[np.ndarray, "users rows"],
) -> tuple[Float[np.ndarray, "users rows K"], Float[np.ndarray, " users"]]:
    """Take off each client's rows the multiple of their factors that leaves them parallel.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> error, u, v = rng.normal(size=(1, 6, 1)), rng.normal(size=(1, 1, 4)), rng.normal(size=(1, 6, 4))
    >>> clean, pull = without_pull(error * u + 0.25 * v, v, np.ones((1, 6), bool))
    >>> round(float(pull[0]), 6), bool(np.allclose(clean, error * u))
    (0.25, True)
    """
    if rows.shape[2] < LEAST_FACTORS or rows.shape[1] < LEAST_ROWS:
        return rows, np.zeros(rows.shape[0])
    finite = np.isfinite(rows).all(axis=(1, 2)) & np.isfinite(factors).all(axis=(1, 2))
    row, factor = (np.where(finite[:, None, None], part, 0.0) for part in (rows, factors))
    pull = _start(row, factor, valid.sum(axis=1))
    before = _across(row, factor, np.zeros(rows.shape[0]))[1]
    for _ in range(ROUNDS):
        pull, left = _across(row, factor, pull)
    told = (valid.sum(axis=1) >= LEAST_ROWS) & (left < EXPLAINED * before) & (pull != 0)
    pull = _lent(np.where(told, pull, 0.0), told, valid)
    return rows - pull[:, None, None] * factors, pull


def _start(rows: np.ndarray, factors: np.ndarray, n_rows: np.ndarray) -> Float[np.ndarray, " users"]:
    """Median eigenvalue of V+ F, in the basis of V's singular vectors."""
    left, size, right = np.linalg.svd(factors, full_matrices=False)
    some = size > RANK * size[:, :1]
    inverse = np.where(some, 1 / np.where(some, size, 1), 0.0)
    seen = inverse[:, :, None] * np.matmul(left.transpose(0, 2, 1), np.matmul(rows, right.transpose(0, 2, 1)))
    out = np.zeros(rows.shape[0])
    rank = np.minimum(some.sum(axis=1), n_rows)
    for n in np.unique(rank[rank >= LEAST_ROWS]).tolist():
        here = rank == n
        out[here] = np.median(np.linalg.eigvals(seen[here][:, :n, :n]).real, axis=1)
    return out


def _across(
    rows: np.ndarray, factors: np.ndarray, pull: np.ndarray
) -> tuple[Float[np.ndarray, " users"], Float[np.ndarray, " users"]]:
    """The multiple that explains most of what is across the direction, and how much it leaves."""
    clean = rows - pull[:, None, None] * factors
    direction, _ = leading_direction(clean)
    row, factor = (
        part - np.matmul(part, direction[:, :, None]) * direction[:, None] for part in (rows, factors)
    )
    square = np.einsum("urk,urk->u", factor, factor)
    better = np.einsum("urk,urk->u", row, factor) / np.where(square > 0, square, 1)
    left = row - pull[:, None, None] * factor
    return better, np.sqrt(np.einsum("urk,urk->u", left, left))


def _lent(pull: np.ndarray, told: np.ndarray, valid: np.ndarray) -> Float[np.ndarray, " users"]:
    """mu of clients with few rows, from the others: one for all, or one over the number of rows."""
    n_rows = np.maximum(valid.sum(axis=1), 1)
    for divisor in (np.ones(n_rows.size), n_rows):
        if told.sum() < LEAST_ROWS:
            break
        common = pull * divisor
        usual = np.median(common[told])
        if np.median(np.abs(common[told] - usual)) < AGREE * abs(usual):
            return np.where(told | (valid.sum(axis=1) >= LEAST_ROWS), pull, usual / divisor)
    return pull
