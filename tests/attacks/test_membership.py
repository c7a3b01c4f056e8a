"""Membership on planted laws, where the best that anybody can do is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from attacks.membership import likelihood_ratios, list_ratios, offline_ratios, unexplained

MODELS, TARGETS = 48, 3000


def area(score, member):
    inside, outside = np.sort(score[member]), np.sort(score[~member])
    return float(np.searchsorted(outside, inside).mean() / outside.size)


@pytest.fixture(scope="module")
def planted():
    """Values that move by one deviation where a target was trained on; each target has its own law."""
    rng = np.random.default_rng(0)
    member = rng.random((MODELS, TARGETS)) < 0.5
    centre, spread = rng.normal(0, 3, TARGETS), rng.uniform(0.2, 5, TARGETS)
    sign = rng.choice([-1, 1], TARGETS)
    noise = rng.normal(size=member.shape)
    return member, centre + spread * (noise + np.where(member, sign, 0)), sign, noise * spread + centre


def test_likelihood_ratios_come_near_the_best_test(planted):
    """Neyman and Pearson's has area Phi(1 / sqrt 2) = 0.760; 47 shadows cost 0.03, a threshold 0.09."""
    member, value, sign, _ = planted
    best = float(norm.cdf(1 / np.sqrt(2)))
    assert best - 0.03 < area(likelihood_ratios(value, member), member) < best + 0.01
    assert best - 0.03 < area(offline_ratios(value, member, sign * np.inf), member) < best + 0.01
    assert area(value * sign, member) < 0.7


def test_nothing_is_told_where_nothing_is_planted(planted):
    """The standard deviation of the area is 0.0015: 5 of them fail once in two million."""
    member, _, sign, value = planted
    for score in (likelihood_ratios(value, member), offline_ratios(value, member, sign * np.inf)):
        assert abs(area(score, member) - 0.5) < 0.0075


def test_a_model_is_scored_without_its_own_membership(planted):
    member, value, _, _ = planted
    turned = member.copy()
    turned[0] = ~turned[0]
    assert np.allclose(likelihood_ratios(value, member)[0], likelihood_ratios(value, turned)[0])
    assert np.allclose(list_ratios(value > 0, member)[0], list_ratios(value > 0, turned)[0])


def test_a_list_that_leaves_out_what_was_rated_tells_it():
    """An item that is listed for half of those who did not rate it: missing means odds of two to one."""
    rng = np.random.default_rng(1)
    member = rng.random((400, 50)) < 0.5
    listed = ~member & (rng.random(member.shape) < 0.5)
    score = list_ratios(listed, member)
    assert (score[listed] < -4).all()
    assert np.median(score[~listed]) == pytest.approx(np.log(2), abs=0.1)


def test_others_predictions_explain_a_user_of_their_kind():
    """Predictions of a model of two factors explain ratings of it, and not permuted ones."""
    rng = np.random.default_rng(2)
    items, observers = rng.normal(size=(60, 2)), rng.normal(size=(80, 2))
    ratings = items @ np.array([1.0, -2.0])
    seen = observers @ items.T
    assert unexplained(seen, np.arange(60), ratings) < 0.1
    assert unexplained(seen, np.arange(60), rng.permutation(ratings)) > 1
    assert unexplained(seen, np.arange(1), np.array([2.0])) == pytest.approx(4.0)  # nothing but its variance
