"""Ratings of exact rows by the grid of levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.grid.exact_grid import labels_at
from attacks.closed_form.grid.grid_reading import read
from attacks.closed_form.grid.rating_grid import RowNumbers
from attacks.closed_form.uploads.readings import Numbers, Rows
from tests.attacks.closed_form.test_spectral import with_constants
from victims.transcript.manifest import Manifest

# Exact rows at lengths that are right, nearly right and wrong.


EXACT = np.full(1, 2.0**-52)


def _rows(ratings: np.ndarray, predicted: np.ndarray, weight: np.ndarray | float = 1.0) -> RowNumbers:
    """Of one client whose factor is 2 long."""
    here = np.ones((1, ratings.size), bool)
    return RowNumbers(2 * (weight * (ratings - predicted))[None], predicted[None] / 2, here, here)


@pytest.fixture
def drawn():
    rng = np.random.default_rng(3)
    return rng.integers(1, 6, 20).astype(float), rng.normal(3, 1, 20)


def test_a_length_that_lost_digits_is_believed_and_a_wrong_one_is_not(outside, drawn):
    """At 1.01 times the length all round to what they are; at 1.2 times some do not."""
    manifest = outside(weighting="observed-only")[1].view("server").manifest
    for stretched, off in ((1.0, False), (1.01, False), (1.2, True)):
        found = labels_at(manifest, _rows(*drawn), EXACT, np.array([2.0 * stretched]))
        assert (bool(found.exact[0]), bool(found.off[0])) == (True, off), stretched
    assert not labels_at(manifest, _rows(*drawn), np.full(1, 0.1), np.array([2.4])).off[0]  # not exact


@pytest.mark.parametrize(("times", "off"), [(1.0, False), (0.3, True)])
def test_a_wrong_weight_of_unrated_items_shows(outside, drawn, times, off):
    """A few of them meet a level by accident, and all the others meet nothing."""
    ratings, predicted = drawn
    ratings = np.where(np.arange(20) < 12, 0.0, ratings)
    view = with_constants(outside(weighting="include-unrated")[1], alpha=0.1)
    rows = _rows(ratings, predicted, np.where(ratings > 0, 1.0, 0.1 * times))
    assert bool(labels_at(view.manifest, rows, EXACT, np.array([2.0])).off[0]) == off


# Rows put on the rating grid, and what clipped rows say of numbers that do it.


N, K = 25, 4


@pytest.mark.parametrize("possible", [True, False])
def test_clipped_rows_leave_ratings_on_the_grid(possible):
    """An error is larger than what is sent of it: beyond 5 stars and farther up there is no rating."""
    rng = np.random.default_rng(0)
    along = rng.normal(0, 0.3, N)
    ratings = rng.integers(1, 6, N).astype(float)
    error = ratings - (1.0 if possible else 40.0) * along
    bound = np.sort(np.abs(error))[N // 2]
    if not possible:  # a client whose clipped rows are upside down
        along = np.where(np.abs(error) > bound, -along, along)
    scalar = np.clip(error, -bound, bound)
    one = np.ones((1, N), bool)
    none = np.zeros(1)
    numbers = Numbers(3 * scalar[None], along[None], one, one[:, 0], none + 1, none, none)
    empty = np.zeros((1, N, K))
    rows = Rows(empty, empty, np.zeros((1, N)), one, none + np.nan, 1e-16, None)
    manifest = Manifest(
        format="factorleak-transcript", version=1, protocol="other", update="sgd", weighting="observed-only",
        n_users=1, n_items=N, n_attributes=0, factors=K, rating_levels=[1.0, 2, 3, 4, 5], rounds=[0],
    )  # fmt: skip
    found = read(numbers, rows, manifest, 0.25)
    assert found.answered[0] == possible


# The grid attack under a scale of the rows that is not the declared one.


HALF_STARS = np.arange(1, 9) / 2
USERS, ITEMS, K_RATING_GRID, ROUNDS = 600, 60, 5, 4


def recorded(path: Path, scale: float) -> None:
    """Two ratings each, rows in double precision, four rounds; nothing declared."""
    rng = np.random.default_rng(2)
    p = rng.normal(0, 0.5, (USERS, K_RATING_GRID))
    lists = [rng.choice(ITEMS, 2, replace=False) for _ in range(USERS)]
    ratings = [rng.choice(HALF_STARS, 2) for _ in range(USERS)]
    with fl.Recorder(path, rating_levels=HALF_STARS) as recorder:
        for round_ in range(ROUNDS):
            q = rng.normal(0, 0.5, (ITEMS, K_RATING_GRID))
            recorder.broadcast(round_, q)
            for user, items in enumerate(lists):
                error = ratings[user] - q[items] @ p[user]
                recorder.upload(round_, user, scale * error[:, None] * p[user], items)
        for user, items in enumerate(lists):
            recorder.truth(user, items, ratings[user])


@pytest.mark.parametrize(("scale", "answered"), [(-1.0, 0), (1.0, USERS)])
def test_few_exact_rows_near_the_grid_by_accident_are_no_answer(tmp_path, scale, answered):
    """Under scale -1 some root puts two clients within 1e-4 steps of the grid: both were answered wrongly.

    Rows in double precision tell right ratings to far more digits.
    """
    recorded(tmp_path / "run", scale)
    found = fl.attack(tmp_path / "run", "grid")
    assert found.users.size - len(found.abstained) == pytest.approx(answered, abs=0.05 * answered)
