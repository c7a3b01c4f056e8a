"""Programs that clip predictions to the grid, of small first factors: all are the lowest level."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.saturated_recording import read_saturated
from tests.attacks.closed_form.centres.test_centred_recording import HALVES, STARS, answers, sizes

USERS, ITEMS, K = 8, 40, 6
TENS = np.arange(1.0, 11.0)


def recorded(path, levels, rated, *, less=None, dtype=np.float64, zeros=0):
    """One step; products are clipped, or next to nothing beside ``less``; zeros of items unrated."""
    rng = np.random.default_rng(7)
    q, p = (rng.normal(0, 0.1 if less is None else 1e-4, (n, K)) for n in (ITEMS, USERS))
    table = np.where(rng.random((USERS, ITEMS)) < 0.5, rng.choice(rated, (USERS, ITEMS)), 0.0)
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q.astype(dtype))
        for user, ratings in enumerate(table):
            items = np.flatnonzero(ratings)
            products = q[items] @ p[user]
            predicted = np.clip(products, levels[0], levels[-1]) if less is None else products + less
            rows = 0.02 / items.size * (ratings[items] - predicted)[:, None] * p[user]
            rest = np.flatnonzero(ratings == 0)[:zeros]
            rows = np.concatenate([rows, np.zeros((rest.size, K))])
            recorder.upload(0, user, rows.astype(dtype), np.concatenate([items, rest]))
    return table


@pytest.mark.parametrize(
    ("levels", "dtype"),
    [
        (STARS, np.float32),
        pytest.param(STARS, np.float64, marks=pytest.mark.thorough),
        pytest.param(HALVES, np.float32, marks=pytest.mark.thorough),
    ],
)
def test_distances_are_read_but_of_the_lowest(tmp_path, levels, dtype):
    table = recorded(tmp_path / "t", levels, levels, dtype=dtype)
    found = fl.attack(tmp_path / "t", "undeclared")
    many, right = sizes(found, table)
    assert found.scope == Scope.SIZES
    assert right == many >= 0.9 * ((table > levels[0]).sum(axis=1) ** 2).sum()


@pytest.mark.parametrize(
    ("levels", "rated", "less"),
    [
        (STARS, STARS, 0.0),
        pytest.param(STARS, STARS[:-1], 0.0, marks=pytest.mark.thorough),
        pytest.param(STARS, STARS, 5.0, marks=pytest.mark.thorough),
    ],
    ids=[
        "ratings",
        "no five",
        "less the highest",
    ],
)
def test_other_numbers_are_not_taken_for_it(tmp_path, levels, rated, less):
    """Rows of zeros are of items that nobody rated; what is answered is right, as ratings or as distances."""
    table = recorded(tmp_path / "t", levels, rated, less=less, dtype=np.float32, zeros=5)
    found = fl.attack(tmp_path / "t", "undeclared")
    many, right = (sizes if found.scope == Scope.SIZES else answers)(found, table)
    assert right == many


def test_errors_of_both_signs_are_of_no_lowest_level(tmp_path):
    recorded(tmp_path / "t", STARS, STARS, less=3.0)
    assert read_saturated(fl.open_transcript(tmp_path / "t").view("server"), 0.0) is None
