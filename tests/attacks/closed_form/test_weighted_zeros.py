"""A program that sends a row for every item, unrated ones as zeros of some weight; nothing declared."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl

STARS = np.arange(1.0, 6.0)
USERS, ITEMS, K = 12, 60, 4


def recorded(path, alpha: float, scale: float, dtype=np.float64, noise: float = 0.0) -> np.ndarray:
    """One round of clients that solve for their factor; their ratings, 0 where unrated."""
    rng = np.random.default_rng(1)
    q = rng.normal(0, 0.4, (ITEMS, K)).astype(dtype)
    table = np.where(rng.random((USERS, ITEMS)) < 0.3, rng.choice(STARS, (USERS, ITEMS)), 0)
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, q)
        for user, ratings in enumerate(table):
            weight = np.where(ratings > 0, 1, alpha)
            p = np.linalg.solve(q.T @ (weight[:, None] * q) + np.eye(K), q.T @ (weight * ratings))
            rows = scale * (weight * (ratings - q @ p))[:, None] * p
            order = rng.permutation(ITEMS)
            recorder.upload(0, user, (rows + rng.normal(0, noise, rows.shape))[order].astype(dtype), order)
            recorder.truth(user, np.flatnonzero(ratings), ratings[ratings > 0])
    return table


@pytest.mark.parametrize(
    ("alpha", "scale", "dtype"), [(0.1, -2.0, np.float64), (1.0, 0.3, np.float64), (0.05, -1.0, np.float32)]
)
def test_lists_and_ratings_are_read(tmp_path, alpha, scale, dtype):
    """No weight, no scale: unrated rows share a line, and the others meet the grid."""
    table = recorded(tmp_path / "run", alpha, scale, dtype)
    found = fl.attack(tmp_path / "run", "undeclared")
    assert not found.abstained
    answers = 0
    for user, _, index, value, _ in found.rows():
        np.testing.assert_allclose(value, table[user, index], atol=0.05)
        answers += value.size
    assert answers >= 0.98 * USERS * ITEMS
    rows = fl.audit_recording(tmp_path / "run", attacks=["undeclared", "rated-set"])
    read = rows[rows["attack"] == "undeclared"].set_index("metric")
    assert read.loc["rated_set_f1", "verdict"] == read.loc["rated_rating_accuracy", "verdict"] == "LEAK"
    assert set(rows[rows["attack"] == "rated-set"]["verdict"]) == {"NOT TESTED"}


def test_noise_is_no_line(tmp_path):
    recorded(tmp_path / "run", 0.1, -2.0, noise=0.5)
    assert len(fl.attack(tmp_path / "run", "undeclared").abstained) == USERS
