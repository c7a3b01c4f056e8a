"""TensorFlow Federated's reconstruction: a factor that stays, means over minibatches, a smaller last one."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.orders.whole_minibatches import whole_minibatch_views
from tests.attacks.closed_form.centres.test_centred_recording import HALVES, STARS, answers

ITEMS, K = 60, 6


def table_of(levels: np.ndarray, n_users: int = 16) -> np.ndarray:
    """Ratings (users, items), 0 where unrated: 3 to 40 of each client."""
    rng = np.random.default_rng(4)
    table = np.zeros((n_users, ITEMS))
    for user, n in enumerate(np.linspace(3, 40, n_users).astype(int)):
        table[user, rng.choice(ITEMS, n, replace=False)] = rng.choice(levels, n)
    return table


def recorded(path, table, levels, *, size=5, sent=np.float64, less=0.0, mean=True, lengths=0.0):
    """What items change by where clients' factors stay, in an order that nobody sees."""
    rng = np.random.default_rng(1)
    q = rng.normal(0, 0.3, (ITEMS, K)).astype(sent)
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q)
        for user, ratings in enumerate(table):
            p = rng.normal(0, 0.5, K)
            change = np.zeros((ITEMS, K))
            items = rng.permutation(np.flatnonzero(ratings))
            for begin in range(0, items.size, size):
                some = items[begin : begin + size]
                error = ratings[some] - less - q[some].astype(float) @ p
                share = 0.3 / (some.size if mean else 1) * np.exp(rng.normal(0, lengths, some.size))
                change[some] = (share * error)[:, None] * p
            recorder.upload(0, user, change.astype(sent))
    return path


@pytest.mark.thorough
def test_ratings_of_a_smaller_last_minibatch_are_read(tmp_path):
    """Next to all; six whole rows are too few of somebody."""
    table = table_of(STARS)
    told, right = answers(fl.attack(recorded(tmp_path / "t", table, STARS), "undeclared"), table)
    assert right == told >= 0.9 * (table > 0).sum()


@pytest.mark.parametrize(
    "program",
    [{"mean": False}, {"less": 0.3}, {"lengths": 0.1}, {"size": 100}],
    ids=["sums", "off the grid", "other weights", "whole means"],
)
def test_other_rows_are_left_as_they_are(tmp_path, program):
    path = recorded(tmp_path / "t", table_of(STARS), STARS, **program)
    assert not list(whole_minibatch_views(fl.open_transcript(path).view("server"), 0.0))


def sent_by(view: fl.View, n_users: int) -> np.ndarray:
    """What clients send, (users, items, K)."""
    out = np.zeros((n_users, ITEMS, K))
    for batch in view.batches():
        one = batch.rounds[0]
        valid = np.broadcast_to(one.valid, one.gradients.shape[:2])
        user, index = (
            np.broadcast_to(part, valid.shape)[valid] for part in (batch.users[:, None], one.index)
        )
        out[user, index] = one.gradients[valid]
    return out


@pytest.mark.parametrize(
    ("levels", "size", "sent"),
    [(STARS, 5, np.float64), (HALVES, 8, np.float32), (STARS, 16, np.float32), (HALVES, 3, np.float64)],
)
def test_rows_of_the_last_minibatch_get_the_scale_of_the_others(tmp_path, levels, size, sent):
    table = table_of(levels)
    path = recorded(tmp_path / "t", table, levels, size=size, sent=sent)
    (view,) = whole_minibatch_views(fl.open_transcript(path).view("server"), 0.0)
    sums = fl.open_transcript(recorded(tmp_path / "u", table, levels, mean=False)).view("server")
    plenty = (table > 0).sum(axis=1) >= size + 6  # fewer whole rows may tell nothing of the others
    ours, theirs = (sent_by(one, len(table))[plenty] for one in (view, sums))
    digits = 1e-6 if sent is np.float32 else 1e-13
    np.testing.assert_allclose(size * ours, theirs, rtol=1e-3 if sent is np.float32 else 1e-9, atol=digits)
