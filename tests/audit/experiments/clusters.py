"""A scheduler and its workers as processes of this machine, started with the handbook's two commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
DASK = [sys.executable, "-W", "ignore", "-m", "dask"]
QUIET = {"DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error", "PYTHONWARNINGS": "ignore"}
SOON = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}  # a worker that was killed is given up


@contextmanager
def cluster(folder: Path, workers: int = 2, **settings: str) -> Iterator[str]:
    """Start them; yields the scheduler's address once all workers are there."""
    known = folder / "scheduler.json"
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, **QUIET, **SOON, **settings, "PYTHONPATH": paths}
    said = (folder / "dask.log").open("w")
    start = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(known)]
    join = ["--scheduler-file", str(known), "--nworkers", str(workers), "--nthreads", "1", "--no-dashboard"]
    processes = [
        subprocess.Popen([*DASK, *words], cwd=folder, env=environment, stdout=said, stderr=said)
        for words in (
            ["scheduler", *start],
            ["worker", *join, "--host", "127.0.0.1", "--local-directory", str(folder / "scratch")],
        )
    ]
    try:
        yield _address(known, workers)
    finally:
        for process in reversed(processes):  # workers first: they would look for the scheduler
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        said.close()


def _address(known: Path, workers: int) -> str:
    from distributed import Client

    end = time.monotonic() + 60
    # the file is there before the scheduler has written into it
    while not (known.exists() and known.stat().st_size) and time.monotonic() < end:
        time.sleep(0.1)
    address: str = json.loads(known.read_text())["address"]
    with Client(address, timeout=30, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=60)
    return address
