"""Ratings and factor of single clients that take steps of Adam, fitted when the rule is known."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.client_rules.adaptive_steps import ADAM
from attacks.closed_form.adaptive.adaptive_fit import Rule, fitted
from attacks.closed_form.adaptive.adaptive_numbers import Own
from tests.oracles.adaptive_client import LEVELS, AdaptiveClient

EPS = 2.0**-52


def answers(
    client: AdaptiveClient, rule: Rule, seeds: range, n: int, k: int, digits: type = float
) -> tuple[int, int]:
    """How many clients are told, and how many of these with any wrong rating."""
    told = wrong = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        u, v, r = rng.normal(0, 0.3, k), rng.normal(0, 0.3, (n, k)), rng.choice(LEVELS, n)
        rows = (client.change(u, r, v) + v).astype(digits).astype(float) - v
        digit = float(np.finfo(digits).eps) * np.abs(v).max() / np.abs(rows).max()
        fit = fitted(Own(rows, v, np.zeros(n), np.array(LEVELS), digit), rule)
        if fit is not None and fit.told:
            told += 1
            wrong += not np.array_equal(fit.ratings, r)
    return told, wrong


@pytest.mark.parametrize("rate", [0.002, 0.01, 0.1])
def test_two_steps(rate):
    """Most, and none wrongly."""
    told, wrong = answers(AdaptiveClient(rate=rate), Rule(ADAM, 2, rate), range(8), 15, 5)
    assert told >= 4
    assert wrong == 0


def test_more_steps():
    """About half of clients."""
    told, wrong = answers(AdaptiveClient(steps=4, rate=0.005), Rule(ADAM, 4, 0.005), range(6), 15, 4)
    assert told >= 2
    assert wrong == 0


def test_few_digits_are_not_answered_wrongly():
    """Single precision, and a rate that leaves next to nothing of the ratios."""
    for rate in (0.001, 0.02):
        _, wrong = answers(AdaptiveClient(rate=rate), Rule(ADAM, 2, rate), range(4), 15, 5, np.float32)
        assert wrong == 0


@pytest.mark.parametrize("other", [Rule(ADAM, 3, 0.01), Rule(ADAM, 2, 0.012)], ids=["steps", "rate"])
def test_another_rule_explains_nothing(other):
    """Three steps for two; a rate that is not near."""
    assert answers(AdaptiveClient(), other, range(2), 15, 5) == (0, 0)


def test_ratings_off_the_grid_are_not_answered():
    assert answers(AdaptiveClient(less=0.53), Rule(ADAM, 2, 0.01), range(3), 15, 5) == (0, 0)
