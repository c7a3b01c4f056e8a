"""The program from outside when things go wrong: signals, full disks, damaged files, two runs at once."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from audit.cli.output import show
from audit.experiments.cells import (
    KilledError,
    claimed,
    in_processes,
    kept_rows,
    read_cell,
    remove_stale,
    write_cell,
)
from audit.experiments.results import make_row, write_results
from audit.shell.exits import Exit
from tests.soak.interruptions import PROGRESS, interrupted
from victims.common.errors import InputError, OutputError
from victims.common.files import existing_file, partial_name, refuse_unwritable, replacing

SMALL = "synthetic:users=25,items=30,ratings_per_user=8"
ONE = ["--data", SMALL, "--update", "semi-als", "--weighting", "observed-only", "--attack", "spectral"]


class TestSignals:
    @pytest.mark.parametrize(
        ("name", "sent", "after", "twice"),
        [
            ("audit", signal.SIGINT, 0.3, False),  # while it is being imported; before: -2
            ("spectral", signal.SIGINT, 5.0, True),  # while something is compiled; before: -11 in 2 of 3
            ("sweep", signal.SIGTERM, 6.0, False),  # while workers start; before: both workers stayed
        ],
    )
    def test_one_line_and_nothing_left(self, tmp_path, name, sent, after, twice):
        """The long form is ``python -m tests.soak.interruptions``."""
        trial = interrupted(name, {"out": str(tmp_path)}, sent, after, twice)
        assert trial.faults == ()
        assert not list(tmp_path.rglob("*.partial"))

    def test_a_worker_ends_with_its_parent(self, tmp_path):
        code = (
            "import os, time\n"
            "from functools import partial\n"
            "from audit.experiments.cells import in_processes\n"
            "from tests.audit.cli.test_shell import sleeping\n"
            f"list(in_processes(partial(sleeping, {str(tmp_path)!r}), [1, 2], 2))\n"
        )
        parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < limit:
            time.sleep(0.1)
        workers = [int(path.name) for path in tmp_path.iterdir()]
        assert len(workers) == 2
        parent.kill()
        parent.wait()
        while any(map(_runs, workers)) and time.monotonic() < limit:
            time.sleep(0.1)
        assert not any(map(_runs, workers))

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


def sleeping(folder: str, _: int) -> None:
    """Work that says who does it, and lasts."""
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)


def _runs(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def killing_itself(flags: Path, often: int, task: int) -> int:
    """Work whose process is killed while it does task 1, some times."""
    tries = len(list(flags.iterdir()))
    if task == 1 and tries < often:
        Path(flags, str(tries)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 10 * task


class TestKilledWorkers:
    def test_what_it_worked_on_is_tried_again(self, tmp_path, capsys):
        found = dict(in_processes(partial(killing_itself, tmp_path, 1), [0, 1, 2, 3], 2))
        assert found == {0: 0, 1: 10, 2: 20, 3: 30}
        assert "a process was killed" in capsys.readouterr().err

    def test_the_second_time_it_is_an_answer(self, tmp_path):
        found = dict(in_processes(partial(killing_itself, tmp_path, 9), [0, 1, 2, 3], 2))
        assert isinstance(found.pop(1), KilledError)
        assert found == {0: 0, 2: 20, 3: 30}


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

    @pytest.mark.parametrize("command", ["audit", "record", "sweep"])
    def test_a_disk_that_fills(self, tmp_path, command):
        """A limit on the size of files stands for the end of a disk; nothing half-written is left."""
        out = tmp_path / "out"
        words = {
            "audit": ["audit", *ONE, "--out", out / "R"],
            "record": ["record", out / "t", "--data", SMALL],
            "sweep": ["sweep", "--data", SMALL, "--update", "sgd", "--weighting", "observed-only",
                      "--attacks", "spectral", "--scales", "0,1", "--rounds", "1", "--jobs", "2",
                      "--out", out / "S"],
        }[command]  # fmt: skip
        limited = ["bash", "-c", 'ulimit -f 20; exec "$@"', "-", sys.executable, "-m", "audit"]
        # the compiled programs of the other tests stay whole
        settings = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs")}
        done = subprocess.run(
            [*limited, *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            env=settings,
        )
        assert done.returncode == Exit.UNWRITABLE, done.stderr
        (said,) = [line for line in done.stderr.splitlines() if not PROGRESS.search(line)]
        assert "cannot be written: file too large" in said
        kept = (".lock", ".json")  # settings and finished cells
        assert [path for path in out.rglob("*") if path.is_file() and path.suffix not in kept] == []

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


class TestCells:
    ROW = make_row(victim="mf", metric="rating_accuracy", value=0.5, status="ran")

    def test_round_trip(self, tmp_path):
        write_cell(tmp_path / "c.json", [self.ROW])
        (row,) = read_cell(tmp_path / "c.json")
        assert row["value"] == 0.5

    @pytest.mark.parametrize(
        "content",
        [b"null", b"[1]", b'"x"', b"{}", b"", b"\xff\xfe", b"[" * 100_000, b'{"format":"factorleak-cell-1"}'],
    )
    def test_a_damaged_one_is_computed_again_and_said(self, tmp_path, capsys, content):
        """Before: a traceback, or silently a cell without rows."""
        path = tmp_path / "c.json"
        path.write_bytes(content)
        assert kept_rows(path) is None
        said = capsys.readouterr().err
        assert said.startswith("factorleak: note: a cell is computed again")
        assert said.count("\n") == 1

    @pytest.mark.parametrize(
        "change",
        [
            lambda c: c["rows"][0].update(value=0.9),
            lambda c: c.update(rows=[]),
            lambda c: c["rows"][0].pop("seed"),
        ],
    )
    def test_a_changed_one_as_well(self, tmp_path, change):
        path = tmp_path / "c.json"
        write_cell(path, [self.ROW])
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        assert kept_rows(path) is None

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

    def test_stale_files_go(self, tmp_path):
        ended = subprocess.Popen(["true"])
        ended.wait()
        mine = partial_name(tmp_path / "c.json")
        gone = mine.with_name(mine.name.replace(f"-{os.getpid()}-", f"-{ended.pid}-"))
        elsewhere = tmp_path / f".c.json.0-{ended.pid}-0.partial"
        for path in (mine, gone, elsewhere):
            path.touch()
        remove_stale(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {mine.name, elsewhere.name}


class TestTwoRuns:
    """Before: of two audits into one directory one failed, of two sweeps both, and nothing was written."""

    @pytest.mark.parametrize(
        "words",
        [
            ["audit", "--data", SMALL, "--weighting", "observed-only", "--attack", "spectral"],
            ["sweep", "--data", SMALL, "--update", "semi-als", "--weighting", "observed-only", "--attacks",
             "spectral", "--scales", "0,1", "--rounds", "2", "--jobs", "2"],
        ],
    )  # fmt: skip
    def test_both_end_as_one_alone(self, run, tmp_path, words):
        start = partial(subprocess.Popen, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        both = [start([sys.executable, "-m", "audit", *words, "--out", str(tmp_path / "both")]) for _ in "ab"]
        errors = [process.communicate()[1] for process in both]
        assert [process.returncode for process in both] == [0, 0], errors
        assert run(*words, "--out", tmp_path / "alone")[0] == 0
        shared, alone = (
            pd.read_json(tmp_path / name / "results.json").drop(columns=["seconds"])
            for name in ("both", "alone")
        )
        pd.testing.assert_frame_equal(shared, alone)

    def test_who_comes_second_waits_and_says_so(self, tmp_path):
        code = (
            "import sys; from pathlib import Path; from audit.experiments.cells import claimed\n"
            f"with claimed(Path({str(tmp_path / 'cells' / 'c.json')!r})): print('in')\n"
        )
        with claimed(tmp_path / "cells" / "c.json"):
            second = subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True)
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(6)
        out, error = second.communicate(timeout=20)
        assert out == "in\n"
        assert "another run works on c; waiting for it" in error


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

    def test_spreadsheets_evaluate_nothing(self, tmp_path):
        rows = [
            make_row(victim=text, reason="ok", value=-1.5)
            for text in ("=1+1", "+1", "-1", "@x", "\t=1", "a=b")
        ]
        write_results(rows, tmp_path)
        shown = pd.read_csv(tmp_path / "results.csv")
        assert list(shown["victim"]) == ["'=1+1", "'+1", "'-1", "'@x", "'\t=1", "a=b"]
        assert list(shown["value"]) == [-1.5] * 6
        assert json.loads((tmp_path / "results.json").read_text())[0]["victim"] == "=1+1"


def test_truth_and_key_are_private(run, tmp_path):
    code, _, error = run("record", tmp_path / "t", "--data", SMALL, "--defense", "paillier:key_bits=2048")
    assert code == 0, error
    for name in ("t.truth.arrow", "t.key.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
