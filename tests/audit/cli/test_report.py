"""``factorleak report``: from result files to a page, and what it says of files that are none."""

from __future__ import annotations

import json

import jsonschema
import pytest

import factorleak as fl
from audit.experiments.results import finite
from tests.reports.page.test_page import leak

DATA = "synthetic:users=12,items=20,ratings_per_user=6"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    (folder / "results.json").write_text(json.dumps([finite(leak()), finite(leak("b"))]))
    return folder


def test_a_run_and_its_page(run, tmp_path):
    words = [
        "audit",
        "--data",
        DATA,
        "--update",
        "sgd",
        "--weighting",
        "observed-only",
        "--attack",
        "spectral",
    ]
    code, _, error = run(*words, "--rounds", "0,1", "--out", tmp_path / "R")
    assert code == 0, error
    made = json.loads((tmp_path / "R" / "run.json").read_text())
    jsonschema.validate(made, json.loads(_schema()))
    assert made["command"][:4] == ["factorleak", "audit", "--data", DATA]
    code, out, error = run("report", tmp_path / "R", "--title", "The shop")
    assert code == 0, error
    text = (tmp_path / "R" / "report.html").read_text()
    assert "<title>The shop</title>" in text
    assert f"factorleak audit --data {DATA}" in text
    assert "LEAK" in out


def _schema():
    from pathlib import Path

    from audit.experiments.results import RunRecord

    text = (Path(__file__).parents[3] / "docs" / "reference" / "run.schema.json").read_text()
    own = {**RunRecord.model_json_schema(), "$schema": "https://json-schema.org/draft/2020-12/schema"}
    assert json.loads(text) == own
    return text


def test_beside_or_elsewhere(run, results, tmp_path):
    code, out, _ = run("report", results / "results.json", "--out", tmp_path / "page", "--json")
    assert code == 0
    told = json.loads(out)
    assert [one["verdict"] for one in told["systems"]] == ["LEAK", "LEAK"]
    assert (tmp_path / "page" / "report.md").read_text().startswith("# What the traffic gives away")
    assert "not recorded (run.json" in (tmp_path / "page" / "report.html").read_text()
    assert fl.report(results, out=tmp_path / "face")[0].name == "report.html"


def test_a_damaged_run_record_is_said(run, results, tmp_path):
    folder = tmp_path / "R"
    folder.mkdir()
    (folder / "results.json").write_bytes((results / "results.json").read_bytes())
    (folder / "run.json").write_text('{"format": ["' + "x" * 50)
    assert run("report", folder)[0] == 0
    assert "not known (run.json is not as a command wrote it)" in (folder / "report.html").read_text()


GOOD = finite(leak())
BAD = {
    "empty list": ("[]", "one result row or more"),
    "no list": ("{}", "one result row or more"),
    "no json": ("[{", "must be JSON"),
    "a number": ("[1]", "must be an object"),
    "a column is missing": (
        json.dumps([{k: v for k, v in GOOD.items() if k != "verdict"}]),
        "lacks the column verdict",
    ),
    "text for a number": (json.dumps([GOOD | {"value": "high"}]), "value must be a finite number"),
    "a huge number": (json.dumps([GOOD | {"value": 10**400}]), "value must be a finite number"),
    "a number for text": (json.dumps([GOOD | {"attack": 3}]), "attack must be text"),
    "infinity": (json.dumps([GOOD | {"value": float("inf")}]), "value must be a finite number"),
    "deep": ("[" * 100_000, "must be JSON"),
    "a key twice": ('[{"a": 1, "a": 2}]', "given twice"),
    "bytes": (b"\xff\xfe\x00", "must be JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_results_is_refused(run, tmp_path, name):
    content, words = BAD[name]
    path = tmp_path / "results.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, _, error = run("report", tmp_path)
    assert code == 2
    assert words in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [path]


def test_what_no_attack_reads_is_a_fact(tmp_path):
    from audit.experiments.results import facts_of, write_run

    write_run(tmp_path, [], 1.0, 0, ["mlp.0.weight: 8 rows of 4 numbers", "\x1b[31m: 1 rows"])
    facts = dict(facts_of(tmp_path / "run.json"))
    assert facts["held and read by no attack"] == r"mlp.0.weight: 8 rows of 4 numbers; \x1b[31m: 1 rows"
