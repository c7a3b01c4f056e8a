"""``transcript check`` and ``transcript schema``."""

from __future__ import annotations

import json

import numpy as np
import pytest

import factorleak as fl
from victims.transcript.recorder import Recorder

SILENT = ("likelihood", "root-lm")


@pytest.fixture
def weights(tmp_path):
    """Dense copies of the factors; the rule is not declared but for its order."""
    rng = np.random.default_rng(0)
    items = rng.normal(size=(6, 3))
    with Recorder(tmp_path / "run", rating_levels=[1, 2, 3], rule={"order": "batch"}) as recorder:
        recorder.broadcast(4, items)
        for client in range(3):
            copy = items.copy()
            copy[: client + 1] += 0.01 * rng.normal(size=3)
            recorder.upload(4, client, copy)
    return tmp_path / "run"


def test_it_says_what_a_recording_holds(run, weights):
    code, said, _ = run("transcript", "check", weights, "--json")
    assert code == 0
    content = json.loads(said)
    assert content["holds"]["the server sees"] == "6 rows of 3 clients"
    assert content["holds"]["rows of a client"] == "1 to 3, half of them 2 or less"
    assert content["holds"]["truth beside it"] == "no"
    rule = {key["name"]: key for key in content["rule"]}
    assert (rule["order"]["value"], rule["order"]["source"]) == ("batch", "declared")
    assert (rule["upload"]["value"], rule["upload"]["source"]) == ("weights", "found in the rows")
    assert "unknown" in rule["loss"]["source"]
    attacks = {one["attack"]: one for one in content["attacks"]}
    assert attacks["undeclared"]["applies"]
    assert attacks["aggregate"]["reason"] == "the adversary sees no decrypted sums"
    assert all("not declared" in attacks[name]["reason"] for name in SILENT)
    assert not any(name.startswith("guess") for name in attacks)


def test_the_table_is_for_people(run, weights):
    code, said, _ = run("transcript", "check", weights)
    assert code == 0
    assert "What run holds" in said
    assert "found in the rows" in said
    assert "no promise that it finds" in said


def test_the_uploads_need_not_be_asked(run, weights):
    code, said, _ = run("transcript", "check", weights, "--no-identify", "--json")
    content = json.loads(said)
    assert (code, content["identified"]["obstacle"]) == (0, "they were not asked")
    assert not any("found in the uploads" in key["source"] for key in content["rule"])
    asked = json.loads(run("transcript", "check", weights, "--json")[1])
    assert (content["holds"], content["attacks"]) == (asked["holds"], asked["attacks"])


def test_what_the_check_says_is_what_the_audit_finds(run, weights, tmp_path):
    told = {one.attack: one for one in fl.check_transcript(weights).attacks}
    rows = fl.audit_recording(weights)
    for attack, of_attack in rows.groupby("attack"):
        if not told[attack].applies:
            assert (of_attack["verdict"] == "NOT TESTED").all()
            assert of_attack["reason"].str.contains(told[attack].reason, regex=False).all()


def test_other_adversaries(run, tmp_path):
    path = tmp_path / "t"
    fl.record(path, fl.synthetic(users=12, items=20, ratings_per_user=6), victim="mf", factors=2)
    found = fl.check_transcript(path, adversary="client:3")
    assert found.adversary == "client:3"
    assert dict(found.facts)["the client:3 sees"].endswith("rows of 1 client")
    code, _, said = run("transcript", "check", path, "--adversary", "nobody")
    assert code == 2
    assert "adversary" in said


@pytest.mark.parametrize(("weighting", "rows"), [("include-unrated", "all"), ("observed-only", "rated")])
def test_whose_rows_are_there(tmp_path, weighting, rows):
    ratings = fl.synthetic(users=6, items=8, ratings_per_user=4)
    fl.record(tmp_path / "run", ratings, weighting=weighting, factors=2, rounds=[0])
    told = {key.name: key for key in fl.check_transcript(tmp_path / "run", identified=False).rule}
    assert told["rows"].value == rows
    assert ("every item" in told["rows"].source) == (rows == "all")


def test_a_broken_recording_is_refused_with_its_rule(run, weights):
    manifest = json.loads((weights / "manifest.json").read_text())
    (weights / "manifest.json").write_text(json.dumps(manifest | {"rounds": [3]}))
    code, said, error = run("transcript", "check", weights)
    assert (code, said) == (2, "")
    assert "state.arrow row 0: round" in error


def test_an_attack_of_another_package_may_say_nothing_beforehand(weights):
    found = fl.check_transcript(weights)
    assert repr(found).endswith(f"of {len(found.attacks)} attacks apply)")


@pytest.mark.parametrize("version", [1, 2])
def test_the_schema_is_printed(run, version):
    code, said, _ = run("transcript", "schema", "--version", version)
    assert code == 0
    assert json.loads(said)["properties"]["version"]["const"] == version


def test_values_are_written_as_in_the_file(tmp_path):
    with Recorder(
        tmp_path / "run", rating_levels=[1, 2], rule={"moves_items": True, "clip": "none"}
    ) as recorder:
        recorder.broadcast(0, np.ones((2, 2)))
        recorder.upload(0, "a", np.ones((1, 2)), [0])
    told = {key.name: key.value for key in fl.check_transcript(tmp_path / "run").rule}
    assert (told["moves_items"], told["clip"]) == ("true", "none")
