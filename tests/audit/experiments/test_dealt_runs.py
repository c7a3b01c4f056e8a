"""Attacks on dealt rows end where nothing they could say would change the verdict, or time is over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import factorleak as fl
from audit.experiments import attack_rows, permuted
from audit.experiments import rows as result_rows
from audit.experiments.answers import answered
from audit.keys import view_of
from audit.scoring.truth import read_truth
from victims.transcript.reader import open_transcript

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
    found = permuted.dealt_values(
        "grid",
        {},
        0,
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
    monkeypatch.setattr(permuted.time, "monotonic", lambda: float(next(clock)))
    found, _ = dealt(recording, 12)
    assert len(found.values) == 3
    assert found.n_unbeaten == 97
    assert "600 s" in found.words


def test_without_truth_answers_to_dealt_rows_end_it(recording, monkeypatch):
    """Where every dealing is answered, ten make the baseline and no more are made."""
    view = view_of(open_transcript(recording), "server")
    answer = answered("grid", {}, view, 0)
    monkeypatch.setattr(result_rows, "dealt_answers", lambda *_args: (answer for _ in range(100)))
    row = result_rows.claimed_rows({"attack": "grid"}, "grid", {}, 0, view, answer)[0]
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
    monkeypatch.setattr(result_rows, "dealt_answers", lambda *args: (others for _ in range(args[4])))
    row = result_rows.claimed_rows({"attack": "grid"}, "grid", {}, 0, view, few)[0]
    assert f"the test gives {row['p_value']:.2g}" in row["reason"]
    assert "sign test" not in row["reason"]


@pytest.mark.parametrize("with_truth", [True, False])
def test_seconds_of_a_row_hold_its_replicates(recording, monkeypatch, with_truth):
    """On a clock that stands still but while an attack runs, a second each time."""
    runs = []

    def ticking(*given):
        runs.append(given)
        return answered(*given)

    for module in (attack_rows, permuted):
        monkeypatch.setattr(module, "answered", ticking)
    monkeypatch.setattr(attack_rows.time, "perf_counter", lambda: float(len(runs)))
    truth = read_truth(recording.with_name("t.truth.arrow")) if with_truth else None
    attempt = attack_rows.Attempt("grid", "server")
    rows = attack_rows.rows_of(attempt, {}, open_transcript(recording), truth, lambda text: None)
    assert len(runs) > 100
    assert {row["seconds"] for row in rows} == {float(len(runs))}
