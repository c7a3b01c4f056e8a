"""Parallel processes: they end with their parent, and what a killed one worked on is tried again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from audit.experiments.workers import KilledError, in_processes, processes_of


def sleeping(folder: str, _: int) -> None:
    """Work that says who does it, and lasts."""
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)


def is_running(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cores(_: int) -> int:
    return processes_of(-1)


def test_a_worker_starts_no_processes_of_its_own():
    assert dict(in_processes(cores, [0, 1], 2)) == {0: 1, 1: 1}


def test_a_worker_ends_with_its_parent(tmp_path):
    code = (
        "import os, time\n"
        "from functools import partial\n"
        "from audit.experiments.workers import in_processes\n"
        "from tests.audit.experiments.test_processes import sleeping\n"
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
    while any(map(is_running, workers)) and time.monotonic() < limit:
        time.sleep(0.1)
    assert not any(map(is_running, workers))


def killing_itself(flags: Path, task: int) -> int:
    """Work whose process is killed while it does task 1."""
    if task == 1:
        Path(flags, str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 10 * task


def test_what_a_killed_worker_worked_on_is_tried_again_and_the_second_time_an_answer(tmp_path, capsys):
    found = dict(in_processes(partial(killing_itself, tmp_path), [0, 1, 2, 3], 2))
    assert isinstance(found.pop(1), KilledError)
    assert found == {0: 0, 2: 20, 3: 30}
    assert len(list(tmp_path.iterdir())) == 2
    assert "a process was killed" in capsys.readouterr().err
