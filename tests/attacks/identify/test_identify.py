"""Rules found from uploads: which, with what constants, and what of a declaration they contradict."""

from __future__ import annotations

import json

import pytest

import factorleak as fl
from tests.oracles.client_programs import Program
from tests.soak.declarations import declaration
from tests.soak.identify import EXPECTED, confusion


def test_a_confusion_table(tmp_path):
    """Five programs of each rule: nothing is told that is not so, and all but one known rule is named."""
    pairs = [(found, EXPECTED[program.rule]) for program, found in confusion(35, tmp_path)]
    assert all(found.items() <= expected.items() for found, expected in pairs)
    assert sum(found == expected for found, expected in pairs) >= 34


@pytest.mark.parametrize("rule", ["sgd", "sgd-mean", "semi-als"])
def test_constants(tmp_path, rule):
    program = Program(rule, rate=0.013, ridge=0.37, scale=-3.0, pull=0.05)
    program.record(tmp_path / "t")
    constants = fl.identify(tmp_path / "t").constants
    assert constants["upload_scale"] == pytest.approx(-3.0)
    assert constants["upload_regularization"] == pytest.approx(-0.15)
    assert constants["lambda_factors"] == pytest.approx(0.37, rel=1e-4)
    if rule != "semi-als":
        assert constants["client_learning_rate"] == pytest.approx(0.013, rel=1e-4)


@pytest.mark.parametrize("update", ["sgd", "semi-als"])
def test_constants_with_attributes(tmp_path, update):
    ratings = fl.synthetic(users=30, items=30, ratings_per_user=9)
    fl.record(
        tmp_path / "t", ratings, victim="fedmvmf", update=update, weighting="observed-only", rounds=[4, 5]
    )
    opened = fl.open_transcript(tmp_path / "t")
    found = fl.identify(opened)
    assert not found.contradictions(opened.manifest)
    for key in ("lambda_factors", "lambda_attributes", "client_learning_rate"):
        if key in opened.manifest.hyperparameters:
            assert found.constants[key] == pytest.approx(opened.manifest.hyperparameters[key], rel=1e-3)


@pytest.mark.parametrize("declared", ["semi-als", "sgd"])
def test_a_wrong_update_is_named_and_attacks_can_do_without_it(tmp_path, declared):
    """Declared as the other: the page, the audit and the table say so; under the found rule all are read."""
    ratings = fl.synthetic(users=40, items=30, ratings_per_user=8)
    truly = {"semi-als": "sgd", "sgd": "semi-als"}[declared]
    path = tmp_path / "t"
    fl.record(path, ratings, victim="fedmvmf", update=truly, weighting="observed-only", rounds=[4, 5], seed=1)
    content = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**content, "update": declared}))
    (wrong,) = fl.identify(path).contradictions(fl.open_transcript(path).manifest)
    assert str(wrong) == f"rule is declared {declared}, and the rows of 39 of 40 clients say {truly}"
    rule = {key.name: key for key in fl.check_transcript(path).rule}
    assert rule["rule"].source == f"contradicted by the uploads: {wrong}"
    under_it, as_declared = (
        fl.attack(path, "spectral", identified=identified) for identified in (True, False)
    )
    assert len(under_it.abstained) <= 1
    assert (len(as_declared.abstained) > 20) == (declared == "semi-als")  # sgd has a way without constants


def test_wrong_constants_are_named(tmp_path):
    program = Program("sgd", rate=0.02, ridge=0.1)
    declared = {"rule": {"rule": "sgd", "order": "per-rating", "reduction": "mean"}}
    declared["constants"] = {"upload_scale": 1.0, "client_learning_rate": 0.04, "lambda_factors": 0.1}
    program.record(tmp_path / "t", declared)
    manifest = fl.open_transcript(tmp_path / "t").manifest
    named = {one.key: one.found for one in fl.identify(tmp_path / "t").contradictions(manifest)}
    assert named == {
        "order": "batch",
        "reduction": "sum",
        "upload_scale": "-2",
        "client_learning_rate": "0.02",
    }


def test_where_nothing_can_be_told(tmp_path):
    ratings = fl.synthetic(users=8, items=12, ratings_per_user=5)
    path = tmp_path / "t"
    fl.record(path, ratings, victim="fedmvmf", weighting="include-unrated", rounds=[0])
    found = fl.identify(path)
    assert "weight of their own" in found.obstacle
    assert not found.rule
    view = fl.open_transcript(path).view("server")
    assert found.applied(view) is view
    Program("noise").record(tmp_path / "u")
    assert fl.identify(tmp_path / "u").obstacle.startswith("0 of 20 clients sent rows of one step")


def test_a_declared_step_that_moves_no_factor_is_contradicted(tmp_path):
    """Factors drawn anew each round, declared as kept and moved by one step; the same declaration of clients
    who do so is not contradicted."""
    told = {}
    for rule in ("fresh", "sgd"):
        program = Program(rule, rate=0.02)
        declared = declaration(program)
        declared["rule"]["start"] = "kept"
        program.record(tmp_path / rule, declared)
        view = fl.open_transcript(tmp_path / rule).view("server")
        told[rule] = [one.key for one in fl.identify(view).contradictions(view.manifest)]
    assert told == {"fresh": ["rule"], "sgd": []}
