"""Whole stars of a grid of halves are read as such, where nobody tells what multiplies the rows."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.fit.coarser_grids import coarser_grids
from tests.attacks.closed_form.orders.test_hidden_orders import score

HALVES, WHOLE = np.arange(1, 11) / 2, np.arange(1.0, 6.0)


def averaging(path, table, rng):
    """Clients of Flower's usual app: one step on the mean of squared errors, and the new factors."""
    v = rng.normal(0, 0.5, (table.shape[1], 5))
    with fl.Recorder(path, rating_levels=HALVES, rule={"upload": "weights"}) as recorder:
        recorder.broadcast(0, v)
        for user, stars in enumerate(table):
            items, u = np.flatnonzero(stars), rng.normal(0, 0.5, 5)
            error = stars[items] - v[items] @ u
            recorder.upload(0, user, v[items] + 0.2 / items.size * error[:, None] * u, items)


@pytest.mark.parametrize(
    ("levels", "read"),
    [
        (HALVES, 1.0),
    ],
    ids=[
        "half stars",
    ],
)
def test_whole_stars_are_read(tmp_path, levels, read):
    """1, 1.5 and 2 alone, or 1 to 4: nothing says that ratings are not half as large, or twice."""
    rng = np.random.default_rng(2)
    table = np.where(rng.random((8, 60)) < 0.4, rng.choice(levels, (8, 60)), 0.0)
    averaging(tmp_path / "t", table, rng)
    found = fl.attack(tmp_path / "t", "undeclared")
    answers, right = score(found, table)
    assert right == answers == read * (table > 0).sum()
    assert found.options.get("levels") == (WHOLE.tolist() if levels is WHOLE else None)


def test_grids_that_are_multiples():
    assert [grid.tolist() for grid in coarser_grids(np.arange(1, 51) / 10)] == [
        [1.0, 2.0, 3.0, 4.0, 5.0],
        HALVES.tolist(),
        (np.arange(1, 26) / 5).tolist(),
    ]
    assert not coarser_grids(np.array([1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0]))  # not equally far apart
    assert not coarser_grids(np.arange(1.0, 4.1, 0.5))  # 1 is no step of the grid
    assert not coarser_grids(np.array([1.0]))
