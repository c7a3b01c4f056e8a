"""The commands that compare defenses, rank and measure costs, from outside."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from audit.cli.main import app
from audit.requests.result_files import rows_of
from victims.common.errors import InputError

SMALL = "synthetic:users=20,items=30"


class TestCommands:
    @pytest.mark.thorough  # with all attacks; tests/contract/test_commands.py compares with guesses
    def test_compare(self, tmp_path):
        done = CliRunner().invoke(
            app,
            ["compare", "--out", str(tmp_path / "c"), "--data", SMALL, "--trained", "1",
             "--runs", "1", "--jobs", "1", "--defenses", "none", "privmvmf"],
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert "privmvmf" in done.output
        assert "leakage_against_quality.svg" in done.output

    def test_quality(self, run, tmp_path):
        """The same envelope and columns as of every command; the second run computes what is new alone."""
        words = ("quality", "--data", SMALL, "--rounds", 2, "--jobs", 1, "--scenario", "existing",
                 "--out", tmp_path, "--runs")  # fmt: skip
        code, told, error = run(*words, 1, "--json")
        assert code == 0, error
        first = json.loads(told)["rows"]
        kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
        assert len(kept) == 2
        code, told, error = run(*words, 2)
        assert code == 0, error
        assert "without encryption" in told
        assert {path: path.stat().st_mtime_ns for path in kept} == kept
        rows = rows_of(tmp_path / "results.json")
        assert len(rows) == 2 * 2 * (2 * 4 + 1)  # the error of ratings is of no reading
        (note,) = {row["reason"] for row in rows if row["metric"] == "rmse"}
        assert "worse than the training mean: it counts unrated items as zeros" in note
        assert f"note: fedmvmf, privmvmf: {note} (RMSE " in told
        named = [row for row in rows if row["metric"] == "ndcg_at_10"]
        assert {row["baseline_name"] for row in named} == {"popularity"}
        popular = [row["value"] for row in first if row["system"] == "popularity"]
        assert popular[0] == named[0]["baseline"]
        assert json.loads((tmp_path / "run.json").read_text())["rows"] == len(rows)

    def test_cost(self, run, tmp_path):
        """What this machine measured is not measured again."""
        words = ("cost", "--data", "synthetic:users=20,items=40", "--items", 40, "--key-bits", 1024,
                 "--sample", 4, "--set", "factors=8", "--out", tmp_path)  # fmt: skip
        code, told, error = run(*words)
        assert code == 0, error
        assert "34.39" in told
        rows = rows_of(tmp_path / "results.json")
        assert json.loads(run(*words, "--json")[1])["rows"][0]["slowest"] == rows[0]["value"]
        assert {row["defense"] for row in rows} == {
            "none", "phe:key_bits=1024", "paillier:key_bits=1024",
        }  # fmt: skip
        assert {"seconds_encryption", "bytes_sent", "slowest"} < {row["metric"] for row in rows}
        assert json.loads((tmp_path / "run.json").read_text())["rows"] == len(rows)

    def test_bad_numbers(self):
        done = CliRunner().invoke(app, ["cost", "--items", "many"])
        assert isinstance(done.exception, InputError)
        assert "--items must be numbers" in str(done.exception)
