"""Rates of membership, beside a slow reference; tests that err as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.membership import likelihood_ratios
from audit.scoring.membership import membership_scores
from audit.scoring.verdicts import INCONCLUSIVE, LEAK, NO_EVIDENCE

CLIENTS, EACH, MODELS = 40, 50, 10
CLIENT = np.repeat(np.arange(CLIENTS), EACH)


def drawn(seed, shift):
    rng = np.random.default_rng(seed)
    member = rng.random((MODELS, CLIENT.size)) < 0.5
    return rng.normal(size=member.shape) + shift * member, member


def test_rates_are_those_of_a_slow_reference():
    score, member = drawn(0, 1.5)
    area, one, tenth = membership_scores(score, member, CLIENT, "rating", 0)
    inside, outside = score[member], np.sort(score[~member])
    assert area.summary.value == pytest.approx(
        np.searchsorted(outside, inside).mean() / outside.size, abs=1e-3
    )
    for found, rate in ((one, 0.01), (tenth, 0.001)):
        threshold = outside[-int(rate * outside.size) - 1]
        assert found.summary.value == pytest.approx((inside > threshold).mean(), abs=0.005)
        assert found.summary.ci_low < found.summary.value < found.summary.ci_high
        assert found.summary.baseline == rate
    assert [found.summary.verdict for found in (area, one, tenth)] == [LEAK] * 3
    assert area.metric == "rating_membership_auc"


def test_chance_is_no_leak():
    """p-values below 0.05 in 100 null runs: 5 expected, more than 15 once in 25,000; and hardly a leak."""
    small, verdicts = np.zeros(3), []
    for seed in range(100):
        found = membership_scores(*drawn(seed, 0), CLIENT, "user", 0)
        small += [one.summary.p_value < 0.05 for one in found]
        verdicts += [one.summary.verdict for one in found]
    assert (small <= 15).all()
    assert verdicts.count(LEAK) <= 0.02 * len(verdicts)
    assert set(verdicts) <= {LEAK, NO_EVIDENCE, INCONCLUSIVE}


def test_shadow_models_of_nothing_are_no_leak():
    """All coins are in each score; p-values below 0.05 in 8 of 30 null runs come once in 10,000."""
    small, verdicts = np.zeros(3), []
    for seed in range(30):
        value, member = drawn(seed, 0)
        found = membership_scores(likelihood_ratios(value, member), member, CLIENT, "rating", 0)
        small += [one.summary.p_value < 0.05 for one in found]
        verdicts += [one.summary.verdict for one in found]
    assert (small < 8).all()
    assert verdicts.count(LEAK) <= 2


def test_equal_scores_are_chance():
    _, member = drawn(0, 0)
    for found in membership_scores(np.zeros(member.shape), member, CLIENT, "user", 0):
        assert found.summary.value == pytest.approx(found.summary.baseline)
        assert found.summary.verdict != LEAK
