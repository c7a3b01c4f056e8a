"""Ratings less each client's own lowest one are not taken for ratings less the lowest level."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope

STARS, HALVES = np.arange(1.0, 6.0), np.arange(0.5, 5.1, 0.5)
USERS, ITEMS, K = 20, 60, 4


def own_lowest(r):
    return r - r.min()


def min_max(r):
    return (r - r.min()) / (r.max() - r.min())


def lowest_level(r):
    return r - 1


def recorded(path, learned, levels=STARS, least=5, ends=False, users=USERS, biases=False):
    """One step of clients of ``least`` ratings or more, most of them high; a third may have both ends."""
    rng = np.random.default_rng(2)
    q, p = rng.normal(0, 0.3, (ITEMS, K)), rng.normal(0, 0.3, (users, K))
    table, b = np.zeros((users, ITEMS)), rng.normal(0, 0.3, ITEMS) * biases
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q, **({"biases": b} if biases else {}))
        for user, own in enumerate(table):
            items = rng.choice(ITEMS, rng.integers(least, 3 * least), replace=False)
            share = np.clip(rng.normal(0.7, 0.2, items.size), 0, 1)
            own[items] = levels[np.rint(share * (levels.size - 1)).astype(int)]
            if ends and user % 3 == 0:
                own[items[:2]] = levels[[0, -1]]
            error = learned(own[items]) - b[items] - q[items] @ p[user]
            recorder.upload(0, user, -2 * error[:, None] * p[user], items)
    return table


def answers(found, table):
    """Ratings that are answered, and how many of them are wrong, up to a shift where that is the scope."""
    many = wrong = 0
    for block in found.blocks:
        index = np.broadcast_to(block.index, block.value.shape)
        for user, item, value in zip(block.users, index, block.value, strict=True):
            told = ~np.isnan(value)
            off = np.rint(2 * (value[told] - table[user, item[told]]))
            right = np.median(off) if found.scope == Scope.DIFFERENCES and off.size else 0
            many += off.size
            wrong += int((off != right).sum())
    return many, wrong


@pytest.mark.parametrize("attack", ["inversion"])
@pytest.mark.parametrize(
    ("learned", "levels"),
    [
        (own_lowest, STARS),
        pytest.param(min_max, STARS, marks=pytest.mark.thorough),
        pytest.param(min_max, HALVES, marks=pytest.mark.thorough),
    ],
)
def test_who_has_not_both_ends_is_left_open(tmp_path, learned, levels, attack):
    """Before: clients without the lowest level were answered too low, a third of all ratings and more."""
    table = recorded(tmp_path / "t", learned, levels, ends=True)
    found = fl.attack(tmp_path / "t", attack)
    many, wrong = answers(found, table)
    assert wrong == 0
    if learned is own_lowest:
        assert many > 40
        assert found.scope == Scope.RATINGS_AND_ATTRIBUTES


def test_known_biases_of_items_are_no_matter(tmp_path):
    """A bias common to all clients is the lowest level then; a third was answered too low before."""
    table = recorded(tmp_path / "t", own_lowest, ends=True, biases=True)
    many, wrong = answers(fl.attack(tmp_path / "t", "undeclared"), table)
    assert wrong == 0
    assert many > 40


def test_differences_are_read_where_nobody_has_both_ends(tmp_path):
    table = recorded(tmp_path / "t", own_lowest)
    found = fl.attack(tmp_path / "t", "undeclared")
    many, wrong = answers(found, table)
    assert found.scope == Scope.DIFFERENCES
    assert wrong == 0
    assert many > 0.3 * (table > 0).sum()


def test_the_lowest_level_taken_off_is_read_where_somebody_lacks_it(tmp_path):
    """As before: who has none of it says that it is no own one."""
    table = recorded(tmp_path / "t", lowest_level, ends=True)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.scope == Scope.RATINGS_AND_ATTRIBUTES
    many, wrong = answers(found, table)
    assert wrong == 0
    assert many > 0.8 * (table > 0).sum()
