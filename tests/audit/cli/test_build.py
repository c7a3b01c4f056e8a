"""``--against``, ``--fail-on worse`` and ``--junit``, from the command line."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from audit.experiments.results import finite

WORDS = (
    "audit", "--data", "synthetic:users=20,items=30,ratings_per_user=8", "--victim", "mf", "--rounds", "0",
    "--set", "factors=3", "--attack", "grid", "--attack", "guess-majority", "--attack", "eq24-corrected",
)  # fmt: skip


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Results in which the attack read nothing, and one answer that is gone since."""
    from tests.reports.page.test_page import leak

    place = {"victim": "mf", "update": "sgd", "weighting": "observed-only", "data": WORDS[2], "rounds": 1.0}
    low = {"advantage": 0.0, "advantage_low": -0.02, "advantage_high": 0.02, "n_users": 20}
    rows = [leak(attack="grid", **place, **low), leak(attack="gone", **place)]
    path = tmp_path_factory.mktemp("earlier") / "results.json"
    path.write_text(json.dumps([finite(row) for row in rows]))
    return path


def test_worse_is_a_bar(run, tmp_path, earlier):
    words = (*WORDS, "--out", tmp_path / "R", "--against", earlier)
    code, out, error = run(*words, "--json")
    assert code == 0, error
    told = {
        one["attack"]: one["change"]
        for one in json.loads(out)["changes"]
        if one["metric"] == "rated_rating_accuracy"
    }
    assert told == {"grid": "worse", "gone": "no longer there"}
    code, out, error = run(*words, "--fail-on", "worse")
    assert code == 1
    assert "--fail-on worse is crossed: worse: rated_rating_accuracy by grid" in error
    assert "was not measured: no longer there" in error
    assert "family-wise level 0.05" in out


def test_against_itself_nothing_changed(run, tmp_path):
    words = (*WORDS, "--out", tmp_path / "R")
    assert run(*words)[0] == 0
    code, out, error = run(*words, "--against", tmp_path / "R", "--fail-on", "worse")
    assert code == 0, error
    assert "nothing changed beyond noise" in out


def test_junit(run, tmp_path):
    path = tmp_path / "audit.xml"
    code, _, _ = run(*WORDS, "--out", tmp_path / "R", "--junit", path, "--fail-on", "leak@attack=grid")
    assert code == 1
    suite = ElementTree.parse(path).getroot().find("testsuite")
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases["grid: rated_rating_accuracy"] == ["failure"]
    assert cases["eq24-corrected: rating_accuracy"] == ["skipped"]
    assert not any("guess" in name for name in cases)
    counted = {key: int(suite.get(key)) for key in ("tests", "failures", "skipped", "errors")}
    tags = [tag for tags in cases.values() for tag in tags]
    assert counted == {
        "tests": len(suite), "failures": tags.count("failure"), "skipped": tags.count("skipped"), "errors": 0,
    }  # fmt: skip


def test_what_cannot_be_compared_is_refused_before_anything_runs(run, tmp_path):
    code, _, error = run(*WORDS, "--out", tmp_path / "R", "--fail-on", "worse")
    assert code == 2
    assert "give them with --against" in error
    code, _, error = run(*WORDS, "--out", tmp_path / "R", "--against", tmp_path / "nowhere")
    assert code == 2
    assert not (tmp_path / "R").exists()


CAMPAIGN = """
format = "factorleak-campaign"
version = 1
title = "Two systems"

[grid]
adversaries = ["server", "item-server"]
attacks = ["grid", "rated-set"]
rounds = [[0]]
runs = 1
trained = 2

[[data]]
name = "small"
path = "synthetic:users=20,items=30,ratings_per_user=8"

[[victim]]
name = "mf"
defenses = ["none", "laplace:b=5"]
set = { factors = 3 }
"""


@pytest.mark.thorough
def test_a_campaign_goes_on_and_has_its_page(run, tmp_path):
    path, out = tmp_path / "campaign.toml", tmp_path / "C"
    path.write_text(CAMPAIGN)
    code, told, _ = run("compare", path, "--dry-run", "--json")
    assert code == 0
    assert json.loads(told) == {"cells": 6, "leakage": 2, "cost": 2, "quality": 2, "kept": 0}
    words = ("compare", path, "--out", out, "--jobs", 1)
    code, told, error = run(*words, "--fail-on", "leak@defense=none")
    assert code == 1, error
    assert "mf sgd/observed-only on small, without a defense: LEAK; the server reads ratings at 1.000" in told
    assert "<title>Two systems</title>" in (out / "report.html").read_text()
    first = json.loads((out / "results.json").read_text())
    assert {row["status"] for row in first} >= {"ran", "not applicable"}
    code, told, error = run(*words, "--against", out, "--fail-on", "worse")
    assert code == 0, error
    assert "6 cells (2 of leakage, 2 of cost, 2 of quality), 6 of them kept from before" in told
    assert json.loads((out / "results.json").read_text()) == first
    code, _, error = run("compare", path, "--victim", "fedmf")
    assert code == 2
    assert "--victim is said by the campaign file" in error
