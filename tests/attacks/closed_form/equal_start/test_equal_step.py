"""One step from paper 001's published start, all factors equal: rows of as many sizes as there are levels."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.equal_start.equal_step import equal_step
from tests.attacks.closed_form.uploads.test_item_rows import answers

STARS, HALVES = np.arange(1.0, 6.0), np.arange(0.5, 5.1, 0.5)


def record(path, *, levels=STARS, factors=4, start=0.1, mean=False, dtype=np.float64, pull=0.0, less=0.0):
    """Clients who start as the items do and step once over all their ratings; nothing is declared."""
    rng = np.random.default_rng(1)
    v, ratings = np.full(factors, start), np.zeros((12, 60))
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, np.tile(v, (60, 1)).astype(dtype))
        for user, own in enumerate(ratings):
            rated = rng.choice(60, rng.integers(1, 15), replace=False)
            own[rated] = rng.choice(levels, rated.size)
            error = own[rated] - less - v @ v - pull
            rows = -0.013 * error[:, None] * v / (rated.size if mean else 1)
            recorder.upload(0, user, rows.astype(dtype), rated)
    return ratings


@pytest.mark.thorough
@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, marks=pytest.mark.thorough),
        pytest.param({"factors": 10, "start": 0.01}, marks=pytest.mark.thorough),
        {"mean": True, "levels": HALVES},
        {"dtype": np.float32},
        {"pull": 0.05, "start": -0.1},
    ],
    ids=str,
)
def test_sizes_of_rows_are_ratings(tmp_path, how):
    """Before: nobody was answered, for ratings and their mirror image lie on the grid."""
    ratings = record(tmp_path / "t", **how)
    assert answers(fl.attack(tmp_path / "t", "undeclared"), ratings) == ((ratings > 0).sum(), 0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "how",
    [{"less": 3.0}, pytest.param({"dtype": np.float16}, marks=pytest.mark.thorough)],
    ids=str,
)
def test_ratings_less_a_number_and_rough_rows_are_left_open(tmp_path, how):
    ratings = record(tmp_path / "t", **how)
    assert answers(fl.attack(tmp_path / "t", "undeclared"), ratings) == (0, 0)


def test_two_sizes_of_rough_rows_are_no_evidence():
    rng = np.random.default_rng(0)
    ratings = np.array([[1.0, 4.0, 4.0, 1.0]])
    rows = 2.0 * (ratings - 0.04)
    there = ratings > 0
    assert np.array_equal(equal_step(rows, there, 0.04, STARS, 1e-15), ratings)
    assert equal_step(rows, there, 0.04, STARS, 1e-4) is None
    assert equal_step(rows, ~there, 0.04, STARS, 1e-15) is None
    assert equal_step(rng.normal(size=(1, 4)), there, 0.04, STARS, 1e-15) is None
