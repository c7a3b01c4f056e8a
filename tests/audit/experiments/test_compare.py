"""Defenses side by side: rows, resumption, reasons, costs, and the commands."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from audit.cli.main import app
from audit.experiments.compare import Comparison, run, standing_in
from audit.experiments.cost import Sheet, cost_of
from audit.experiments.cost import run as run_costs
from audit.registry import make_defenses
from reports.compare import (
    LEAKS,
    _leak,
    _leak_cell,
    _worst_cell,
    best,
    comparison_figure,
    comparison_table,
    worst,
)
from victims.common.errors import InputError
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF

SMALL = "synthetic:users=20,items=30"
DEFENSES = ("none", "unrated-sampling:rho=1", "privmvmf")


@pytest.fixture(scope="module")
def compared(ratings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    attacks = ("spectral", "aggregate", "rated-set")
    plan = Comparison(DEFENSES, attacks=attacks, rounds=(4, 5), trained=3, runs=2)
    return plan, folder, run(plan, ratings, folder, jobs=1)


def test_every_cell_is_a_row_with_its_reason(compared):
    plan, folder, rows = compared
    for defense in DEFENSES:
        part = [row for row in rows if row["defense"] == defense]
        for adversary in plan.adversaries:
            seen = {row["attack"] for row in part if row["adversary"] == adversary}
            assert seen, (defense, adversary)
        assert sum(row["metric"] == "ndcg_at_10" for row in part) == 2
        assert any(row["metric"] == "bytes_sent_mean" for row in part)
    assert not [row for row in rows if row["status"] == "failed"]
    assert all(row["reason"] for row in rows if row["status"] == "not applicable")
    assert json.loads((folder / "results.json").read_text())
    assert not list(folder.glob("leakage/*/transcripts"))


def test_what_leaks_to_whom(compared):
    _, _, rows = compared

    def advantage(defense, adversary, metric):
        part = [row for row in rows if row["defense"] == defense and row["adversary"] == adversary]
        found = best(part, metric)
        return None if found is None else found["advantage"]

    assert advantage("none", "server", "rated_rating_accuracy") == 1
    assert advantage("unrated-sampling:rho=1", "server", "rated_rating_accuracy") == 1
    assert advantage("privmvmf", "server", "rated_rating_accuracy") is None
    assert advantage("privmvmf", "server", "rated_set_auc") > 0.2
    assert advantage("privmvmf", "server+client", "rated_rating_accuracy") == 1
    assert advantage("privmvmf", "item-server", "rated_set_auc") is None


def test_own_uploads_are_no_leak(compared):
    _, _, rows = compared
    part = [row for row in rows if row["adversary"] == "decrypter" and row["attack"] == "spectral"]
    assert part
    (reason,) = {row["reason"] for row in part}
    assert "the adversary is a client and receives nobody else's uploads" in reason


def test_repeating_reads_the_cells(compared, ratings):
    plan, folder, rows = compared
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")}
    assert len(kept) == len(DEFENSES) * 4
    again = run(plan, ratings, folder, jobs=1)
    assert {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")} == kept
    assert len(again) == len(rows)


def test_what_nobody_answered_is_words_and_no_number(compared):
    """Before: PrivMVMF's server stood at advantage 0, as the winner, though it reads the rated set."""
    _, _, rows = compared
    part = [row for row in rows if row["defense"] == "privmvmf" and row["adversary"] == "server"]
    leaks = [_leak(part, metric) for metric in LEAKS]
    cells = [_leak_cell(leak) for leak in leaks]
    assert cells[0].startswith("NOT TESTED")
    assert "no sum of few enough contributors" in cells[0]
    assert cells[1].splitlines()[2:] == ["LEAK", "rated-set"]
    assert worst(leaks).kind == "rated set"
    assert "untested: ratings, attributes" in _worst_cell(leaks)
    nobody = [row for row in part if row["status"] != "ran"]
    assert _worst_cell([_leak(nobody, metric) for metric in LEAKS]) == "NOT TESTED"


def test_a_failure_is_no_safety(compared):
    _, _, rows = compared
    part = [row for row in rows if row["defense"] == "none" and row["adversary"] == "server"]
    failed = {**part[0], "status": "failed", "verdict": "NOT TESTED", "reason": "ArithmeticError: boom"}
    read = best(part, "rated_rating_accuracy")
    assert best([read, failed], "rated_rating_accuracy") is read  # a leak stands
    for others in ([], [{**read, "verdict": "NO EVIDENCE"}]):
        cell = _leak_cell(_leak([*others, failed], "rated_rating_accuracy"))
        assert cell == "NOT TESTED\nfailed: ArithmeticError: boom"


def test_table_and_figure(compared, tmp_path):
    _, _, rows = compared
    assert comparison_table(rows, "x").row_count >= 8
    written = comparison_figure(rows, tmp_path)
    assert {path.suffix for path in written} == {".svg", ".png"}
    first = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in comparison_figure(rows, tmp_path)] == first


def test_a_defense_that_does_not_apply_is_a_row(ratings, tmp_path):
    plan = Comparison(
        ("unrated-sampling:rho=1",), weighting="observed-only", attacks=("spectral",), trained=1, runs=1
    )
    rows = run(plan, ratings, tmp_path, jobs=1)
    assert {row["status"] for row in rows} <= {"not applicable", "failed"}
    assert all("weighting of fedmvmf must be include-unrated" in row["reason"] for row in rows)
    assert comparison_table(rows, "x").row_count >= 1
    comparison_figure(rows, tmp_path)


def test_names(ratings, tmp_path):
    assert standing_in("privmvmf") == "unrated-sampling:rho=1+paillier:ideal=true"
    assert (
        standing_in("laplace:b=2+paillier:key_bits=1024") == "laplace:b=2+paillier:key_bits=1024,ideal=true"
    )
    assert standing_in("none") == ""
    assert make_defenses("laplace:b=2")[0].scale == 2
    with pytest.raises(InputError, match="unknown defense"):
        run(Comparison(("lapace:b=2",)), ratings, tmp_path)
    with pytest.raises(InputError, match="must name at least one"):
        run(Comparison(()), ratings, tmp_path)


class TestCost:
    def test_counts_and_scaling(self, ratings):
        found = cost_of(FedMF(factors=40), ratings, make_defenses("paillier:key_bits=1024"), sample=8)
        counts = np.diff(ratings.indptr)
        parts = 3  # 40 numbers, 15 to a ciphertext
        assert found.ciphertexts == parts * counts.max()
        assert found.bytes_sent == parts * 256 * counts.max()
        np.testing.assert_allclose(found.bytes_sent_mean, parts * 256 * counts.mean())
        assert found.bytes_received == parts * 256 * ratings.n_items
        assert min(found.encryption, found.aggregation, found.decryption) > 0
        assert found.server_update == 0  # the server never decrypts

    def test_in_the_clear_and_sampled(self, ratings):
        sampled = cost_of(
            FedMVMF(weighting="include-unrated"), ratings, make_defenses("unrated-sampling:rho=1")
        )
        counts = np.minimum(2 * np.diff(ratings.indptr), ratings.n_items) + ratings.n_attributes
        assert sampled.bytes_sent == 48 * counts.max()
        assert sampled.encryption == sampled.decryption == sampled.ciphertexts == 0

    def test_phe_beside_it(self, ratings):
        sheet = Sheet(options={"factors": 20}, items=(20, 60), key_bits=(1024,), sample=16)
        rows = run_costs(sheet, ratings)
        assert [row["system"] for row in rows] == ["in the clear", "phe, 1024 bit", "packed, 1024 bit"] * 2
        assert rows[1]["ciphertexts"] == 10 * rows[2]["ciphertexts"]  # 20 numbers: 20 or 2

    def test_the_stand_in_has_no_cost(self, ratings):
        with pytest.raises(InputError, match="the cost of ideal encryption says nothing"):
            cost_of(FedMF(factors=4), ratings, make_defenses("paillier:ideal=true"))


class TestCommands:
    def test_compare(self, tmp_path):
        done = CliRunner().invoke(
            app,
            ["compare", "--out", str(tmp_path / "c"), "--data", SMALL, "--trained", "1",
             "--runs", "1", "--jobs", "1", "--defenses", "none", "privmvmf"],
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert "privmvmf" in done.output
        assert "leakage_against_quality.svg" in done.output

    def test_quality(self):
        done = CliRunner().invoke(
            app,
            ["quality", "--data", SMALL, "--rounds", "2", "--runs", "2", "--jobs", "1",
             "--scenario", "existing"],
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert "without encryption" in done.output

    def test_cost(self):
        done = CliRunner().invoke(
            app,
            ["cost", "--data", "synthetic:users=20,items=40", "--items", "40", "--key-bits", "1024",
             "--sample", "4", "--set", "factors=8"],
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert "34.39" in done.output

    def test_bad_numbers(self):
        done = CliRunner().invoke(app, ["cost", "--items", "many"])
        assert isinstance(done.exception, InputError)
        assert "--items must be numbers" in str(done.exception)
