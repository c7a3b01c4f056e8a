"""Rows that are regularised and clipped one by one: their pull tells how much of each is left."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl

LEVELS, ITEMS, K, USERS = np.arange(1.0, 6.0), 50, 6, 10


def recorded(
    path,
    seed,
    *,
    clip=0.6,
    mean=False,
    dtype=np.float64,
    pull=0.05,
    learned=lambda stars: stars,
    levels=LEVELS,
):
    """Record one round of clients whose rows are clipped to a share of their median length."""
    rng = np.random.default_rng(seed)
    q = rng.normal(0, 0.4, (ITEMS, K)).astype(dtype).astype(float)
    p, table, sent = rng.normal(0, 0.6, (USERS, K)), np.zeros((USERS, ITEMS)), []
    for user, own in enumerate(p):
        items = rng.permutation(ITEMS)[: rng.integers(8, 25) if user else 4]
        table[user, items] = rng.choice(levels, items.size)
        error = learned(table[user, items]) - q[items] @ own
        sent.append((items, (pull * q[items] - error[:, None] * own) / (items.size if mean else 1)))
    bound = clip * np.median(np.concatenate([np.linalg.norm(rows, axis=1) for _, rows in sent]))
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q.astype(dtype))
        for user, (items, rows) in enumerate(sent):
            size = np.linalg.norm(rows, axis=1, keepdims=True)
            recorder.upload(0, user, (rows * np.minimum(1, bound / size)).astype(dtype), items)
    return table


@pytest.mark.parametrize(
    ("clip", "dtype", "mean"),
    [(0.4, np.float32, True), (1.0, np.float64, True), (1.0, np.float32, False)],
    ids=["nearly all rows, single, mean", "half of the rows, double, mean", "half of the rows, single, sum"],
)
def test_every_client_is_read_the_one_with_four_ratings_too(tmp_path, clip, dtype, mean):
    """The pull of few rows has the scale that the others' pulls tell."""
    table = recorded(tmp_path / "t", 1, clip=clip, dtype=dtype, mean=mean)
    found = fl.attack(tmp_path / "t", "undeclared")
    off = np.concatenate([np.abs(value - table[user, index]) for user, _, index, value, _ in found.rows()])
    assert off.max() < 0.1
    assert off.size == (table > 0).sum()


def test_ratings_less_a_number_are_read_where_the_grid_has_no_mirror_image(tmp_path):
    """A third number of each client, as of rows that are not clipped."""
    levels = np.array([1.0, 2, 3, 5, 10])
    table = recorded(tmp_path / "t", 4, learned=lambda stars: stars - 3.7, levels=levels)
    found = fl.attack(tmp_path / "t", "undeclared")
    off = np.concatenate([np.abs(value - table[user, index]) for user, _, index, value, _ in found.rows()])
    assert off.max() < 0.1
    assert off.size >= 0.9 * (table > 0).sum()


@pytest.mark.thorough
@pytest.mark.parametrize("pull", [0.0, 1e-17], ids=["none", "below the digits"])
def test_without_a_pull_clipped_rows_are_no_pulled_ones(tmp_path, pull):
    """Their planes hold the client's direction whatever it is."""
    table = recorded(tmp_path / "t", 2, pull=pull)
    found = fl.attack(tmp_path / "t", "undeclared")
    for user, _, index, value, _ in found.rows():
        assert (np.abs(value - table[user, index]) < 0.1).all()
    assert np.nan_to_num(found.diagnostics["pull"]).max() == 0


@pytest.mark.parametrize(
    "learned",
    [
        lambda stars: 2 * (stars - 2.5),
    ],
    ids=[
        "2 (r - 2.5)",
    ],
)
def test_other_numbers_than_ratings_are_answered_for_nobody(tmp_path, learned):
    """No multiple of these is on the grid."""
    table = recorded(tmp_path / "t", 3, learned=learned)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert all((np.abs(value - table[user, index]) < 0.1).all() for user, _, index, value, _ in found.rows())


@pytest.mark.thorough
def test_rows_that_are_exact_and_beside_the_grid_by_more_are_no_ratings(tmp_path):
    """An item with a pull of its own, of which a rating comes out that is off by a hundredth of a star."""
    rng = np.random.default_rng(5)
    q, own, stars = rng.normal(0, 0.4, (12, K)), rng.normal(0, 0.6, K), np.resize(LEVELS, 12)
    predicted, pull = q @ own, np.full(12, 0.05)
    pull[0] *= (stars[0] - predicted[0]) / (stars[0] + 2.01 - predicted[0])
    rows = pull[:, None] * q - (stars - predicted)[:, None] * own
    rows *= np.minimum(1, 0.8 / np.linalg.norm(rows, axis=1, keepdims=True))
    with fl.Recorder(tmp_path / "t", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, q)
        recorder.upload(0, 0, rows, np.arange(12))
    assert list(fl.attack(tmp_path / "t", "undeclared").abstained) == [0]


@pytest.mark.parametrize(
    "clip",
    [
        0.6,
    ],
    ids=[
        "most rows",
    ],
)
def test_exact_rows_of_items_with_pulls_of_their_own_are_off_the_grid(tmp_path, clip):
    """3.0 stars over one, two and three times a pull are near 3, 1.5 and 1, which are on a grid of halves."""
    rng = np.random.default_rng(23)
    q, times = rng.normal(0, 0.1, (ITEMS, K)).astype(np.float32), rng.integers(1, 4, ITEMS)
    own, items = rng.normal(0, 0.4, K), rng.permutation(ITEMS)[:12]
    rows = (3.0 - q[items] @ own)[:, None] * own - 0.1 * times[items, None] * q[items]
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(1, 11) / 2) as recorder:
        recorder.broadcast(0, q)
        sent = rows * np.minimum(1, clip * np.median(size) / size)
        recorder.upload(0, 0, sent.astype(np.float32), items)
    assert list(fl.attack(tmp_path / "t", "undeclared").abstained) == [0]
