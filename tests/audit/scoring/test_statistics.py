"""The exact sign test over clients, and what the test by ratings errs with."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from audit.scoring.statistics import GUESSED, LEAK_LEVEL, ratings_test, sign_test


def test_sign_test_is_exact():
    values = np.array([1.0, 1, 1, 1, 0, 0.5])
    baseline = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    assert sign_test("rating_accuracy", values, baseline) == pytest.approx(6 / 32)
    assert sign_test("rating_mae", values, baseline) == pytest.approx(31 / 32)
    assert sign_test("rating_accuracy", baseline, baseline) == 1.0


def test_of_few_clients_the_test_by_ratings_adds_next_to_nothing_to_that_of_dealt_rows():
    """Both are at 0.01; the best guess that is let in passes the first with less than 0.000004."""
    worst = 0.0
    for n in (43, 44, 45, 60, 100, 300):
        fewest = n + 1  # right answers that are called a leak
        while ratings_test(np.array([(fewest - 1) / n]), np.zeros(1), np.array([n + 0.0])) < LEAK_LEVEL:
            fewest -= 1
        worst = max(worst, float(binom.sf(fewest - 1, n, GUESSED)))
    assert 0 < worst < 4e-6
    one, best = np.ones(1), np.full(1, GUESSED + 0.01)
    assert ratings_test(one, best, np.array([400.0])) == 1
