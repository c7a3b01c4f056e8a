"""Uploads that are weights, with and without decay, of which nothing is declared."""

from __future__ import annotations

import numpy as np
import pytest

from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

LEVELS = [1, 2, 3, 4, 5]
N_CLIENTS, N_ITEMS, K, RATE, DECAY = 9, 30, 4, 0.05, 0.01


def recorded(path, upload, *, dense=True, dtype=np.float64, decay=0.0, rule=(), constants=(), steps=1):
    """Clients who take a step with weight decay, and what each of them changed of the items it rated."""
    rng = np.random.default_rng(3)
    items = rng.normal(0, 0.5, (N_ITEMS, K)).astype(dtype)
    changes = []
    with Recorder(path, rating_levels=LEVELS, rule=dict(rule), constants=dict(constants)) as recorder:
        recorder.broadcast(0, items)
        for client in range(N_CLIENTS):
            rated = np.sort(rng.choice(N_ITEMS, rng.integers(4, 15), replace=False))
            ratings, factor = rng.choice(LEVELS, rated.size), rng.normal(0, 0.5, K)
            gradient = np.zeros((N_ITEMS, K))
            gradient[rated] = -2 * (ratings - items[rated] @ factor)[:, None] * factor
            gradient += decay * (1 + client % steps) * items
            copy = (items - RATE * gradient).astype(dtype)
            rows = {"weights": copy, "delta": copy - items, "gradient": gradient.astype(dtype)}[upload]
            times = 1 if upload == "gradient" else -RATE
            changes.append((rated, times * gradient[rated]))
            pull = decay * (1 + client % steps) * times
            changes[-1] = (rated, changes[-1][1] - pull * items[rated])
            if dense:
                recorder.upload(0, client, rows)
            else:
                recorder.upload(0, client, rows[rated], rated)
    return changes


def check(view, changes, atol):
    messages = view.messages
    index, sender, rows = messages.index[0], messages.sender[0], messages.gradient[0]
    for client, (rated, expected) in enumerate(changes):
        mine = sender == client
        order = np.argsort(index[mine])
        np.testing.assert_array_equal(index[mine][order], rated)
        np.testing.assert_allclose(rows[mine][order], expected, rtol=0, atol=atol)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-14), (np.float32, 5e-7)])
@pytest.mark.parametrize("declared", [{}, {"upload": "weights"}])
def test_weights_become_changes(tmp_path, dense, dtype, atol, declared):
    changes = recorded(tmp_path / "t", "weights", dense=dense, dtype=dtype, rule=declared)
    view = open_transcript(tmp_path / "t").view("server")
    assert view.manifest.rule.upload == "weights"
    check(view, changes, atol)


def test_gradients_stay_gradients(tmp_path):
    changes = recorded(tmp_path / "t", "gradient")
    view = open_transcript(tmp_path / "t").view("server")
    assert view.manifest.rule.upload is None
    check(view, changes, 0)


@pytest.mark.parametrize("upload", ["gradient", "delta", "weights"])
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-13), (np.float32, 2e-6)])
@pytest.mark.parametrize("steps", [1, 3])
def test_weight_decay_is_taken_off(tmp_path, upload, dtype, atol, steps):
    """A client that moves the others' items by a multiple of their factors tells that multiple."""
    changes = recorded(tmp_path / "t", upload, dtype=dtype, decay=DECAY, steps=steps)
    check(open_transcript(tmp_path / "t").view("server"), changes, atol)


def test_a_pull_that_is_public_is_left_to_the_attack(tmp_path):
    constants = {"upload_scale": -2.0, "upload_regularization": DECAY}
    recorded(tmp_path / "t", "gradient", decay=DECAY, constants=constants, rule={"upload": "gradient"})
    view = open_transcript(tmp_path / "t").view("server")
    items = view.broadcasts[0].factors
    plain = recorded(tmp_path / "u", "gradient", decay=DECAY)
    both = [(rated, rows + DECAY * items[rated]) for rated, rows in plain]
    check(view, both, 1e-15)


def test_nothing_is_taken_off_where_rows_do_not_move_alike(tmp_path):
    """Without decay, and with one factor, where every row is a multiple of its factor."""
    rng = np.random.default_rng(0)
    with Recorder(tmp_path / "t", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, rng.normal(size=(N_ITEMS, 1)))
        rows = rng.normal(size=(N_ITEMS, 1))
        recorder.upload(0, 0, rows)
    view = open_transcript(tmp_path / "t").view("server")
    np.testing.assert_array_equal(view.messages.gradient[0], rows)


def test_noise_around_weights_does_not_hide_what_they_are(tmp_path):
    """Nothing can be left out, and the rows are changes all the same."""
    rng = np.random.default_rng(1)
    items = rng.normal(0, 0.5, (N_ITEMS, K))
    noise = rng.normal(0, 0.05, (N_ITEMS, K))
    with Recorder(tmp_path / "t", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, items)
        recorder.upload(0, 0, items + noise)
    view = open_transcript(tmp_path / "t").view("server")
    np.testing.assert_allclose(view.messages.gradient[0], noise, atol=1e-15)


def test_a_row_alone_is_no_pull_where_all_factors_are_equal(tmp_path):
    """Every row is a multiple of its factor then, and the one in the middle was left out of each client's."""
    rng = np.random.default_rng(2)
    rows = np.repeat(rng.normal(size=(N_ITEMS, 1)), K, axis=1)
    rows[::3] = 0
    with Recorder(tmp_path / "t", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, np.full((N_ITEMS, K), 0.01))
        recorder.upload(0, 0, rows)
    view = open_transcript(tmp_path / "t").view("server")
    np.testing.assert_array_equal(view.messages.gradient[0], rows[rows.any(axis=1)])


def test_equal_ratings_are_no_pull_where_items_of_the_same_factor_have_none(tmp_path):
    """One step of a client for whom all items are alike: its rows of one rating are the same."""
    ratings = np.repeat([0.0, 3.0, 4.0, 5.0], [N_ITEMS - 15, 5, 5, 5])
    rows = np.repeat(ratings[:, None], K, axis=1)
    with Recorder(tmp_path / "t", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, np.full((N_ITEMS, K), 0.01))
        recorder.upload(0, 0, rows)
    view = open_transcript(tmp_path / "t").view("server")
    np.testing.assert_array_equal(view.messages.gradient[0], rows[ratings > 0])
