"""The commands that compare defenses, rank and measure costs, from outside."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from audit.cli.main import app
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
