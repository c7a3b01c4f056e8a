"""Rows of unrated items, where the client's factor moves from row to row: plain clients written here."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.rows.unrated_rows import read_unrated

ALPHA, RATE, RIDGE, LEVELS = 0.1, 2e-3, 1.0, np.arange(1, 11) / 2
USERS, ITEMS, K = 8, 120, 5


def clients(size, *, order=True, dtype=np.float64, seed=0):
    """Rows of clients that step after every ``size`` of all items, in an order of their own."""
    rng = np.random.default_rng(seed)
    v = rng.normal(0, 0.5, (ITEMS, K)).astype(dtype)
    ratings = np.where(rng.random((USERS, ITEMS)) < 0.2, rng.choice(LEVELS, (USERS, ITEMS)), 0)
    rows = np.zeros((USERS, ITEMS, K))
    for client in range(USERS):
        u = rng.normal(0, 0.4, K)
        whole = rng.permutation(ITEMS) if order else np.arange(ITEMS)
        for some in np.split(whole, range(size, ITEMS, size)):
            weight = np.where(ratings[client, some] > 0, 1, ALPHA)
            error = weight * (ratings[client, some] - v[some] @ u)
            rows[client, some] = error[:, None] * u
            u = (1 - 2 * RATE * RIDGE) * u + 2 * RATE * error @ v[some]
    return rows.astype(dtype), np.broadcast_to(v, rows.shape), ratings


def read(rows, factors, alpha=ALPHA):
    there, precision = np.ones(rows.shape[:2], bool), float(np.finfo(rows.dtype).eps)
    return read_unrated(
        rows.astype(float), factors.astype(float), there, LEVELS, alpha, 0.25, precision=precision
    )


@pytest.mark.parametrize(
    ("size", "dtype"), [(1, np.float64), (10, np.float64), (ITEMS, np.float64), (1, np.float32)]
)
def test_ratings_and_lists_of_moving_clients(size, dtype):
    """No order, rate or ridge told: nearly every row of every client, and none wrongly."""
    rows, factors, ratings = clients(size, dtype=dtype)
    found = read(rows, factors)
    assert (found.misfit <= found.allowed).all()
    told = np.isfinite(found.value)
    assert told.mean() >= 0.95
    assert (np.round(2 * found.value) / 2 == ratings)[told].all()


@pytest.mark.parametrize("wrong", ["alpha", "scale", "shuffled", "noise"])
def test_what_is_not_so_is_not_answered(wrong):
    rows, factors, _ = clients(1)
    rng = np.random.default_rng(1)
    if wrong == "scale":
        rows = rows * 1.3
    elif wrong == "shuffled":
        rows = rng.permutation(rows, axis=1)
    elif wrong == "noise":
        rows = rows + 0.1 * np.abs(rows).mean() * rng.normal(size=rows.shape)
    found = read(rows, factors, ALPHA * (1.3 if wrong == "alpha" else 1))
    assert not (found.misfit <= found.allowed).any()


def test_nobody_and_next_to_nothing():
    """Clients without rows, with few, and with rows of zeros."""
    rows, factors, _ = clients(1)
    rows[0] = 0
    rows[1, 5:] = 0
    found = read(rows, factors)
    assert np.isnan(found.misfit[:2]).all()
    assert read(rows[:0], factors[:0]).misfit.size == 0
