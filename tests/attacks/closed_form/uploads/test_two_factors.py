"""The order of steps whose directions all lie in one plane."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.uploads.two_factors import MOST, successors_in_a_plane
from tests.attacks.closed_form.centres.test_centred_recording import answers
from tests.attacks.closed_form.uploads.test_moving_factor import HALVES, clients, published_pass

DOUBLE = float(np.finfo(float).eps)


def successors(rows, factors, valid, precision=DOUBLE):
    """What follows each row, every row a batch."""
    length = np.linalg.norm(rows, axis=2, keepdims=True)
    direction = rows / np.where(length > 0, length, 1)
    return successors_in_a_plane(direction, length * factors, valid, precision)


def test_rows_in_any_order_are_put_in_theirs():
    rows, factors, valid, _, step = clients([6, 30, MOST], 2, seed=1)
    after = successors(rows, factors, valid)
    for own, place in zip(after, step, strict=True):
        last = place.max()
        has = np.flatnonzero((place >= 0) & (place < last))
        np.testing.assert_array_equal(place[own[has]], place[has] + 1)
        assert own[place == last] == -1


def test_rows_of_anything_have_no_order():
    rng = np.random.default_rng(2)
    rows, factors = rng.normal(size=(2, 12, 40, 2))
    assert (successors(rows, factors, np.ones((12, 40), bool)) == -1).all()


def test_few_and_many_rows_are_left_open():
    rows, factors, valid, *_ = clients([5, MOST + 1], 2, seed=3)
    assert (successors(rows, factors, valid) == -1).all()


@pytest.mark.parametrize(
    ("seen", "dtype"),
    [(False, np.float64), pytest.param(True, np.float64, marks=pytest.mark.thorough), (True, np.float32)],
)
def test_ratings_of_two_factors_are_read(tmp_path, seen, dtype):
    """Each step turns the factor by a good part of itself."""
    rng = np.random.default_rng(4)
    v, table = rng.normal(0, 0.3, (60, 2)), np.zeros((8, 60))
    with fl.Recorder(tmp_path / "t", rating_levels=HALVES) as recorder:
        recorder.broadcast(0, v)
        for user in range(len(table)):
            items = rng.permutation(60)[:25]
            table[user, items] = rng.choice(HALVES, items.size)
            rows = published_pass(table[user, items], rng.normal(0, 0.3, 2), v[items], pace=0.02)
            order = np.arange(items.size) if seen else rng.permutation(items.size)
            recorder.upload(0, user, rows[order].astype(dtype), items[order])
    many, right = answers(fl.attack(tmp_path / "t", "undeclared"), table)
    assert right == many >= 0.8 * (table > 0).sum()
