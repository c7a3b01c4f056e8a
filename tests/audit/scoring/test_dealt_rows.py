"""Few clients held against their own rows, dealt out again and again."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from audit.scoring.dealt_rows import beaten_test, dealings_of
from audit.scoring.statistics import LEAK_LEVEL

STARS = np.arange(1.0, 6.0)


def recorded(path, n_clients: int, n_ratings: int, moved: bool = False):
    """A program without surprises, a part of whose rows are of somebody else's making."""
    rng = np.random.default_rng(2)
    q, p = rng.normal(0, 0.5, (30, 4)), rng.normal(0, 0.5, (n_clients, 4))
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, q)
        for user in range(n_clients):
            items = rng.choice(30, n_ratings, replace=False)
            stars = rng.permutation(np.resize(STARS, n_ratings))
            sent = rng.permutation(stars) if moved else stars
            recorder.upload(0, user, -(sent - q[items] @ p[user])[:, None] * p[user], items)
            recorder.truth(user, items, stars)
    rows = fl.audit_recording(path, attacks=["undeclared"])
    return rows.set_index("metric").loc["rated_rating_accuracy"]


@pytest.mark.parametrize("n_clients", [2, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_total_leak_of_next_to_nobody_is_one(tmp_path, n_clients):
    """24 ratings, and 12: neither a sign test nor one of single ratings tells."""
    row = recorded(tmp_path / "t", n_clients, 12)
    assert (row["value"], row["verdict"]) == (1, "LEAK")
    assert "dealt out" in row["reason"]


def test_ratings_that_are_somebody_elses_are_none(tmp_path):
    """The same rows, read without a doubt, and about other ratings than these clients have."""
    row = recorded(tmp_path / "t", 2, 12, moved=True)
    assert row["verdict"] != "LEAK"


def test_it_keeps_its_level():
    """Of rows that say nothing all dealings are alike: no more than one in a hundred is called a leak."""
    rng = np.random.default_rng(0)
    for n_users in (1, 2, 5):
        n = dealings_of(n_users, n_users, 100, LEAK_LEVEL)
        draws = rng.binomial(12, 0.3, (4000, n + 1, n_users)) / 12
        told = [beaten_test(one[0], one[1:]) < LEAK_LEVEL for one in draws]
        assert np.mean(told) < 0.013


def test_who_is_not_answered_is_not_read():
    dealt = np.full((10, 3), np.nan)
    assert beaten_test(np.full(3, np.nan), dealt) == 1
    assert beaten_test(np.array([1, 1, np.nan]), dealt) > beaten_test(np.ones(3), dealt)
