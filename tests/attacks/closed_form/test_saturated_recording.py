"""Programs that clip predictions to the grid, of small first factors: all are the lowest level."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from tests.attacks.closed_form.centres.test_centred_recording import HALVES, STARS, answers

USERS, ITEMS, K = 8, 40, 6


def recorded(path, levels, *, predicted=None, dtype=np.float64, zeros=0):
    """One step; predictions are one number, or products that are clipped; rows of zeros of items unrated."""
    rng = np.random.default_rng(7)
    q, p = (rng.normal(0, 0.1, (n, K)) for n in (ITEMS, USERS))
    table = np.where(rng.random((USERS, ITEMS)) < 0.5, rng.choice(levels, (USERS, ITEMS)), 0.0)
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q.astype(dtype))
        for user, ratings in enumerate(table):
            items = np.flatnonzero(ratings)
            products = np.clip(q[items] @ p[user], levels[0], levels[-1]) if predicted is None else predicted
            rows = 0.02 / items.size * (ratings[items] - products)[:, None] * p[user]
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
def test_ratings_are_read_but_the_lowest(tmp_path, levels, dtype):
    table = recorded(tmp_path / "t", levels, dtype=dtype)
    many, right = answers(fl.attack(tmp_path / "t", "undeclared"), table)
    assert right == many >= 0.9 * (table > levels[0]).sum()


@pytest.mark.parametrize(
    "predicted", [0.0, *(pytest.param(one, marks=pytest.mark.thorough) for one in (3.0, 12.0))]
)
def test_another_number_is_not_taken_for_it(tmp_path, predicted):
    """Ratings themselves, whose rows of zeros are of other items; errors of both signs; and far away."""
    table = recorded(tmp_path / "t", STARS, predicted=predicted, zeros=5)
    many, right = answers(fl.attack(tmp_path / "t", "undeclared"), table)
    assert right == many
