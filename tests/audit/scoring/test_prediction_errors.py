"""Intervals over users, and paired tests over seeds, against SciPy and listings of all sign patterns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from audit.scoring.prediction_errors import UserErrors, comparisons, interval_over_users, intervals_of, paired
from reports.paper_tables import paired_table


def test_intervals_against_scipy():
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


@pytest.mark.parametrize("seed", range(5))
def test_against_scipy(seed):
    errors, others = np.random.default_rng(seed).normal(size=(2, 5))
    found = paired(errors, others)
    np.testing.assert_allclose(found.t_test, stats.ttest_rel(errors, others, alternative="less").pvalue)
    by_permutation = stats.permutation_test(
        (errors, others), lambda a, b: np.mean(a - b), permutation_type="samples", alternative="less"
    )
    np.testing.assert_allclose(found.sign_flip, by_permutation.pvalue)


def test_five_seeds_reach_one_in_32_at_best():
    """However large and even the differences are: two stars, where the t-test gives three."""
    found = paired(np.zeros(5), np.array([1.0, 1.01, 0.99, 1.0, 1.02]))
    assert found.sign_flip == 1 / 32
    assert found.stars == "***"
    assert paired(np.ones(5), np.ones(5))[1:] == (1.0, 1.0)
    assert np.isnan(paired(np.ones(1), np.zeros(1)).t_test)


def test_many_seeds_go_by_the_normal_law():
    gains = np.random.default_rng(0).normal(0.3, 1, 40)
    found = paired(np.zeros(40), gains)
    by_draws = np.random.default_rng(1).choice([-1, 1], (200_000, 40)) @ gains >= gains.sum()
    assert (
        abs(found.sign_flip - by_draws.mean()) < 0.005
    )  # six standard errors at p = 0.04, and the law's own


def test_methods_are_compared_over_common_seeds():
    errors = {("a", 0): 1.0, ("a", 1): 1.1, ("b", 0): 0.9, ("b", 1): 0.8, ("b", 2): 9.0}
    rows = [
        {"victim": f"{name} K=5", "metric": "mse", "seed": seed, "value": value, "status": "ran"}
        for (name, seed), value in errors.items()
    ]
    (one,) = comparisons([*rows, {**rows[0], "seed": 2, "status": "failed"}])
    assert (one.better, one.worse, one.n_seeds) == ("b", "a", 2)
    np.testing.assert_allclose(one.result.better_by, 0.2)
    assert len(paired_table([one]).rows) == 1
