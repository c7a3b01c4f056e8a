"""Paper 001's published start, rows sent by item, steps made in another order that nobody sees."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.equal_start.equal_orders import equal_orders
from tests.attacks.closed_form.equal_start.test_equal_pulled import HALVES, STARS, Program

ITEMS, K, SIZES = 30, 5, [12, 12, 11, 10, 9, 8, 6, 4, 3, 1]


def recorded(
    path, program: Program, levels: np.ndarray, grid: np.ndarray, sizes: list[int] = SIZES
) -> list[dict[int, float]]:
    """One round; ratings by item of each client."""
    rng = np.random.default_rng(1)
    n_items = max(ITEMS, *sizes)
    q = np.full((n_items, K), 0.01, program.dtype)
    rated = []
    with fl.Recorder(path, rating_levels=grid, n_items=n_items) as recorder:
        recorder.broadcast(0, q)
        for user, n in enumerate(sizes):
            items, stars = rng.permutation(n_items)[:n], rng.choice(levels, n)
            rows, _ = program.rows(np.full(K, 0.01, program.dtype), q[items], stars)
            order = np.argsort(items)
            recorder.upload(0, user, rows[order], items[order])
            rated.append(dict(zip(items.tolist(), stars.tolist(), strict=True)))
    return rated


def scored(
    path, program: Program, levels: np.ndarray, grid: np.ndarray, sizes: list[int] = SIZES
) -> tuple[int, int]:
    """Answers, and how many are right, of clients that use some levels of a grid."""
    rated = recorded(path, program, levels, grid, sizes)
    found = fl.attack(path, "undeclared")
    right = [
        abs(value - rated[user].get(item, -9)) < 0.1
        for part in found.columns()
        for user, item, value in zip(part["user"], part["index"], part["value"], strict=True)
        if user not in found.abstained
    ]
    return len(right), sum(right)


@pytest.mark.parametrize(
    ("program", "levels"),
    [
        pytest.param(Program(after=True, mu=0.1), HALVES, marks=pytest.mark.thorough),
        (Program(dtype=np.float32), STARS),
    ],
    ids=[
        "half stars, strong pull",
        "single precision",
    ],
)
def test_rows_are_put_in_order(tmp_path, program: Program, levels: np.ndarray):
    """Nobody was answered before."""
    answered, right = scored(tmp_path / "t", program, levels, levels)
    assert right == answered >= 0.9 * sum(SIZES)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("levels", "after"),
    [
        (np.array([1.0, 2.0]), False),
    ],
    ids=[
        "two levels-before the step",
    ],
)
def test_long_lists_in_single_precision(tmp_path, levels: np.ndarray, after: bool):
    """Few clients start with three levels that others start with, and rounding lets two rows be the next."""
    sizes = [60, 55, 50, 45, 40, 30, 25, 25, 20, 20]
    answered, right = scored(
        tmp_path / "t", Program(mu=0.0, dtype=np.float32, after=after), levels, levels, sizes
    )
    assert right == answered >= 0.9 * sum(sizes)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "levels"),
    [
        (Program(batch=2), STARS),
        (Program(taken_off=1.0), STARS),
    ],
    ids=["minibatches", "ratings less one"],
)
def test_what_is_no_such_chain_has_no_wrong_answer(tmp_path, program: Program, levels: np.ndarray):
    answered, right = scored(tmp_path / "t", program, levels, STARS)
    assert right == answered


def test_ratings_less_one_none_of_them_one_are_differences(tmp_path):
    rated = recorded(tmp_path / "t", Program(taken_off=1.0), np.arange(2.0, 6.0), STARS)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.scope == Scope.DIFFERENCES
    off = [
        rated[user][item] - round(value)
        for part in found.columns()
        for user, item, value in zip(part["user"], part["index"], part["value"], strict=True)
    ]
    assert set(off) == {1}


def test_orders_are_those_of_the_steps():
    """From the numbers alone; rows of another rule have none."""
    rng = np.random.default_rng(0)
    h, g, order = np.full((9, 8), 0.02), np.zeros((9, 8)), np.argsort(rng.random((9, 8)), axis=1)
    for user in range(9):
        length = 0.02
        for k, stars in enumerate(rng.choice(STARS, 8)):
            error = stars - length * 0.02
            g[user, order[user, k]] = 0.3 * error * length
            length += 0.01 * error * 0.02
    every = np.ones((9, 8), bool)
    found = equal_orders(g, h, every, STARS, 2.0**-52)
    assert found is not None
    assert np.array_equal(np.argsort(found.sequence, axis=1), order)
    assert equal_orders(rng.normal(size=g.shape), h, every, STARS, 2.0**-52) is None
