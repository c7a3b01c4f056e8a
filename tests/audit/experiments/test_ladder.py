"""An audit that stops asking what is answered: which attacks it leaves out, and that no verdict differs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pandas as pd
import pytest

import factorleak as fl
from attacks.base import all_abstain
from audit.experiments.ladder import by_cost, not_needed
from audit.experiments.results import make_row

SMALL = "synthetic:users=14,items=30,ratings_per_user=8"
ORDER = {"LEAK": 3, "INCONCLUSIVE": 2, "NO EVIDENCE": 1, "NOT TESTED": 0}
READ = {"attack": "spectral", "value": 1.0, "ceiling": 1.0, "baseline": 0.3, "n_users": 9, "status": "ran"}


def read(metric, **values):
    return make_row(**({"verdict": "LEAK"} | READ | {"metric": metric} | values))


def all_read(**values):
    return [read(metric, **values) for metric in ("rating_accuracy", "rated_rating_accuracy")]


class TestNotNeeded:
    def test_where_ratings_are_read_nobody_else_is_asked_for_them(self):
        assert "spectral has read ratings" in not_needed("inversion", all_read())

    @pytest.mark.parametrize(
        "values",
        [
            {"value": 0.999},
            {"verdict": "INCONCLUSIVE"},  # too few clients
            {"verdict": "NO EVIDENCE", "value": 0.3, "ceiling": 0.3},  # noise hides everything
            {"n_users": 8},  # of 9 that a guess is scored on
            {"attack": "root-hybr"},  # of a sample
            {"attack": "guess-majority", "verdict": ""},
            {"attack": "peers"},  # of pseudonyms
            {"status": "failed"},
        ],
    )
    def test_but_they_are_where_anything_is_open(self, values):
        guess = all_read(attack="guess-majority", value=0.3, verdict="")
        assert not not_needed("inversion", [*guess, *all_read(**values)])

    def test_who_rated_every_item_has_no_area_under_a_curve(self):
        listed = [read("rated_set_auc", n_users=7), read("rated_set_f1")]
        assert not_needed("inversion", [*all_read(), *listed])

    def test_a_question_of_its_own_stays_open(self):
        assert not not_needed("traffic", all_read())
        assert not not_needed("guess-uniform", all_read())

    def test_attributes_that_are_there_are_asked_for(self):
        guess = read("attribute_accuracy", attack="guess-majority", value=0.3, verdict="")
        assert not not_needed("inversion", [guess, *all_read()])
        read_too = [read(name) for name in ("attribute_accuracy", "attribute_group_accuracy")]
        assert not_needed("inversion", [guess, *all_read(), *read_too])

    def test_what_a_guess_is_right_about_is_no_question(self):
        listed = read("rated_set_auc", attack="rated-set", verdict="INCONCLUSIVE", baseline=1.0)
        assert not_needed("inversion", [*all_read(), listed])

    def test_noise_has_a_ceiling_below_1(self):
        assert not_needed("inversion", all_read(ceiling=0.7, value=0.7))

    def test_without_truth_an_answer_for_all_that_is_as_good_as_certain(self):
        row = {"reason": "there is no truth to score against"}
        sure = read("claimed_probability", verdict="")
        assert not_needed("inversion", [read("clients_answered", **row), sure])
        assert not not_needed("inversion", [read("clients_answered", **row), sure | {"value": 0.9}])
        assert not not_needed("inversion", [read("clients_answered", **row | {"verdict": "INCONCLUSIVE"})])


def test_the_dearest_come_last_and_the_guess_first():
    order = by_cost(["inversion", "trajectory", "root-hybr", "spectral", "guess-majority", "grid"])
    assert order[:2] == ("guess-majority", "spectral")
    assert set(order[3:]) == {"inversion", "trajectory", "root-hybr"}


@dataclass(frozen=True)
class Slow:
    """An attack that never ends."""

    name: str = "never-ends"

    def attack(self, view, key, progress=None):
        begin = time.monotonic()
        while time.monotonic() < begin + 120:
            sum(range(1000))
        return all_abstain(self.name, view.users, "nothing", {})


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("ladder") / "fedmf"
    fl.record(path, SMALL, victim="fedmf", factors=4, rounds=[0, 1])
    return path


class TestWithin:
    def test_what_was_not_reached_is_not_tested_and_what_was_is_kept(self, recording, tmp_path):
        begin = time.monotonic()
        rows = fl.audit_recording(
            recording, attacks=["guess-majority", Slow(), "grid"], within=3, out=tmp_path, progress=False
        )
        assert time.monotonic() - begin < 60  # of the 240 that the attack takes
        late = rows[rows["attack"] == "never-ends"].iloc[0]
        assert (late["status"], late["verdict"], late["reason"]) == (
            "not reached",
            "NOT TESTED",
            "out of time",
        )
        assert set(rows[rows["attack"] == "guess-majority"]["status"]) == {"ran"}
        assert rows["attack"].dropna().tolist()[-1] == "grid"
        kept = [path.name for path in (tmp_path / "cells").glob("*")]
        assert any("guess-majority" in name for name in kept)
        assert not any("never-ends" in name for name in kept)

    def test_a_limit_is_a_time(self, run):
        code, _, said = run("audit", "--within", "soon")
        assert code == 2
        assert "--within must be a time above 0, as 60s, 5m or 1h, got 'soon'" in said


def strongest(rows):
    tested = rows[rows["verdict"].isin(list(ORDER)) & ~rows["metric"].str.contains("/")]
    keys = ["update", "weighting", "metric"]
    return {key: max(found["verdict"], key=ORDER.get) for key, found in tested.groupby(keys)}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("made", "truth"),
    [
        ({"victim": "fedmvmf", "weighting": "include-unrated", "factors": 3}, True),
        ({"victim": "fedmf", "factors": 4, "defenses": "laplace:scale=0.05"}, False),
    ],
    ids=["fedmvmf, scored", "fedmf under noise, without truth"],
)
def test_no_verdict_differs_from_that_of_all_attacks(made, truth, tmp_path):
    """Of every metric that an audit answers which leaves out what is not needed."""
    path = tmp_path / "recording"
    fl.record(path, SMALL, rounds=[0, 1], **made)
    if not truth:
        (tmp_path / "recording.truth.arrow").unlink()
    few, every = (
        fl.audit_recording(path, exhaustive=exhaustive, out=tmp_path / "out", sample=4, progress=False)
        for exhaustive in (False, True)
    )
    left_out = set(few[few["status"] == "not needed"]["attack"])
    if made["victim"] == "fedmf":
        assert ("trajectory" in left_out) == ("defenses" not in made)
    assert left_out <= set(every["attack"]) - set(every[every["status"] == "not needed"]["attack"])
    found = strongest(every)
    for key, verdict in strongest(few).items():
        if verdict != "NOT TESTED":
            assert found[key] == verdict, key


def test_a_bar_that_names_an_attack_lets_it_run(run, recording, tmp_path):
    bar = "rated_rating_accuracy.value>0.5@attack=grid"
    code, _, _ = run("audit", "--transcript", recording, "--attack", "spectral,grid", "--fail-on", bar)
    assert code == 1
    run("audit", "--transcript", recording, "--out", tmp_path)
    rows = pd.DataFrame(json.loads((tmp_path / "results.json").read_text()))
    assert set(rows[rows["attack"] == "grid"]["status"]) == {"not needed"}


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_whoever_is_stopped_shows_what_was_finished(recording, tmp_path):
    """Before: 667 s of work, and no table."""
    code = (
        "import sys, tests.audit.experiments.test_ladder as here\n"
        "from audit.registry import adopt\n"
        "adopt('attacks', here.Slow())\n"
        "from audit.cli.main import main\n"
        "from audit.shell.interrupts import watch\n"
        "watch()\n"
        f"sys.argv = ['factorleak', 'audit', '--transcript', {str(recording)!r}, '--out', {str(tmp_path)!r},"
        " '--attack', 'spectral', '--attack', 'never-ends']\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "spectral: LEAK of ratings 100.0 % (guess " in line:  # as it is found
            break
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped; what was finished:" in said
    assert "rated_rating_accuracy" in said
    assert "stopped; finished work is kept, repeat to go on" in errors
