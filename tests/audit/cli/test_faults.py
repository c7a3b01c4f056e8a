"""What may end a run in the middle: nothing is lost, one clear line, and the next run goes on.

Each trial breaks a run when its first cell is there, and repeats the command; then results are those of a run
that nothing happened to. ``docs/how-to/stop-and-resume.md`` has the table.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from audit.shell.exits import Exit
from tests.tools.interruptions import PROGRESS

WORDS = ["papers", "quality", "--data", "synthetic:users=30,items=40", "--scenario", "existing",
         "--rounds", "9",
         "--runs", "4", "--defense", "none"]  # fmt: skip
CELLS = 8
Started = subprocess.Popen[str]


def start(out: Path, jobs: int, under: tuple[str, ...] = (), **more: object) -> Started:
    return subprocess.Popen(
        [*under, sys.executable, "-m", "audit", *WORDS, "--jobs", str(jobs), "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,  # type: ignore[call-overload]
    )


def end(process: Started) -> tuple[int, list[str]]:
    """Exit code, and lines of stderr without progress."""
    _, said = process.communicate(timeout=300)
    return process.returncode, [line for line in said.splitlines() if not PROGRESS.search(line)]


def cells(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}


def at_the_first_cell(process: Started, out: Path) -> None:
    while not cells(out) and process.poll() is None:
        time.sleep(0.01)


def rows(out: Path) -> list[dict]:
    found = json.loads((out / "results.json").read_text())
    return [{**row, "seconds": None} for row in found]


def worker_of(process: Started) -> psutil.Process:
    """One of its workers, which have joblib's module in their words."""
    below = psutil.Process(process.pid).children(recursive=True)
    return next(one for one in below if "popen_loky" in " ".join(one.cmdline()))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "Q"
    code, said = end(start(out, 1))
    assert (code, said) == (0, [])
    assert len(cells(out)) == CELLS
    return rows(out)


@pytest.mark.thorough  # whole programs
class TestFaults:
    @pytest.mark.parametrize(
        ("jobs", "act", "code", "line"),
        [
            (2, lambda one: os.kill(one.pid, signal.SIGKILL), -signal.SIGKILL, None),
            (1, lambda one: os.killpg(one.pid, signal.SIGINT), Exit.INTERRUPTED, "finished work is kept"),
        ],
        ids=["killed parent", "Ctrl-C"],
    )
    def test_ended(
        self, undisturbed, tmp_path, jobs: int, act: Callable[[Started], None], code: int, line: str | None
    ):
        process = start(tmp_path, jobs)
        at_the_first_cell(process, tmp_path)
        group = process.pid
        act(process)
        found, said = end(process)
        assert found == code
        assert [line in one for one in said] == [True] if line else said == []
        gone = time.monotonic() + 10
        while _alive(group) and time.monotonic() < gone:
            time.sleep(0.1)
        assert not _alive(group)  # workers end with it
        self.goes_on(tmp_path, undisturbed)

    def test_killed_worker(self, undisturbed, tmp_path):
        process = start(tmp_path, 2)
        at_the_first_cell(process, tmp_path)
        worker_of(process).kill()
        code, said = end(process)
        assert code == 0
        assert any("a process was killed" in line for line in said)
        assert rows(tmp_path) == undisturbed

    def test_full_disk(self, undisturbed, tmp_path):
        """A limit on the size of files, which cells fit in and the table of results does not."""
        limit = ("bash", "-c", 'ulimit -f 29 && exec "$@"', "bash")  # KiB
        settings = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false", "PYTHONDONTWRITEBYTECODE": "1"}
        code, said = end(start(tmp_path, 1, limit, env=settings))
        assert code == Exit.UNWRITABLE
        assert ["cannot be written: file too large" in line for line in said] == [True]
        self.goes_on(tmp_path, undisturbed)

    def test_output_that_cannot_be_written(self):
        """Told before anything runs, whoever asks."""
        code, said = end(start(Path("/proc/Q"), 1))
        assert code == Exit.UNWRITABLE
        assert len(said) == 1
        assert "cannot be written" in said[0]

    def test_two_runs(self, undisturbed, tmp_path):
        both = [start(tmp_path, 1), start(tmp_path, 2)]
        assert [end(process)[0] for process in both] == [0, 0]
        assert rows(tmp_path) == undisturbed
        assert len(cells(tmp_path)) == CELLS

    def goes_on(self, out: Path, undisturbed: list[dict]) -> None:
        kept = cells(out)
        assert 0 < len(kept) < CELLS
        code, said = end(start(out, 1))
        assert (code, said) == (0, [])
        assert {path: cells(out)[path] for path in kept} == kept
        assert rows(out) == undisturbed
        assert not list(out.rglob("*.partial"))


def _alive(group: int) -> list[int]:
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except OSError:
            continue
    return found
