"""Rows that were clipped, each or by one bound of all."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.clipping.common_bound import NONE, bound_of, not_lowered, pile_up
from attacks.closed_form.uploads.readings import Reading, Rows, reading_of
from tests.oracles.rule_programs import Recording
from victims.transcript.recorder import Recorder


@pytest.mark.parametrize("bound", [0.3])
def test_rows_that_are_alike_were_not_clipped(tmp_path, bound):
    """Items that all start alike: as large as each other are the largest entries of rows of one rating.

    Before: clients were read as ones of which these were clipped, most of them turned round; and so were
    clients whose entries are.
    """
    rng = np.random.default_rng(0)
    q, table = np.full((60, 4), 0.01), np.zeros((10, 60))
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(1.0, 6.0)) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(table):
            items, p = rng.choice(60, rng.integers(8, 40), replace=False), rng.normal(0, 0.1, 4)
            own[items] = rng.choice(np.arange(1.0, 6.0), items.size, p=[0.05, 0.1, 0.25, 0.35, 0.25])
            rows = (own[items] - q[items] @ p)[:, None] * p
            recorder.upload(0, user, np.clip(rows, -bound, bound), items)
    for columns in fl.attack(tmp_path / "t", "undeclared").columns():
        np.testing.assert_allclose(columns["value"], table[columns["user"], columns["index"]], atol=0.1)


# Errors clipped to a bound that all clients share: what is at it is not taken for a smaller rating.


STARS = np.arange(1.0, 6.0)


def right_and_wrong(found: fl.Reconstruction, ratings: np.ndarray) -> tuple[int, int]:
    """Ratings in the first round that are right, and ones that are not."""
    user, item, value = (
        np.concatenate([c[name] for c in found.columns() if c["value"].size])
        for name in ("user", "index", "value")
    )
    off = np.abs(value - ratings[user, item])[np.isfinite(value)]
    return int((off < 0.25).sum()), int((off >= 0.25).sum())


def clipped_once(path, decimals: int, bound: float, seed: int = 0) -> np.ndarray:
    """One step of clients who clip their errors, rows rounded to so many decimals; returns the ratings."""
    rng = np.random.default_rng(seed)
    ratings = np.where(rng.random((16, 50)) < 0.25, rng.choice(STARS, (16, 50)), 0.0)
    q = rng.normal(0, 0.4, (50, 6))
    with Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(ratings):
            (items,) = np.nonzero(own)
            p = rng.normal(0, 0.4, 6)
            error = np.clip(own[items] - q[items] @ p, -bound, bound)
            recorder.upload(0, user, (-2 * error[:, None] * p).round(decimals), items)
    return ratings


def test_one_clipped_error_among_exact_ones_is_no_lower_rating(tmp_path):
    """A 5 that was clipped to 4 had been read as one, its client's steps being taken for one."""
    recording = Recording(
        "clipped-error-per-rating", factors=6, n_users=16, n_items=50, rate=0.0051979173659620495, scale=-2.0
    )
    ratings = recording.record(tmp_path / "t")
    right, wrong = right_and_wrong(fl.attack(tmp_path / "t", "undeclared"), ratings)
    assert wrong == 0
    assert right >= 150  # of 204; a rating of 4 that was clipped to 4, or is as far away, is open


def test_rounded_rows_at_the_bound_of_all_clients_are_left_open(tmp_path):
    ratings = clipped_once(tmp_path / "t", decimals=1, bound=4.0)
    right, wrong = right_and_wrong(fl.attack(tmp_path / "t", "undeclared"), ratings)
    assert wrong == 0  # one of 96 before
    assert right >= 0.45 * (ratings > 0).sum()


def exact_rows(r: np.ndarray, bound: float = np.inf) -> tuple[Rows, np.ndarray, np.ndarray]:
    """One step of one client with these ratings; its errors, clipped, and its factor."""
    rng = np.random.default_rng(2)
    p, q = rng.normal(size=4), 0.3 * rng.normal(size=(r.size, 4))
    error, all_ = np.clip(r - q @ p, -bound, bound), np.ones((1, r.size), bool)
    sent = (error[:, None] * p)[None]
    return Rows(sent, q[None], 0.0 * all_, all_, np.array([np.nan]), 2.0**-52, None), error, p


def test_errors_that_thin_out_pile_up_nowhere():
    rng = np.random.default_rng(0)
    errors = [np.abs(rng.choice(STARS, 12) - rng.normal(3, 0.5, 12)) for _ in range(40)]
    for around in (1e-6, 1e-3, 0.02, 0.1):
        assert pile_up(errors, np.full(40, around)) == NONE
    clipped = [np.minimum(own, 1.7) + rng.normal(0, 0.005, 12) for own in errors]
    assert pile_up(clipped, np.full(40, 0.015)) == pytest.approx(1.7, abs=0.01)


def read_with(rows: Rows, p: np.ndarray, r: np.ndarray) -> Reading:
    """The reading of a client whose numbers are known."""
    length = float(np.linalg.norm(p))
    return reading_of(r[None], 0.0, 0.25, steps=1.0, of_error=1 / length, of_factor=length)


@pytest.mark.parametrize(("less", "shown"), [(0.3, True), (1.2, False)])
def test_a_number_beyond_the_grid_less_a_level_says_that_nothing_is_taken_off(less, shown):
    """A clipped error and its prediction, 4.7 together, are no rating less one; 3.8 may be."""
    r = np.array([1.0, 2, 3, 4, 5, 4, 2, 1, 3])
    bound = float(exact_rows(r)[1][4]) - less
    rows, error, p = exact_rows(r, bound)
    known = np.where(error >= bound - 1e-9, np.nan, r)
    assert np.isnan(known[4])
    assert not_lowered(read_with(rows, p, known), rows, bound, STARS).tolist() == [shown]
    assert not not_lowered(read_with(rows, p, known), rows, NONE, STARS).any()


def test_one_client_shows_no_bound_of_all():
    assert pile_up([np.array([1.0, 2.0, 2.0, 2.0])], np.array([1e-6])) == NONE
    assert pile_up([np.array([1.0, 2.0, 2.0, 2.0]), np.array([1.5])], np.array([1e-6, 1e-6])) == NONE


def test_one_client_alone_shows_a_bound_of_rounded_errors():
    """Half precision, all others unread: a 4.5 that was clipped to 4 had been read as one."""
    rounded = np.array([0.5, 1.6, 3.1, 3.94, 3.97, 3.98, 4.0, 4.04])
    assert pile_up([rounded], np.array([0.05]), clients=1) == pytest.approx(3.98, abs=0.02)
    assert pile_up([rounded[:5]], np.array([0.05]), clients=1) == NONE


@pytest.mark.parametrize(("misfit", "open_"), [(0.01, True), (1e-12, False)])
def test_of_one_inexact_client_the_largest_error_may_be_the_bound(misfit, open_):
    """Two digits, all others unread: a 5 that was clipped to 4 had been read as one."""
    r = np.array([1.0, 2, 3, 4, 5, 4, 2, 1, 3])
    rows, error, p = exact_rows(r)
    read = read_with(rows, p, r)._replace(misfit=np.array([misfit]))
    unread = reading_of(r[None], np.inf, 0.25)
    assert bound_of([(read, rows)], STARS) == NONE
    found = bound_of([(read, rows), (unread, rows)], STARS)
    assert found == (pytest.approx(np.abs(error).max()) if open_ else NONE)


def test_programs_that_clip_nothing_lose_nothing(tmp_path):
    ratings = clipped_once(tmp_path / "t", decimals=3, bound=100.0)
    assert right_and_wrong(fl.attack(tmp_path / "t", "undeclared"), ratings) == ((ratings > 0).sum(), 0)
