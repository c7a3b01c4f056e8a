"""Ratings less a number that nobody told, which a factor puts on the grid: nobody is answered wrongly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl

HALVES = np.arange(1, 9) / 2  # as FilmTrust's
STARS = np.arange(1.0, 6.0)
WHOLE = {"rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all", "upload": "gradient"}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def upload_less(
    path: Path, levels: np.ndarray, ratings: list[np.ndarray], less: float, **public: dict
) -> None:
    """Record clients' rows of one step over all ratings."""
    rng = np.random.default_rng(0)
    q = rng.normal(0, 0.3, (60, 6))
    lists = [rng.permutation(60)[: own.size] for own in ratings]
    with fl.Recorder(path, rating_levels=levels, **public) as recorder:
        recorder.broadcast(0, q)
        for client, (items, own) in enumerate(zip(lists, ratings, strict=True)):
            p = rng.normal(0, 0.3, 6)
            rows = -((own - less - q[items] @ p)[:, None] * p)
            recorder.upload(0, client, rows, items)


@pytest.mark.parametrize(
    ("less", "answered"),
    [
        (0.0, 1),
    ],
)
def test_a_declared_scale_that_does_not_read_a_client_leaves_its_shift_open(tmp_path, less, answered):
    """{2.5, 3, 3.5, 4} less 2.25 are {0.5, 1.5, 2.5, 3.5} to the last digit, at half the declared scale."""
    ratings, scale = [np.array([2.5, 3, 3.5, 4])], {"upload_scale": -1.0}
    upload_less(tmp_path / "t", HALVES, ratings, less, constants=scale)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.users.size - len(found.abstained) == answered


@pytest.mark.parametrize("declared", ["include-unrated"])
def test_a_shift_is_as_open_where_rows_of_unrated_items_are_declared_and_none_are_sent(tmp_path, declared):
    """{2, 2.5, 3, 3.5} less 1.75 are {0.5, 1.5, 2.5, 3.5} to the last digit, at half the scale."""
    rng = np.random.default_rng(1)
    ratings = [np.append(rng.choice([2, 2.5, 3, 3.5], 10), [2, 2.5, 3, 3.5]) for _ in range(6)]
    upload_less(tmp_path / "t", HALVES, ratings, 1.75, weighting=declared)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.users.size == len(found.abstained)


@pytest.mark.thorough
def test_entries_that_look_clipped_leave_shifts_open(tmp_path):
    """Behind a sigmoid of short factors r / 5 is r - 2.5: {3, 4, 5} are {1, 3, 5}; rows: next factor."""
    rng = np.random.default_rng(112)
    q = rng.random((40, 16)) * 0.01
    with fl.Recorder(tmp_path / "t", rating_levels=STARS, rule={"reduction": "mean"} | WHOLE) as recorder:
        recorder.broadcast(0, q)
        for client in range(6):
            items = np.sort(rng.permutation(40)[: 7 + 3 * client])
            ratings = rng.choice(np.arange(3.0 if client % 2 else 2.0, 6.0), items.size)
            p = rng.random(16) * 0.01
            error = ratings / 5 - sigmoid(q[items] @ p)
            p += 0.1 / items.size * error @ q[items]
            own = rng.uniform(0.3, 3) / items.size  # the scale of its rows
            recorder.upload(0, client, -2 * own * error[:, None] * p, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.users.size == len(found.abstained)
