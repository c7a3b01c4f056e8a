"""The commands that compare defenses, rank and measure costs, from outside."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from audit.cli.main import app
from audit.experiments.results import rows_of
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
        words = ("papers", "quality", "--data", SMALL, "--rounds", 2, "--jobs", 1, "--scenario", "existing",
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
        words = ("papers", "cost", "--data", "synthetic:users=20,items=40", "--items", 40, "--key-bits", 1024,
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
        done = CliRunner().invoke(app, ["papers", "cost", "--items", "many"])
        assert isinstance(done.exception, InputError)
        assert "--items must be numbers" in str(done.exception)


class TestHowLong:
    def test_an_estimate_tries_one_cell_of_each_kind_and_stops(self, run, tmp_path):
        words = (
            "quality",
            "--data",
            SMALL,
            "--rounds",
            1,
            "--jobs",
            1,
            "--scenario",
            "existing",
            "--runs",
            3,
        )
        code, told, error = run(*words, "--out", tmp_path, "--estimate")
        assert code == 0, error
        assert "for 5 cells one after the other, from 1 that were timed" in told
        assert len(list((tmp_path / "cells").iterdir())) == 1

    def test_attacks_declare_what_an_audit_takes(self, run):
        code, told, _ = run("audit", "--data", SMALL, "--update", "sgd", "--estimate")
        assert code == 0
        assert "for 3 attacks on " in told
        assert "rows of 20 clients and 1,200 rows of 20 clients, within a factor of five" in told

    def test_figures_are_drawn_while_a_sweep_goes_on(self, run, tmp_path, monkeypatch):
        drawn = []
        monkeypatch.setattr("reports.figures.sweep_figures", lambda rows, *_: drawn.append(len(rows)) or [])
        monkeypatch.setattr("audit.cli.sweep.REDRAWN", -1.0)
        words = ("sweep", "--data", SMALL, "--victim", "mf", "--attack", "guess-majority", "--jobs", 1)
        code, _, error = run(*words, "--scales", "0,1", "--rounds", 1, "--users", 20, "--out", tmp_path)
        assert code == 0, error
        assert drawn == sorted(drawn)
        assert len(drawn) == 3  # after each of two cells, and at the end
