"""FedRec's user averaging: the mean of a client's ratings in rows of items that it drew."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl

STARS = np.arange(1.0, 6.0)
CLIENTS, ITEMS, K = 8, 60, 5


def record(path, dtype=np.float64, pull=0.0, drawn=12, mean=np.mean):
    """One step of clients with 12 ratings, ``mean`` of them for what they drew; returns what each rated."""
    rng = np.random.default_rng(4)
    v = rng.normal(0, 0.3, (ITEMS, K)).astype(dtype)
    lists = []
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, v)
        for client in range(CLIENTS):
            items, ratings = rng.permutation(ITEMS)[: 12 + drawn], np.tile([2.0, 4.0, 3.0], 4)
            while client and ratings.mean() % 1 == 0:  # the first client's mean is a level
                ratings = rng.choice(STARS, 12)
            filled = np.full(drawn, mean(ratings))
            p, y = rng.normal(0, 0.4, K), np.concatenate([ratings, filled])
            rows = -2 * (y - v[items] @ p)[:, None] * p + pull * v[items]
            order = np.argsort(items)
            recorder.upload(0, client, rows[order].astype(dtype), items[order])
            recorder.truth(client, items[:12], ratings)
            lists.append(dict(zip(items[:12].tolist(), ratings, strict=True)))
    return lists


def answers(path):
    """(client, item) to what is said of it."""
    out = {}
    for users, _, items, values, _ in fl.attack(path, "undeclared").rows():
        pairs = zip(zip(users.tolist(), items.tolist(), strict=True), values, strict=True)
        out |= {key: value for key, value in pairs if np.isfinite(value)}
    return out


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("pull", [0.0, 0.05])
def test_lists_and_ratings_are_told(dtype, pull, tmp_path):
    lists = record(tmp_path / "t", dtype, pull)
    told = answers(tmp_path / "t")
    for (client, item), value in told.items():
        assert value == pytest.approx(lists[client].get(item, 0.0), abs=1e-3)
    others = sum(client > 0 for client, _ in told)
    assert others >= 0.8 * (CLIENTS - 1) * 24
    # of the client whose mean is 3 nobody can tell a rating of 3 from an average
    assert all(round(value, 3) in (2, 4) for (client, _), value in told.items() if client == 0)


@pytest.mark.thorough
def test_another_number_than_the_mean_is_not_taken_off(tmp_path):
    """3.3 in all rows of no ratings: nothing says that it stands for none."""
    lists = record(tmp_path / "t", mean=lambda ratings: 3.3)
    assert all(value == lists[client].get(item) for (client, item), value in answers(tmp_path / "t").items())
