"""The program from outside when things go wrong: signals, full disks, damaged files, two runs at once."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from audit.cli.output import show
from audit.shell.exits import Exit
from tests.tools.interruptions import interrupted
from victims.common.errors import InputError, OutputError
from victims.common.files import existing_file, refuse_unwritable, replacing

SMALL = "synthetic:users=25,items=30,ratings_per_user=8"
ONE = ["--data", SMALL, "--update", "semi-als", "--weighting", "observed-only", "--attack", "spectral"]


class TestSignals:
    @pytest.mark.parametrize(
        ("name", "sent", "after", "twice"),
        [
            ("audit", signal.SIGINT, 0.1, False),  # while it is being imported; before: -2
            # while something is compiled; before: -11 in 2 of 3
            pytest.param("spectral", signal.SIGINT, 5.0, True, marks=pytest.mark.thorough),
            # while workers start; before: both workers stayed
            pytest.param("sweep", signal.SIGTERM, 6.0, False, marks=pytest.mark.thorough),
        ],
    )
    def test_one_line_and_nothing_left(self, tmp_path, name, sent, after, twice):
        """The long form is ``python -m tests.tools.interruptions``."""
        trial = interrupted(name, {"out": str(tmp_path)}, sent, after, twice)
        assert trial.faults == ()
        assert not list(tmp_path.rglob("*.partial"))

    def test_workers_inherit_that_signals_are_blocked(self):
        """The tracker of shared resources, which starts with the first worker, unblocks them."""
        code = (
            "import signal\n"
            "from multiprocessing import resource_tracker\n"
            "from audit.shell import interrupts\n"
            "interrupts.watch()\n"
            "interrupts.leave_signals_to_this_process()\n"
            "resource_tracker.ensure_running()\n"
            "assert {signal.SIGINT, signal.SIGTERM} <= signal.pthread_sigmask(signal.SIG_BLOCK, ())\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

    def test_a_worker_whose_parent_ended_before_it_began_ends(self):
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        code = (
            "import time\n"
            "from audit.shell import interrupts\n"
            f"interrupts.in_worker({ended.pid})\n"
            "time.sleep(60)\n"
        )
        worker = subprocess.run([sys.executable, "-c", code], check=False, timeout=30)
        assert worker.returncode == Exit.TERMINATED


class TestDisk:
    """Errors of the operating system are one line with path, reason and remedy, and 74; before: 1 or 70."""

    @pytest.mark.parametrize(
        "words",
        [
            ["audit", *ONE, "--out"],
            ["sweep", "--data", SMALL, "--scales", "0", "--rounds", "1", "--out"],
            ["compare", "none", "--data", SMALL, "--out"],
            ["record", "--data", SMALL],
        ],
    )
    @pytest.mark.parametrize(
        ("place", "reason"),
        [("{file}/below", "not a directory"), ("{folder}/" + 300 * "x", "name too long"), ("/proc/x", "")],
    )
    def test_where_nothing_can_be_written(self, run, tmp_path, words, place, reason):
        (tmp_path / "file").touch()
        place = place.format(file=tmp_path / "file", folder=tmp_path)
        code, _, error = run(*words, place)
        assert code == Exit.UNWRITABLE
        assert len(error.splitlines()) == 1
        assert "cannot be written" in error
        assert reason in error
        assert len(error) < 320
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_stdout_is_full(self):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "audit", "list", "victims"],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert done.returncode == Exit.UNWRITABLE
        assert done.stderr.count(b"\n") == 1

    @pytest.mark.thorough
    def test_nobody_reads_on(self, tmp_path):
        """Before: the first table ended the run with 0, and no bar was judged."""
        read, write = os.pipe()
        os.close(read)
        words = ["audit", *ONE, "--out", str(tmp_path / "R"), "--fail-on", "leak"]
        done = subprocess.run(
            [sys.executable, "-m", "audit", *words], stdout=write, stderr=subprocess.PIPE, check=False
        )
        os.close(write)
        assert done.returncode == Exit.CROSSED

    def test_a_failed_write_leaves_the_old_file(self, tmp_path):
        path = tmp_path / "old"
        path.write_text("old")

        def half() -> None:
            with replacing(path) as partial_:
                partial_.write_text("ne")
                raise OSError(28, "No space left on device")

        with pytest.raises(OutputError, match="no space left on device; free some space"):
            half()
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_looking_leaves_nothing(self, tmp_path):
        refuse_unwritable(tmp_path / "a" / "b")
        assert list(tmp_path.iterdir()) == []

    def test_only_regular_files_are_read(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        for path, rule in (
            (tmp_path / "pipe", "pipe"),
            (tmp_path, "a directory"),
            (Path("/dev/zero"), "device"),
            (tmp_path / "none", "no such file"),
            (tmp_path / ("x" * 300), "name too long"),
            (Path("a\0b"), "null"),
        ):
            with pytest.raises(InputError, match=rule):
                existing_file(path)


class TestDamagedCells:
    def test_in_a_run(self, run, tmp_path):
        words = ["audit", *ONE, "--out", tmp_path / "R"]
        code, _, error = run(*words)
        assert code == 0, error
        before = json.loads((tmp_path / "R" / "results.json").read_text())
        (cell,) = (tmp_path / "R" / "cells").glob("*.json")
        cell.write_text("{}")
        code, _, error = run(*words)
        assert code == 0
        assert "a cell is computed again" in error
        after = json.loads((tmp_path / "R" / "results.json").read_text())
        for row in (*before, *after):
            row.pop("seconds")
        assert before == after


class TestText:
    @pytest.mark.parametrize(
        "name", ["y[/red]z", "y[red]z", "a\x1b[2Jb", "a\nfactorleak: done", "=1+1", "$\\frac$"]
    )
    def test_names_are_data(self, run, tmp_path, name):
        """Before: ``[/red]`` crashed after all the work, ``[red]`` was left out, escapes were obeyed."""
        code, out, error = run("audit", *ONE, "--out", tmp_path / name)
        assert code == 0, error
        assert "\x1b" not in out + error
        shown = name.replace("\x1b", "\\x1b").replace("\n", "\\n")
        assert f"{shown}/results.json" in out.replace("\\\\", "\\")

    def test_long_and_hostile_text(self, capsys):
        show("a\x1b]0;title\x07b\u202ec")
        assert capsys.readouterr().out == "a\\x1b]0;title\\x07b\\u202ec\n"
        error = InputError("file: " + "x" * 1_000_083 + "\nfactorleak: all is well; remedy")
        assert len(str(error)) <= 300
        assert "\n" not in str(error)
        assert str(error).endswith("remedy")


PAILLIER = ["--set", "factors=2", "--defense", "paillier:key_bits=1024"]


@pytest.mark.filterwarnings("ignore:1024-bit Paillier keys:UserWarning")
def test_truth_and_key_are_private(run, tmp_path):
    code, _, error = run("record", tmp_path / "t", "--data", SMALL, "--victim", "mf", *PAILLIER)
    assert code == 0, error
    for name in ("t.truth.arrow", "t.key.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
