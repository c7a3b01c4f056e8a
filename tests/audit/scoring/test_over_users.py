"""Intervals over users, against SciPy's bootstrap and where they are known."""

from __future__ import annotations

import numpy as np
from scipy import stats

from audit.scoring.over_users import UserErrors, interval_over_users, intervals_of


def test_against_scipy():
    """Of one seed with one test rating each: the percentile interval of a mean, up to chance."""
    losses = np.random.default_rng(0).exponential(size=400)
    other = stats.bootstrap((losses,), np.mean, n_resamples=1000, method="percentile", rng=0)
    found = interval_over_users(losses[None], np.ones((1, 400)))
    width = other.confidence_interval.high - other.confidence_interval.low
    np.testing.assert_allclose(found, other.confidence_interval, atol=0.1 * width)


def test_users_are_resampled_alike_for_all_seeds():
    """Seeds with the same errors have the interval of one; those that cancel have none."""
    losses = np.random.default_rng(1).normal(size=(1, 50))
    once = interval_over_users(losses, np.ones((1, 50)))
    assert np.allclose(interval_over_users(np.repeat(losses, 3, axis=0), np.ones((3, 50))), once)
    assert np.allclose(interval_over_users(np.concatenate([losses, -losses]), np.ones((2, 50))), 0)


def test_users_count_by_their_ratings():
    """Who has more test ratings weighs more, and the error is that of all ratings."""
    count = np.array([[1.0, 3.0]] * 2)
    parts = {("mf K=2", seed): UserErrors(count[:1], 4 * count[:1], 2 * count[:1]) for seed in (0, 1)}
    assert intervals_of(parts) == {("mf K=2", "mse"): (4.0, 4.0), ("mf K=2", "mae"): (2.0, 2.0)}
