"""Numbers taken off all ratings: who seems to be on the grid is contradicted by the others."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from tests.oracles.aligned import item_answers

LEVELS, ITEMS, K = np.arange(1.0, 6.0), 60, 5


def answers(
    path, learned, seed, *, levels=2, order="batch", mean=False, pull=0.0, dtype=np.float64, users=30
):
    """Answers of undeclared about one round of clients that use so many levels, wrong ones, and ratings."""
    rng = np.random.default_rng(seed)
    q, p = rng.normal(0, 0.4, (ITEMS, K)).astype(dtype).astype(float), rng.normal(0, 0.4, (users, K))
    table = np.zeros((users, ITEMS))
    with fl.Recorder(path, rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, q.astype(dtype))
        for user in range(users):
            items = rng.permutation(ITEMS)[: rng.integers(6, 20)]
            table[user, items] = rng.choice(rng.permutation(LEVELS)[:levels], items.size)
            rows, own = np.zeros((items.size, K)), p[user].copy()
            for place, item in enumerate(items):
                error = learned(table[user, item]) - q[item] @ own
                rows[place] = error * own
                own += 0.05 * error * q[item] * (order == "per-rating")
            rows = -2 * rows / (items.size if mean else 1) + pull * q[items]
            recorder.upload(0, user, rows.astype(dtype), items)
    found = fl.attack(path, "undeclared")
    user, item, value = item_answers(found, table, np.array(LEVELS))
    wrong = np.abs(value - table[user, item]) > 0.1
    return wrong.size, int(wrong.sum()), int((table > 0).sum())


WAYS = {
    "plain": {},
    "three levels": {"levels": 3},
    "mean, single precision": {"mean": True, "dtype": np.float32},
    "a step each": {"order": "per-rating"},
    "pull": {"pull": 0.1},
}


@pytest.mark.parametrize(
    ("learned", "way"),
    [
        (lambda stars: stars + 1, {"order": "per-rating"}),
        pytest.param(
            lambda stars: 2 * (stars - 2.5), {"levels": 3, "dtype": np.float16}, marks=pytest.mark.thorough
        ),
        pytest.param(lambda stars: 2 * (stars - 2.5), {"pull": 0.1}, marks=pytest.mark.thorough),
    ],
    ids=["r + 1, a step each", "2 (r - 2.5), three levels in half precision", "2 (r - 2.5), pull"],
)
def test_shifts_that_nobody_told_are_answered_for_nobody(tmp_path, learned, way):
    """Two levels less a number are on a multiple of the grid for many; most clients are not."""
    assert answers(tmp_path / "t", learned, 0, **way)[1] == 0


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_ratings_as_they_are_are_read_as_before(tmp_path, way):
    """Of two levels some are a multiple of others, which stays open without a scale."""
    told, wrong, there = answers(tmp_path / "t", lambda stars: stars, 0, **{"levels": 3} | way)
    assert not wrong
    assert told >= 0.85 * there


def test_rows_of_unrated_items_are_on_no_grid_and_contradict_nobody(tmp_path):
    """Clients with one rating and rows of all items are left open: their zeros are on no grid."""
    rng = np.random.default_rng(3)
    q, p = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.4, (8, K))
    table = np.zeros((8, ITEMS))
    with fl.Recorder(tmp_path / "t", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(p):
            items = rng.permutation(ITEMS)[: 1 if user % 2 else 10]
            table[user, items] = rng.choice(LEVELS, items.size)
            weight = np.where(table[user] > 0, 1.0, 0.3)
            recorder.upload(0, user, -((weight * (table[user] - q @ own)) / ITEMS)[:, None] * own)
    found = fl.attack(tmp_path / "t", "undeclared")
    told = np.concatenate([value - table[user, index] for user, _, index, value, _ in found.rows()])
    assert np.abs(told).max() < 0.1
    assert told.size >= 4 * ITEMS
    assert len(found.abstained) <= 4
