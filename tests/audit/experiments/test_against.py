"""What is called worse or better, what noise is called, and what became untested."""

from __future__ import annotations

import numpy as np
import pytest

from audit.experiments.builds import BETTER, GONE, NEW, SAME, UNTESTED, WORSE, changes
from tests.reports.page.test_page import leak, untested


def row(advantage, half=0.03, attack="spectral", **more):
    bars = {"advantage_low": advantage - half, "advantage_high": advantage + half}
    return leak(attack=attack, advantage=advantage, n_users=200, **bars, **more)


def said(new, old):
    return [one.said for one in changes(new, old)]


def test_beyond_noise_and_within():
    assert said([row(0.5)], [row(0.3)]) == [WORSE]
    assert said([row(0.3)], [row(0.5)]) == [BETTER]
    assert said([row(0.51)], [row(0.5)]) == [SAME]


def test_what_is_no_longer_tested_is_no_improvement():
    assert said([untested(adversary="server") | {"metric": "rated_rating_accuracy"}], [row(0.5)]) == [
        UNTESTED
    ]
    assert said([], [row(0.5)]) == [GONE]
    assert said([row(0.5)], []) == [NEW]
    assert said([untested()], [untested()]) == [SAME]


def test_guesses_and_rows_without_an_attack_are_left_out():
    rows = [row(0.1, attack="guess-majority"), row(0.1) | {"adversary": None, "attack": None}]
    assert changes(rows, rows) == []


def test_equal_values_of_few_clients_are_not_sure():
    """An interval without width: two of 20 clients more is chance, all of 200 is not."""
    assert said([row(0.1, 0) | {"n_users": 20}], [row(0.0, 0) | {"n_users": 20}]) == [SAME]
    assert said([row(1.0, 0)], [row(0.9, 0)]) == [WORSE]


def test_false_alarms_are_bounded_over_all_comparisons():
    """200 pairs of results with 40 cells of pure noise each: 5 % expected at most, 14 % has p < 1e-6."""
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(200):
        pairs = rng.normal(0.3, 0.03 / 1.96, (2, 40))
        new, old = ([row(a, attack=f"a{n}") for n, a in enumerate(line)] for line in pairs)
        false += any(one != SAME for one in said(new, old))
    assert false <= 0.14 * 200


def test_a_planted_change_among_many_is_found():
    """Ten points among 200 users, 40 cells: the z of each is 0.1 / 0.0216 = 4.6, Holm asks for 3.2."""
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(100):
        base = np.full(40, 0.3)
        new, old = (
            [row(a, attack=f"a{n}") for n, a in enumerate(rng.normal(line, 0.03 / 1.96))]
            for line in (base + 0.1 * (np.arange(40) == 7), base)
        )
        found += [one.said for one in changes(new, old)][7] == WORSE
    assert found >= 85


@pytest.mark.parametrize("advantage", [None, float("nan"), float("inf")])
def test_what_is_no_number_was_not_tested(advantage):
    assert said([row(0.5) | {"advantage": advantage}], [row(0.5)]) == [UNTESTED]
