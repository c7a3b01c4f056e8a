"""Item biases that are told in another unit, or with the other sign: nobody is answered wrongly."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope

STARS = np.arange(1.0, 6.0)
ITEMS, K = 60, 4


def recorded(path, told, lowest=3.0, users=12):
    """One step of programs that learn r - b_j, and broadcast ``told`` of b."""
    rng = np.random.default_rng(4)
    q, p = rng.normal(0, 0.3, (ITEMS, K)), rng.normal(0, 0.3, (users, K))
    b = rng.normal(0, 0.4, ITEMS)
    table = np.zeros((users, ITEMS))
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, q, biases=told(b))
        for user, own in enumerate(table):
            items = rng.choice(ITEMS, rng.integers(8, 20), replace=False)
            own[items] = rng.choice(np.arange(lowest, 6), items.size)
            own[items[:2]] = lowest, 5.0
            error = own[items] - b[items] - q[items] @ p[user]
            recorder.upload(0, user, -2 * error[:, None] * p[user], items)
    return table


@pytest.mark.parametrize("users", [12, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("told", "lowest"),
    [(lambda b: 2 * b, 3.0), (lambda b: -b, 1.0)],
    ids=["twice", "negative"],
)
def test_biases_that_are_not_those_of_the_program(tmp_path, told, lowest, users):
    """Before: 3, 4 and 5 were answered as 1, 3 and 5, and 6 - r for r."""
    table = recorded(tmp_path / "t", told, lowest, users)
    found = fl.attack(tmp_path / "t", "undeclared")
    for columns in found.columns() if found.scope != Scope.SIZES else ():
        np.testing.assert_allclose(columns["value"], table[columns["user"], columns["index"]], atol=0.1)


def test_those_of_the_program_are_read_with(tmp_path):
    table = recorded(tmp_path / "t", lambda b: b)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert not found.abstained
    for columns in found.columns():
        np.testing.assert_allclose(columns["value"], table[columns["user"], columns["index"]], atol=0.1)
