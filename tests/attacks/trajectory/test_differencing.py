"""Differences of rows with noise that repeats, multiplied with a number that nobody told."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.trajectory.differencing import from_differences

CLIENTS, K, N, RATE, LEVELS = 30, 6, 20, 0.02, np.arange(1.0, 6.0)


def rows_of(bias, least):
    """Rows and factors of four rounds, and the ratings less a bias that does not move."""
    rng = np.random.default_rng(0)
    p, factors = rng.normal(0, 0.4, (CLIENTS, K)), rng.normal(0, 0.4, (CLIENTS, N, K))
    ratings = rng.integers(least, 6, (CLIENTS, N)) - rng.normal(0, bias, (CLIENTS, 1))
    noise = rng.laplace(0, 1, factors.shape)
    sent, broadcast = [], []
    for _ in range(4):
        error = ratings - np.einsum("unk,uk->un", factors, p)
        row = error[..., None] * p[:, None]
        sent.append(-2 * row + noise)
        broadcast.append(factors)
        p, factors = p + RATE * np.einsum("un,unk->uk", error, factors), factors + RATE * row
    return np.stack(sent, axis=1), np.stack(broadcast, axis=1), ratings


@pytest.mark.parametrize(("bias", "least"), [(0.0, 1), (0.5, 4)], ids=["none", "bias and two levels"])
def test_what_a_bias_puts_off_the_grid_is_no_rating(bias, least):
    """Some factor brings 4 and 5 less a bias near two levels, but the rows are more exact than that."""
    sent, factors, ratings = rows_of(bias, least)
    all_ = np.ones(ratings.shape)
    found = from_differences(sent, factors, all_, all_.astype(bool), LEVELS)
    assert found.on_grid.sum() == (0 if bias else CLIENTS)
    np.testing.assert_allclose(found.value[found.on_grid], ratings[found.on_grid], atol=1e-6)
