"""Opening and writing recordings, as ratios to their floors, in one run. Nothing here is asserted.

    python -m pytest -o addopts= --import-mode=importlib tests/benchmarks/test_recordings.py

FACTORLEAK_ROWS is the number of rows (24 million, which take 2.4 GB of disk).
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.memory import PeakMemory
from victims.transcript.manifest import Manifest
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder
from victims.transcript.writer import TranscriptWriter

ROWS = int(os.environ.get("FACTORLEAK_ROWS", "24000000"))
N_ITEMS, FACTORS, TOGETHER = 4000, 10, 64  # clients of one call of the writer
N_USERS = max(1, ROWS // N_ITEMS)
LEVELS = [1.0, 2.0, 3.0, 4.0, 5.0]


def rows_of_clients() -> Iterator[np.ndarray]:
    """A row about every item of some clients; drawn once, for drawing takes longer than writing."""
    drawn = np.random.default_rng(0).standard_normal((TOGETHER, N_ITEMS, FACTORS))
    for first in range(0, N_USERS, TOGETHER):
        yield drawn[: min(TOGETHER, N_USERS - first)]


def version_1(path: Path, shuffled: bool = False) -> None:
    manifest = Manifest(
        format="factorleak-transcript",
        version=1,
        protocol="fedmvmf",
        update="sgd",
        weighting="include-unrated",
        n_users=N_USERS,
        n_items=N_ITEMS,
        n_attributes=0,
        factors=FACTORS,
        rounds=[0],
        rating_levels=LEVELS,
    )
    with TranscriptWriter(path, manifest) as writer:
        writer.state(0, np.ones((N_ITEMS, FACTORS)), np.zeros((0, FACTORS)))
        first = 0
        for rows in rows_of_clients():
            sender = np.repeat(np.arange(first, first + len(rows)), N_ITEMS)
            index = np.tile(np.arange(N_ITEMS), len(rows))
            if shuffled:
                order = np.random.default_rng(first).permutation(sender.size)
                sender, index = sender[order], index[order]
            writer.messages(0, sender, np.zeros_like(sender), index, rows.reshape(-1, FACTORS))
            first += len(rows)


def shuffled(path: Path) -> None:
    """Rows of 64 clients at a time in any order."""
    version_1(path, shuffled=True)


def version_2(path: Path) -> None:
    with Recorder(path, rating_levels=LEVELS, weighting="include-unrated") as recorder:
        recorder.broadcast(0, np.ones((N_ITEMS, FACTORS)))
        client = 0
        for rows in rows_of_clients():
            for row in rows:
                recorder.upload(0, client, row)
                client += 1


@pytest.fixture(scope="module", params=[version_1, shuffled, version_2], ids=lambda write: write.__name__)
def recorded(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("open") / "t"
    request.param(path)
    yield path
    shutil.rmtree(path.parent)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def test_open_beside_one_sum(benchmark, recorded):
    """Reading and checking every row; the floor is one ``numpy.sum`` of mapped gradients."""
    transcript = open_transcript(recorded)
    sums: list[float] = []
    opened: list[float] = []

    def both():
        sums.append(seconds(lambda: [chunk.sum() for chunk in transcript.messages.gradient]))
        opened.append(seconds(lambda: open_transcript(recorded)))

    benchmark.pedantic(both, rounds=7, warmup_rounds=1)
    ratio = statistics.median(opened[1:]) / statistics.median(sums[1:])
    benchmark.extra_info |= {"rows": transcript.messages.n_rows, "open_over_sum": round(ratio, 2)}
    print(f"\n{recorded}: open {statistics.median(opened[1:]):.3f} s, {ratio:.2f} times one sum")


def plain(path: Path, size: int) -> None:
    """As many bytes, as quickly as they can be written."""
    block = memoryview(np.random.default_rng(0).bytes(8 << 20))
    with path.open("wb", buffering=0) as file:
        for low in range(0, size, len(block)):
            file.write(block[: min(len(block), size - low)])


def uploads(path: Path, rows: np.ndarray) -> None:
    """Some rows again and again, each time of another client."""
    items = np.arange(len(rows))
    with Recorder(path, rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, np.ones((max(N_ITEMS, len(rows)), FACTORS)))
        for client in range(max(1, ROWS // len(rows))):
            recorder.upload(0, client, rows, items)


@pytest.mark.parametrize("per_call", [100, 4000, 1_000_000])
def test_record_beside_a_plain_write(benchmark, tmp_path, per_call):
    """``Recorder`` with rows of a size; the floor is a file of the same size."""
    rows = np.random.default_rng(0).standard_normal((per_call, FACTORS))
    whole: list[float] = []
    floor: list[float] = []

    def both():
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        with PeakMemory() as memory:
            whole.append(seconds(lambda: uploads(tmp_path / "t", rows)))
        size = (tmp_path / "t" / "messages.arrow").stat().st_size
        shutil.rmtree(tmp_path / "t")
        floor.append(seconds(lambda: plain(tmp_path / "plain", size)))
        benchmark.extra_info |= {"bytes": size, "peak_MB_above_start": round(memory.peak_megabytes)}

    benchmark.pedantic(both, rounds=3)
    shutil.rmtree(tmp_path)
    ratio = statistics.median(whole) / statistics.median(floor)
    benchmark.extra_info |= {"rows": ROWS, "record_over_plain_write": round(ratio, 2)}
    print(
        f"\n{per_call} rows a call: {statistics.median(whole):.2f} s, {ratio:.1f} times a plain write", end=""
    )
    print(
        f" of {benchmark.extra_info['bytes']:,} bytes, {benchmark.extra_info['peak_MB_above_start']} MB above"
    )
