"""FedRec's hybrid filling: items that a client drew, with what its own model predicts of them."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.common_numbers import pulls_of
from attacks.closed_form.lists.predicted_items import views_without_predicted_items
from tests.attacks.closed_form.centres.test_centred_recording import HALVES, STARS, answers

ITEMS, K = 80, 6


def table_of(levels: np.ndarray) -> np.ndarray:
    """Ratings of ten people (users, items), 0 where unrated."""
    rng = np.random.default_rng(2)
    place = np.clip(np.rint(rng.normal(0.6, 0.2, (10, ITEMS)) * (levels.size - 1)), 0, levels.size - 1)
    rated = rng.random((10, ITEMS)) < np.linspace(0.1, 0.25, 10)[:, None]
    return np.where(rated, levels[place.astype(int)], 0)


def recorded(path, table, levels, *, times=2, sent=np.float64, learned=lambda r, rng: r):
    """One step over what is rated and twice as many others, with decay of the items."""
    rng = np.random.default_rng(1)
    q = rng.normal(0, 0.4, (ITEMS, K))
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q.astype(sent))
        for user, ratings in enumerate(table):
            p, own = rng.normal(0, 0.4, (2, K))
            rated = np.flatnonzero(ratings)
            drawn = rng.choice(np.flatnonzero(ratings == 0), times * rated.size, replace=False)
            items = rng.permutation(np.r_[rated, drawn])
            value = np.where(ratings > 0, learned(ratings, rng), 3 + q @ own)[items]
            v = q.astype(sent).astype(float)[items]
            recorder.upload(0, user, (0.01 * v - (value - v @ p)[:, None] * p).astype(sent), items)
    return path


def views(path) -> list[fl.View]:
    """Those of rated rows alone."""
    view = fl.open_transcript(path).view("server")
    return list(views_without_predicted_items(view, pulls_of(view)[0]))


@pytest.mark.parametrize(
    ("levels", "sent"), [(STARS, np.float32), (HALVES, np.float64)], ids=["stars", "halves"]
)
def test_rows_of_ratings_are_left(tmp_path, levels, sent):
    table = table_of(levels)
    (view,) = views(recorded(tmp_path / "t", table, levels, sent=sent))
    for batch in view.batches():
        one = batch.rounds[0]
        for at, user in enumerate(batch.users.tolist()):
            valid = np.broadcast_to(one.valid, one.gradients.shape[:2])[at]
            items = np.broadcast_to(one.index, one.gradients.shape[:2])[at][valid]
            assert sorted(items.tolist()) == np.flatnonzero(table[user]).tolist()
    assert view.users.size >= 7


def test_one_item_that_minibatches_are_filled_up_with_is_left_out(tmp_path):
    """Item 0 with a rating of 0, as often as a batch of 32 has room."""
    table, rng = table_of(STARS), np.random.default_rng(1)
    table[:, 0] = 0
    q = rng.normal(0, 0.4, (ITEMS, K))
    with fl.Recorder(tmp_path / "t", rating_levels=STARS) as recorder:
        recorder.broadcast(0, q)
        for user, ratings in enumerate(table):
            p, items = rng.normal(0, 0.4, K), np.flatnonzero(ratings)
            error = np.r_[-(32 - items.size) * q[0] @ p, ratings[items] - q[items] @ p] / 32
            recorder.upload(0, user, np.outer(error, p), np.r_[0, items])
    (view,) = views(tmp_path / "t")
    index = np.concatenate(view.messages.index)
    assert 0 not in index
    assert index.size >= 0.8 * (table > 0).sum()


@pytest.mark.thorough
def test_the_attack_reads_them(tmp_path):
    table = table_of(STARS)
    told, right = answers(fl.attack(recorded(tmp_path / "t", table, STARS), "undeclared"), table)
    assert right == told >= 0.85 * (table > 0).sum()


@pytest.mark.parametrize(
    "program",
    [
        {"times": 0},
        {"times": 0, "learned": lambda r, rng: r - 3.5},
        {"times": 0, "learned": lambda r, rng: (r - 0.5) / 2},
        {"times": 0, "learned": lambda r, rng: r - 2.5},
        {"times": 0, "learned": lambda r, rng: r**2 / 5},
        {"times": 0, "learned": lambda r, rng: r - rng.normal(0, 0.4, r.size)},
        {"learned": lambda r, rng: np.log(r + 1)},
        {"learned": lambda r, rng: 2 ** (r - 1)},
    ],
    ids=[
        "ratings",
        "less a number",
        "halved",
        "less the middle",
        "squares",
        "less numbers of items",
        "logarithms",
        "powers",
    ],
)
def test_other_numbers_are_left_as_they_are(tmp_path, program):
    assert not views(recorded(tmp_path / "t", table_of(STARS), STARS, **program))
