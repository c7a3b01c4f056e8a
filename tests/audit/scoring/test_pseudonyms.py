"""Links and names beside counting by hand, and beside chance."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from audit.scoring.pseudonyms import NAMED, NAMES, PRECISION, RECALL, link_scores, unsaid


def test_by_hand():
    """Client 7 sends three rows, client 9 two; one row of 7 goes to 9's pseudonym and one to nobody's."""
    label = np.array([0, 1, -1, 1, 1])
    found = link_scores(label, np.array([7, -1]), np.array([7, 7, 7, 9, 9]), np.zeros(5, int))
    assert found[PRECISION][1].tolist() == [1 / 3]  # pseudonym 0 has no pair
    assert found[RECALL][1].tolist() == [0, 1]
    assert found[NAMES][1].tolist() == [1, 0]
    assert found[NAMED][1].tolist() == [1]
    assert found[NAMES][2].tolist() == [0.5, 0.5]
    assert found[PRECISION][2].tolist() == [4 / 10]  # of all pairs so many are one client's


def test_shares_of_which_nothing_is_said():
    assert unsaid(np.full(3, -1), np.zeros(0, int)) == {RECALL: 1, NAMES: 1}
    assert unsaid(np.array([0, 1]), np.array([4, -1])) == {RECALL: 0, NAMES: 0.5}
    assert unsaid(np.zeros(0, int), np.zeros(0, int)) == {RECALL: 1, NAMES: 1}


def test_pairs_are_those_of_one_round():
    label, who, when = np.array([0, 0, 0, 0]), np.array([1, 1, 2, 2]), np.array([0, 0, 1, 1])
    assert link_scores(label, np.array([-1]), who, when)[PRECISION][1].tolist() == [1]


@pytest.mark.parametrize("seed", range(3))
def test_every_pair_counted(seed):
    rng = np.random.default_rng(seed)
    label, who, when = rng.integers(-1, 4, 40), rng.integers(5, 9, 40), rng.integers(0, 2, 40)
    found = link_scores(label, np.full(4, -1), who, when)
    pairs = [(a, b) for a, b in combinations(range(40), 2) if when[a] == when[b]]
    for name in range(4):
        mine = [(a, b) for a, b in pairs if label[a] == label[b] == name]
        assert found[PRECISION][1][name] == np.mean([who[a] == who[b] for a, b in mine])
    for row, client in enumerate(np.unique(who)):
        mine = [(a, b) for a, b in pairs if who[a] == who[b] == client]
        assert found[RECALL][1][row] == np.mean([label[a] == label[b] >= 0 for a, b in mine])


def test_random_labels_are_worth_chance():
    """Of 3,000 random rows the precision is that of random pairs, within 4 deviations of 16 pseudonyms."""
    rng = np.random.default_rng(5)
    label, who = rng.integers(0, 16, 3000), rng.integers(0, 10, 3000)
    _, value, chance = link_scores(label, np.full(16, -1), who, np.zeros(3000, int))[PRECISION]
    assert abs(value.mean() - chance[0]) < 4 * value.std() / 4


def test_nothing_is_linked():
    found = link_scores(np.full(3, -1), np.zeros(0, int), np.array([0, 0, 1]), np.zeros(3, int))
    assert found[RECALL][1].tolist() == [0]
    assert found[NAMES][1].tolist() == [0, 0]
    assert not found[PRECISION][1].size
