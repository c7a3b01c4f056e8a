"""Intervals cover, no leak is rarely called one, errors are better where they are smaller."""

from __future__ import annotations

import numpy as np
import pytest

from audit.scoring.summary import summarise


@pytest.mark.thorough  # counts
def test_interval_covers():
    """95 % intervals of a mean of 60 clients cover it; 300 runs, failure probability < 1e-4
    if the true rate is 0.93.
    """
    covered = 0
    for seed in range(300):
        values = np.random.default_rng(seed).beta(2, 3, 60)
        found = summarise("rating_accuracy", values, np.zeros(60), seed)
        covered += found.ci_low <= 0.4 <= found.ci_high
    assert covered / 300 > 0.87


def test_no_leak_is_rarely_called_a_leak():
    """Values and baseline of one distribution: at most 5 of 100 verdicts may be LEAK. At a level
    of 1 % the probability of more than 5 is 5e-4.
    """
    leaks = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        found = summarise("rating_accuracy", rng.random(80), rng.random(80), seed)
        leaks += found.verdict == "LEAK"
    assert leaks <= 5


def test_advantage_of_errors():
    found = summarise("rating_mae", np.full(5, 0.2), np.full(5, 0.8))
    assert found.advantage == pytest.approx(0.75)


def test_nothing_defined():
    found = summarise("rating_accuracy", np.full(3, np.nan), np.zeros(3))
    assert found.n_users == 0
    assert found.verdict == "NOT TESTED"
