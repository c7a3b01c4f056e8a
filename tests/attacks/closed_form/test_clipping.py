"""Rows that were clipped, each or by one bound of all."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.clipping.bounded_rows import with_bounded
from attacks.closed_form.clipping.clipped_entries import reading_of_clipped_entries
from attacks.closed_form.clipping.clipped_samples import lower_edge, unclipped, whole_edge
from attacks.closed_form.clipping.common_bound import NONE, bound_of, not_lowered, pile_up
from attacks.closed_form.clipping.one_clipped import reading_of_one_clipped
from attacks.closed_form.last_readings import _unless_one_is_clipped
from attacks.closed_form.rows.off_grid import off_grid
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.readings import Reading, Rows, reading_of
from tests.attacks.closed_form.test_centres import sizes
from tests.oracles.gap_programs import GapProgram, all_of_it, by_sample, clipped_to, one_step
from tests.oracles.rule_programs import Recording
from victims.transcript.manifest import Manifest
from victims.transcript.recorder import Recorder

# Rows clipped entry by entry, or sample by sample, read by ``undeclared``: none wrongly.


def score(found: fl.Reconstruction, ratings: np.ndarray) -> tuple[int, int]:
    """Answers, and how many of them are right."""
    columns = list(found.columns())
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    told = np.isfinite(value)
    return int(told.sum()), int((np.abs(value - ratings[user, item]) < 0.25)[told].sum())


@pytest.mark.parametrize("dtype", [pytest.param(np.float64, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("bound", "least"), [(0.3, 0.95), (0.1, 0.6)])
def test_entries(tmp_path, bound, least, dtype):
    """The smaller bound leaves many rows nothing but their signs."""
    program = GapProgram(one_step, clipped_to, bound, factors=5, n_users=8, dtype=dtype)
    ratings = program.record(tmp_path / "t")
    answers, right = score(fl.attack(tmp_path / "t", "undeclared"), ratings)
    assert right == answers >= least * (ratings > 0).sum()


@pytest.mark.parametrize("dtype", [pytest.param(np.float64, marks=pytest.mark.thorough), np.float32])
def test_samples(tmp_path, dtype):
    program = GapProgram(by_sample(3.0), all_of_it, factors=5, n_users=8, dtype=dtype, levels=(1, 2, 3, 4, 5))
    ratings = program.record(tmp_path / "t")
    answers, right = score(fl.attack(tmp_path / "t", "undeclared"), ratings)
    assert right == answers >= 0.6 * (ratings > 0).sum()


@pytest.mark.parametrize(
    ("step", "sent"),
    [
        (by_sample(3.0), all_of_it),
    ],
)
def test_shuffled_rows_are_not_read(tmp_path, step, sent):
    GapProgram(step, sent, 0.2, factors=5, n_users=8).record(tmp_path / "t")
    view = fl.open_transcript(tmp_path / "t").view("server").shuffled(3)
    assert len(fl.attack(view, "undeclared").abstained) == view.users.size


@pytest.mark.thorough
def test_of_ratings_off_the_grid_the_sizes_of_differences_are_read(tmp_path):
    def centred(u, r, v):
        return one_step(u, r - 3.21, v)

    table = GapProgram(centred, clipped_to, 0.2, factors=5, n_users=8).record(tmp_path / "t")
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.scope == Scope.SIZES
    many, right = sizes(found, table)
    assert right == many > 0


def sample_clients(path, seed, bound, taken_off=0.0):
    """Twelve clients who clip samples, in single precision, every third with two levels."""
    rng, levels = np.random.default_rng(seed), np.arange(1.0, 6.0)
    v, ratings = rng.normal(0, 0.3, (80, 5)).astype(np.float32), np.zeros((12, 80))
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, v)
        for client in range(12):
            items = np.sort(rng.permutation(80)[: rng.integers(6, 26)])
            used = levels if client % 3 else rng.choice(levels, 2, replace=False)
            ratings[client, items], p = rng.choice(used, items.size), rng.normal(0, 0.5, 5)
            rows = -by_sample(bound)(p, ratings[client, items] - taken_off, v[items])
            recorder.upload(0, client, rows.astype(np.float32), items)
    return ratings


def off_by_themselves(path):
    """Who is off the grid by all rows, and by those that were not clipped."""
    view, levels = fl.open_transcript(path).view("server"), np.arange(1.0, 6.0)
    rows = [rows_of(view.manifest, batch.rounds[0], None, 0.0, 0.0) for batch in view.batches(BATCH_BYTES)]
    return tuple(
        np.concatenate([off_grid(one, levels) for one in part]) for part in (rows, map(unclipped, rows))
    )


def test_clients_who_clip_samples_are_judged_by_the_others(tmp_path):
    """What is off the grid without any row that was clipped is no rating."""
    sample_clients(tmp_path / "stars", 0, 3.0)
    whole, rest = off_by_themselves(tmp_path / "stars")
    assert whole.sum() >= 6
    assert not rest.any()
    sample_clients(tmp_path / "shifted", 0, 3.0, taken_off=3.21)
    assert off_by_themselves(tmp_path / "shifted")[1].sum() >= 3


def test_inexact_answers_beside_clipped_samples_are_left_out():
    """A single clipped row shows no line, and may be near a wrong level."""
    rows, three = clipped_client(1.0), (3, 30)
    best = reading_of(np.ones(three), np.array([1e-12, 0.03, 0.03]), 0.1, steps=np.array([1.0, 1, 2]))
    left = _unless_one_is_clipped(best, np.array([True, True, True]), rows)
    assert left.answered.tolist() == [True, False, True]


def test_what_is_on_the_lower_edge_is_left_out():
    q2 = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    scalar = np.array([0.1, 1.0, 0.1, 0.2, 1.0]) / np.sqrt(2 + q2)
    assert whole_edge(q2, scalar, 1e-12).tolist() == [False, True, False, False, True]


def clipped_client(bound: float) -> Rows:
    """Rows of one client."""
    rng = np.random.default_rng(1)
    p, v = rng.normal(0, 0.5, 4), rng.normal(0, 0.3, (30, 4))
    error = rng.integers(1, 6, 30) - v @ p
    sent, there = np.clip(error[:, None] * p, -bound, bound), np.ones((1, 30), bool)
    return Rows(sent[None], v[None], 0.0 * there, there, np.full(1, np.nan), 2.0**-52, None)


@pytest.mark.parametrize("sign", [1, -1])
def test_entries_at_the_bound_were_larger(sign):
    """One that was small, or of the other sign, is of another rule."""
    rows = clipped_client(1.0)
    manifest = Manifest(
        format="factorleak-transcript", version=1, protocol="strange", update="sgd",
        weighting="observed-only", n_users=1, n_items=30, n_attributes=0, factors=4, rounds=[0],
        rating_levels=[1, 2, 3, 4, 5],
    )  # fmt: skip
    small = np.unravel_index(np.abs(rows.rows).argmin(), rows.rows.shape)
    assert reading_of_clipped_entries(rows, manifest, 0.25).answered.all()
    rows.rows[small] = sign
    assert not reading_of_clipped_entries(rows, manifest, 0.25).answered.any()


def test_rows_with_a_bound_alone_are_answered_where_one_level_is_left():
    scalar, along = np.array([[1.0, 2.0, -1.0, 2.5, 2.5]]), np.array([[2.0, 1.0, 5.0, 2.0, 0.5]])
    value = np.array([[3.0, 3.0, 4.0, np.nan, np.nan]])
    best = reading_of(value, 0.0, 0.1)
    bounded = np.array([[False, False, False, True, True]])
    found = with_bounded(best, scalar, along, np.zeros((1, 5)), bounded, np.arange(1.0, 6))
    np.testing.assert_equal(found.value, [[3.0, 3.0, 4.0, 5.0, np.nan]])


def test_three_rows_on_a_line_are_an_accident():
    q2 = np.array([1.0, 2.0, 3.0, 4.0])
    scalar = np.array([1.0, 1.0, 1.0, 0.1]) / np.sqrt(2 + q2)
    assert not lower_edge(q2, scalar, 1e-12).any()


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


def test_who_clips_one_row_is_read_but_for_that(tmp_path):
    r = np.array([1.0, 2, 3, 4, 5, 4, 2, 1, 3])
    rows, error, _ = exact_rows(r, 0.9 * exact_rows(r)[1].max())
    clipped_once(tmp_path / "t", 1, 4.0)
    manifest = fl.open_transcript(tmp_path / "t").manifest
    found = reading_of_one_clipped(rows, manifest, 0.25)
    assert found.answered.all()
    assert np.flatnonzero(np.isnan(found.value[0])).tolist() == [error.argmax()]
    told = np.delete(found.value[0], error.argmax())
    np.testing.assert_allclose(told, np.delete(r, error.argmax()), atol=1e-6)


def test_rows_of_which_two_are_off_the_grid_are_not_read_by_leaving_one_out(tmp_path):
    rows, _, _ = exact_rows(np.array([1.0, 2, 3, 4, 5, 4.4, 2, 1.3, 3]))
    clipped_once(tmp_path / "t", 1, 4.0)
    assert not reading_of_one_clipped(rows, fl.open_transcript(tmp_path / "t").manifest, 0.25).answered.any()


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
