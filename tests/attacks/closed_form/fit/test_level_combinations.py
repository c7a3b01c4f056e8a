"""Ten thousand pairs of a hundred levels: few are judged, the right one among these."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from attacks.closed_form.fit.level_combinations import JUDGED, OpenRows, anchors_of, numbers_of, says_nothing
from tests.attacks.closed_form.fit.test_affine_grid import mean_loss

HUNDRED = np.arange(1.0, 101.0)


def open_rows(levels, seed: int = 8):
    """Ten clients with 14 ratings, and what these are."""
    g, h, offset, ratings = mean_loss(levels, 10, 14, seed=seed)
    return OpenRows(np.stack([g, h], axis=2), offset, np.ones_like(g, bool)), ratings


@pytest.mark.parametrize("levels", [HUNDRED, HUNDRED**1.5], ids=["equally far apart", "not"])
def test_the_right_combination_is_among_the_few(levels):
    rows, ratings = open_rows(levels)
    numbers = numbers_of(rows, rows, *anchors_of(rows), levels)
    assert numbers.shape == (10, JUDGED, 2)
    missed = np.abs(rows.values(numbers) - ratings[:, None]).max(axis=2).min(axis=1)
    assert (missed < 1e-6 * levels[-1]).all()


def test_the_nearest_of_all_are_among_the_few():
    """Rows about nothing, five beside the two that are named; and the search written out."""
    rows = OpenRows(
        np.random.default_rng(0).normal(size=(10, 7, 2)), np.zeros((10, 7)), np.ones((10, 7), bool)
    )
    anchors, apart = anchors_of(rows)
    few = numbers_of(rows, rows, anchors, apart, HUNDRED)
    pairs = np.array(list(product(HUNDRED, repeat=2)))
    for user, two in enumerate(anchors):
        every = np.linalg.solve(rows.columns[user, two], pairs.T).T
        nearest = every[away(rows, every, user).argsort()[:8]]
        missed = np.abs(few[user] - nearest[:, None]).max(axis=2).min(axis=1)
        assert missed.max() < 1e-6


def away(rows, numbers, user: int):
    """How far one client's rows are from the grid, in all."""
    value = numbers @ rows.columns[user].T + rows.offset[user]
    return np.abs(value - np.clip(np.rint(value), 1, 100)).sum(axis=1)


def test_who_has_no_two_rows_apart_has_no_numbers():
    rows, _ = open_rows(HUNDRED)
    rows.columns[3] = rows.columns[3, :1]
    numbers = numbers_of(rows, rows, *anchors_of(rows), HUNDRED)
    assert np.isnan(numbers[3]).all()
    assert np.isfinite(numbers[[0, 9]]).all()


def test_numbers_that_leave_the_offset_alone_are_not_judged():
    """All rows lie on a level then, and that is nothing that they say."""
    rows, _ = open_rows(HUNDRED)
    rows = rows._replace(offset=np.full_like(rows.offset, 50.0))
    numbers = numbers_of(rows, rows, *anchors_of(rows), HUNDRED)
    assert not says_nothing(numbers, rows.varying()).any()
