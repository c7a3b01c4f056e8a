"""Attacks of other packages change nothing of what others see; those on permuted rows end in time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Reconstruction
from attacks.metadata.guess import GuessMajority
from audit.experiments import answers, attack_cells
from audit.experiments import rows as result_rows
from audit.experiments.answers import SeededAttack, WrongAnswer, answered, answered_or_refused, lent
from audit.keys import view_of
from audit.plugins import said
from audit.registry import entries
from audit.scoring.truth import read_truth
from victims.common.errors import InputError
from victims.transcript.reader import open_transcript


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def written_to(view):
    """Everything that an attack may try to write into."""
    broadcast = view.broadcasts[int(view.rounds[0])]
    yield from (view.users, view.rounds, view.layout.order, broadcast.factors, broadcast.item_ids)
    yield from (view.messages.gradient[0], view.messages.index[0])


def test_no_array_can_be_written(small_view):
    for array in written_to(lent(small_view)):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_what_is_no_array_is_a_copy(small_view):
    mine = lent(small_view)
    before, rounds = small_view.manifest.model_dump(), sorted(small_view.broadcasts)
    mine.manifest.rating_levels.append(99.0)
    mine.manifest.hyperparameters["alpha"] = 2.0
    object.__setattr__(mine.manifest, "n_items", 10**9)
    mine.broadcasts.clear()
    assert small_view.manifest.model_dump() == before
    assert sorted(small_view.broadcasts) == rounds


def test_it_says_the_same(small_view):
    mine = lent(small_view)
    for one, other in zip(written_to(mine), written_to(small_view), strict=True):
        np.testing.assert_array_equal(one, other)
    batch, own = next(mine.batches()), next(small_view.batches())
    np.testing.assert_array_equal(batch.rounds[0].gradients, own.rounds[0].gradients)


@pytest.mark.parametrize("error", [GeneratorExit(), BaseException("over"), Unspeakable()])
def test_any_error_is_refused_in_words(small_view, monkeypatch, error):
    def attack(*_):
        raise error

    monkeypatch.setattr(GuessMajority, "attack", attack)
    theirs = replace(entries("attacks")["guess-majority"], package="theirs 0.1")
    monkeypatch.setattr("audit.experiments.answers.entry", lambda *_: theirs)
    with pytest.raises(InputError, match=f"failed: {type(error).__name__}.*part of theirs 0.1"):
        answered_or_refused("guess-majority", None, small_view, 0)


def test_an_error_without_words():
    assert said(Unspeakable()) == "Unspeakable"


@pytest.mark.parametrize(
    ("abstained", "options", "complaint"),
    [({0: None}, {}, "in words why it abstained on client 0"), ({}, {"a": "\ud800"}, "JSON in UTF-8")],
)
def test_words_that_no_file_can_hold(small_view, monkeypatch, abstained, options, complaint):
    found = Reconstruction("guess-majority", small_view.users, ())
    for name, value in (("abstained", abstained), ("options", options)):
        object.__setattr__(found, name, value)  # as without the checks of the test run
    monkeypatch.setattr(GuessMajority, "attack", lambda *_: found)
    with pytest.raises(WrongAnswer, match=complaint):
        answered("guess-majority", None, small_view, 0)


STARS = np.arange(1.0, 6.0)
METRIC = "rated_rating_accuracy"


@pytest.fixture
def recording(tmp_path):
    """One client whose twelve ratings can be read."""
    return recorded(tmp_path, 1)


def recorded(tmp_path, n_users):
    """Clients whose twelve ratings can be read."""
    rng = np.random.default_rng(2)
    q, stars = rng.normal(0, 0.5, (30, 4)), np.resize(STARS, 12)
    constants = {"upload_scale": -1.0, "upload_regularization": 0.0}
    with fl.Recorder(tmp_path / "t", rating_levels=STARS, constants=constants) as recorder:
        recorder.broadcast(0, q)
        for user in range(n_users):
            p, items = rng.normal(0, 0.5, 4), rng.choice(30, 12, replace=False)
            recorder.upload(0, user, -(stars - q[items] @ p)[:, None] * p, items)
            recorder.truth(user, items, stars)
    return tmp_path / "t"


def dealt(recording, n_right: int):
    """What was dealt, and what progress was told, where the first answers of a client are right, and of the
    others those in the middle of the grid.
    """
    transcript = open_transcript(recording)
    view, truth = view_of(transcript, "server"), read_truth(recording.with_name("t.truth.arrow"))
    answer = answered("grid", {}, view, 0)
    (block,) = answer.blocks
    wrong = np.arange(12) >= n_right
    blocks = (replace(block, value=np.where(wrong, 6 - block.value, block.value)),)
    told = []
    found = answers.permutation_replicates(
        SeededAttack("grid", {}, 0),
        view,
        replace(answer, blocks=blocks),
        transcript.manifest,
        truth,
        {METRIC: 1},
        100,
        lambda done, total: told.append((done, total)),
    )
    return found, told


def test_a_total_leak_is_held_against_all_dealings(recording):
    found, told = dealt(recording, 12)
    assert len(found.values) == 100
    assert not found.words
    assert told == [(n, 100) for n in range(101)]


def test_it_ends_with_the_first_dealing_that_is_as_good(recording):
    """Of one client all hundred have to be worse."""
    found, told = dealt(recording, 0)
    *worse, last = (one[METRIC][0] for one in found.values)
    assert last >= 2 / 12 > max(worse, default=0.0)
    assert told[-1] == (len(worse) + 1, 100)
    assert "could not have changed" in found.words


def test_time_ends_it(recording, monkeypatch):
    clock = iter(range(0, 100_000, 250))
    monkeypatch.setattr(answers.time, "monotonic", lambda: float(next(clock)))
    found, _ = dealt(recording, 12)
    assert len(found.values) == 3
    assert found.n_unbeaten == 97
    assert "600 s" in found.words


def test_without_truth_answers_to_dealt_rows_end_it(recording, monkeypatch):
    """Where every dealing is answered, ten make the baseline and no more are made."""
    view = view_of(open_transcript(recording), "server")
    answer = answered("grid", {}, view, 0)
    monkeypatch.setattr(result_rows, "permuted_answers", lambda *_args: (answer for _ in range(100)))
    row = result_rows.claimed_rows({"attack": "grid"}, SeededAttack("grid", {}, 0), view, answer)[0]
    assert row["verdict"] == "INCONCLUSIVE"
    assert row["baseline"] == 1
    assert "10 of 100 times" in row["reason"]


def test_without_truth_the_test_that_decides_is_the_one_that_is_named(tmp_path, monkeypatch):
    """Of twenty clients six are answered, and one other where their rows are dealt out."""
    view = view_of(open_transcript(recorded(tmp_path, 20)), "server")
    whole = answered("grid", {}, view, 0)
    few, others = (
        replace(whole, blocks=(), abstained=dict.fromkeys(whole.users[silent].tolist(), "made to abstain"))
        for silent in (np.arange(20) >= 6, np.arange(20) < 19)
    )
    monkeypatch.setattr(result_rows, "permuted_answers", lambda *args: (others for _ in range(args[2])))
    row = result_rows.claimed_rows({"attack": "grid"}, SeededAttack("grid", {}, 0), view, few)[0]
    assert f"the test gives {row['p_value']:.2g}" in row["reason"]
    assert "sign test" not in row["reason"]


@pytest.mark.parametrize("with_truth", [True, False])
def test_seconds_of_a_row_hold_its_replicates(recording, monkeypatch, with_truth):
    """On a clock that stands still but while an attack runs, a second each time."""
    runs = []

    def ticking(*given):
        runs.append(given)
        return answered(*given)

    monkeypatch.setattr(answers, "answered", ticking)
    monkeypatch.setattr(attack_cells.time, "perf_counter", lambda: float(len(runs)))
    truth = read_truth(recording.with_name("t.truth.arrow")) if with_truth else None
    attempt = attack_cells.Attempt("grid", "server")
    rows, _ = attack_cells.rows_of(attempt, open_transcript(recording), truth, lambda text: None)
    assert len(runs) > 100
    assert {row["seconds"] for row in rows} == {float(len(runs))}
