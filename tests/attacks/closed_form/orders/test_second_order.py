"""Where each row points tells how far the client had come."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.orders.second_order import second_order
from tests.oracles.shuffled_passes import ShuffledPasses


def left_over(g: np.ndarray, h: np.ndarray, ratings: np.ndarray) -> float:
    """What the best A g + B h leaves of ratings, in the mean."""
    table = np.stack([g, h], axis=1)
    rest = ratings - table @ np.linalg.lstsq(table, ratings)[0]
    return float(np.sqrt((rest**2).mean()))


@pytest.mark.parametrize(("n", "k", "most"), [(8, 16, 0.4), (20, 8, 0.8), (60, 10, 0.9)])
def test_ratings_are_nearer_to_two_numbers(n, k, most):
    """The median of 12 clients; with more factors than ratings rows tell most of the order."""
    rng, times = np.random.default_rng(0), []
    for _ in range(12):
        factors, p, ratings = rng.normal(0, 0.3, (n, k)), rng.normal(0, 0.3, k), rng.integers(1, 6, n) + 0.0
        sent = ShuffledPasses(0.005).rows(p, factors, ratings, rng)
        d, halfway = np.linalg.svd(sent)[2][0], factors + sent / 2
        better = second_order(sent, halfway, d)
        times.append(left_over(*better, ratings) / left_over(sent @ d, halfway @ d, ratings))
    assert np.median(times) < most


def test_parallel_rows_tell_nothing():
    d = np.array([0.6, 0.8, 0.0])
    assert second_order(np.outer([1.0, -2, 3], d), np.eye(3), d) is None


def test_what_turns_a_row_by_its_length_is_no_second_order():
    rng = np.random.default_rng(1)
    sent = 10 * rng.normal(size=(8, 4))
    d = np.linalg.svd(sent)[2][0]
    found = second_order(sent, rng.normal(size=(8, 4)), d)
    assert found is None or np.isfinite(found).all()
