"""Steps after every rating: one row tells where the next begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.chains import chain_readings
from attacks.closed_form.chains.chain_readings import MEAN_AND_BIAS, OWN_BIAS, PLAIN, any_reading, candidates
from attacks.closed_form.uploads.moving_factor import Chain
from attacks.closed_form.uploads.readings import Rows, reading_of
from tests.attacks.closed_form.test_centres import STARS, sizes
from tests.attacks.closed_form.test_links import answers
from tests.oracles.pass_programs import Passer, Passes
from tests.oracles.rule_programs import Recording
from tests.tools.identify import counted, random_recording
from victims.transcript.manifest import Manifest

# Means over minibatches, and biases of clients that move with their factors.


@pytest.mark.parametrize(
    "client",
    [
        Passer(0.02, 1, 4, mean=True, moves=False),
        Passer(0.02, 1, 1, own_bias=True, decay=0.2, moves=False),
        Passer(0.02, 1, 3, mean=True, own_bias=True, decay=0.2, moves=False),
    ],
    ids=["mean over minibatches", "own bias", "both"],
)
def test_what_no_two_numbers_read(client: Passer, tmp_path: Path):
    """Clients of 13 to 19 ratings, whose last minibatch is smaller: all are answered, and right."""
    program = Passes(client, factors=5, n_rated=(13, 19), scale=-2.0)
    ratings = program.record(tmp_path / "t")
    right, wrong = answers(tmp_path / "t", ratings)
    assert wrong == 0
    assert right >= 0.95 * (ratings > 0).sum()


def test_a_bias_that_nothing_shrinks_leaves_a_shift_open(tmp_path: Path):
    """Ratings one level higher, and the bias with them, make the same rows."""
    program = Passes(
        Passer(0.02, 1, 1, own_bias=True, moves=False), levels=tuple(range(1, 9)), n_rated=(6, 8)
    )
    ratings = np.where((table := program.record(tmp_path / "t")) > 0, table, 0)
    assert answers(tmp_path / "t", ratings)[1] == 0


def test_who_sent_nothing_in_a_round_ends_no_attack(tmp_path):
    """One client alone in its batch, and absent from the second of two rounds: the first one tells."""
    rng = np.random.default_rng(0)
    q, p, r = rng.normal(0, 0.4, (12, 3)), rng.normal(0, 0.4, (2, 3)), rng.integers(1, 6, (2, 12))
    with fl.Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5]) as recorder:
        for round_ in (0, 1):
            recorder.broadcast(round_, q)
            for user in (0, 1)[: 2 - round_]:
                rows = (r[user] - q @ p[user])[:, None] * p[user]
                recorder.upload(round_, user, rows, np.arange(12))
    view = fl.open_transcript(tmp_path / "t").view("server")
    alone = view.select(view.users[1:])
    assert len(fl.attack(alone, "grid").abstained) <= 1


def test_a_mean_of_a_smaller_last_minibatch_is_not_read_as_a_sum(tmp_path):
    """Minibatches of four and a last one of one rating, half stars in single precision: none is wrong."""
    program = Recording(
        "minibatch-mean", 5, rate=0.0195, levels=tuple(np.arange(0.5, 5.1, 0.5)), dtype=np.float32, seed=8
    )
    ratings = program.record(tmp_path / "t")
    answered, wrong = counted(fl.attack(tmp_path / "t", "undeclared"), ratings, program.levels)
    assert wrong == 0
    assert answered > 0.8 * (ratings > 0).sum()


def test_means_of_whole_and_smaller_minibatches_tell_their_size(tmp_path):
    """Nobody has a single minibatch: half stars, where half a rating is one."""
    program = replace(random_recording(118), rule="minibatch-mean", scale=0.01)
    ratings = program.record(tmp_path / "t")
    answered, wrong = counted(fl.attack(tmp_path / "t", "undeclared"), ratings, program.levels)
    assert wrong == 0
    assert answered > 0.9 * (ratings > 0).sum()


def test_clipped_errors_leave_the_others_and_a_bound(tmp_path):
    """One rating a step, errors clipped to 4 stars: what is told is right."""
    ratings = Recording("clipped-error-per-rating", n_users=8, seed=3).record(tmp_path / "t")
    answered, wrong = counted(fl.attack(tmp_path / "t", "undeclared"), ratings, (1.0, 2.0, 3.0, 4.0, 5.0))
    assert wrong == 0
    assert answered > 0.6 * (ratings > 0).sum()


@pytest.mark.parametrize("seed", [pytest.param(17, marks=pytest.mark.thorough), 83])
def test_a_single_clipped_row(seed, tmp_path):
    """Clipped at 4 in single precision, where the prediction is near 0: the row is near a wrong level."""
    recording = replace(random_recording(seed), rule="clipped-error-per-rating")
    ratings = recording.record(tmp_path / "t")
    told, wrong = counted(fl.attack(tmp_path / "t", "undeclared"), ratings, recording.levels)
    assert wrong == 0
    assert told >= 0.4 * (ratings > 0).sum()


def test_a_bias_alone_makes_no_two_levels():
    """Ten ratings of one level and one of another, whose predictions say nothing: any two levels fit."""
    g = np.full((1, 11), 2.0741e-4) + 1e-8 * np.arange(11)
    g[0, 4] = 1.9684e-4
    h = 0.015 * np.sin(np.arange(11.0))[None]
    step = (np.arange(11) == 4).astype(int)[None]
    one = np.ones(1)
    chain = Chain(g, h, step, np.array([2]), np.array([True]), 1.39707336 * one, one)
    there = np.ones((1, 11), bool)
    rows = Rows(
        np.zeros((1, 11, 4)), np.zeros((1, 11, 4)), np.zeros((1, 11)), there, np.nan * one, 2.0**-23, None
    )
    names = (OWN_BIAS, MEAN_AND_BIAS)
    found = [one for one in candidates(chain, rows, np.arange(0.5, 5.01, 0.5), 0.25) if one.name in names]
    assert len(found) == 2
    assert not any(one.read(np.array([0]))[0].answered.any() for one in found)


def test_a_row_that_tells_a_number_alone_is_not_answered():
    """Errors that are predictions, of ratings of 0 alone: one more step puts its only row on any level."""
    rng = np.random.default_rng(0)
    h = rng.normal(size=(1, 16))
    g = -0.4 * h
    g[0, 5] = 0.02
    step = (np.arange(16) == 5).astype(int)[None]
    one, there = np.ones(1), np.ones((1, 16), bool)
    chain = Chain(g, h, step, np.array([2]), np.array([True]), one, one)
    nothing = np.zeros((1, 16, 4))
    rows = Rows(nothing, nothing, there * 1.0, there, np.nan * one, 2.0**-23, None)
    found = {one.name: one for one in candidates(chain, rows, np.array([1.0, 2.0]), 0.25)}
    value = found[PLAIN].read(np.array([0]))[0].value[0]
    assert np.isnan(value[5])
    assert np.delete(value, 5) == pytest.approx(1)


@pytest.mark.parametrize("seed", [1, 4])
def test_what_means_explain_better_is_no_answer(tmp_path, seed):
    """Half of the ratings, whole in the last minibatch: nearly the rows of ten, ten and five as sums."""
    rng = np.random.default_rng(seed)
    q, u = rng.normal(0, 0.1, (40, 20)), rng.normal(0, 0.1, 20)
    items, ratings = rng.choice(40, 25, replace=False), rng.choice([2.0, 3, 4, 5], 25)
    rows = np.zeros((25, 20))
    for first in range(0, 25, 10):
        batch = slice(first, first + 10)
        error = ratings[batch] - q[items[batch]] @ u
        rows[batch] = -error[:, None] * u / error.size
        u = u + 0.05 * (error @ q[items[batch]]) / error.size
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(0.5, 5.01, 0.5)) as recorder:
        recorder.broadcast(0, q)
        recorder.upload(0, 0, rows.astype(np.float32), items)
    assert set(fl.attack(tmp_path / "t", "undeclared").abstained) == {0}


def test_what_means_explain_better_is_no_single_step_either(monkeypatch):
    """Half of whole stars, as one step nearly reads them: five exact steps of means leave them open."""
    rng, n, batch, halves = np.random.default_rng(0), 28, 6, tuple(np.arange(1, 11) / 2)
    v, u, r = rng.normal(0, 0.3, (n, 10)), rng.normal(0, 0.3, 10), rng.choice([3.0, 4.0, 5.0], n)
    sent = np.zeros((n, 10))
    for first in range(0, n, batch):
        here = slice(first, min(first + batch, n))
        error = (r[here] - v[here] @ u) / r[here].size
        sent[here] = -error[:, None] * u
        u = u + 0.02 * error @ v[here]
    one = np.ones(1)
    rows = Rows(sent[None], v[None], np.zeros((1, n)), np.ones((1, n), bool), one * np.nan, 2.0**-52, None)
    half = (r / 2 + rng.normal(0, 0.02, n))[None]
    nearly = reading_of(half, one * 0.15, one, steps=one, of_error=one, of_factor=one)
    monkeypatch.setattr(chain_readings, "best_reading", lambda *_: nearly)
    program = Manifest(
        format="factorleak-transcript", version=1, protocol="x", update="sgd", weighting="observed-only",
        n_users=1, n_items=n, n_attributes=0, factors=10, rounds=[0], rating_levels=halves,
    )  # fmt: skip
    assert not any_reading(rows, program, 0.25).answered.any()


# Programs that step factor and bias after every rating, and shrink neither.


USERS, ITEMS, K = 8, 40, 4


def recorded(path, *, item_biases, dtype=np.float64, batch=1, shrink=1.0, levels=STARS[:-1]):
    """One pass of clients with biases of their own who step after ``batch`` ratings."""
    rng = np.random.default_rng(9)
    q, b = rng.normal(0, 0.3, (ITEMS, K)), item_biases * rng.normal(0, 0.4, ITEMS)
    table = np.where(rng.random((USERS, ITEMS)) < 0.5, rng.choice(levels, (USERS, ITEMS)), 0.0)
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, q.astype(dtype), **({"biases": b.astype(dtype)} if item_biases else {}))
        for user, ratings in enumerate(table):
            items = rng.permutation(np.flatnonzero(ratings))
            p, c, rows = rng.normal(0, 0.3, K), rng.normal(0.5, 0.3), []
            for some in np.array_split(items, -(-items.size // batch)):
                error = ratings[some] - b[some] - c - q[some] @ p
                rows.append(error[:, None] * p)
                p, c = shrink * (p + 0.02 * error @ q[some]), shrink * (c + 0.02 * error.sum())
            recorder.upload(0, user, np.concatenate(rows).astype(dtype), items)
    return table


@pytest.mark.parametrize(
    ("item_biases", "dtype", "batch"),
    [
        (0, np.float64, 1),
        pytest.param(1, np.float64, 3, marks=pytest.mark.thorough),
        pytest.param(0, np.float64, 3, marks=pytest.mark.thorough),
    ],
)
def test_differences_are_read(tmp_path, item_biases, dtype, batch):
    """Nobody has the highest level: all may be a level higher; or mirrored, where items have no biases."""
    table = recorded(tmp_path / "t", item_biases=item_biases, dtype=dtype, batch=batch)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.scope == (Scope.DIFFERENCES if item_biases else Scope.SIZES)
    many, right = sizes(found, table)
    assert right == many >= 0.9 * ((table > 0).sum(axis=1) ** 2).sum()


def test_a_bias_that_shrinks_is_not_read_so(tmp_path):
    table = recorded(tmp_path / "t", item_biases=1, shrink=0.98, levels=STARS)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.scope == Scope.RATINGS_AND_ATTRIBUTES
    assert not found.abstained
    for user, _, items, value, _ in found.rows():
        np.testing.assert_allclose(value, table[user, items], atol=0.25)
