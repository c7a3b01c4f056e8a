"""Opening and writing recordings, as ratios to their floors, in one run. Nothing here is asserted.

    python -m pytest -o addopts= --import-mode=importlib tests/benchmarks/test_recordings.py

FACTORLEAK_ROWS is the number of rows (24 million, which take 2.4 GB of disk).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.benchmarks.memory import PeakMemory
from tests.benchmarks.timing import medians, seconds
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


def version_1(path: Path) -> None:
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
            writer.messages(0, sender, np.zeros_like(sender), index, rows.reshape(-1, FACTORS))
            first += len(rows)


def version_2(path: Path) -> None:
    with Recorder(path, rating_levels=LEVELS, weighting="include-unrated") as recorder:
        recorder.broadcast(0, np.ones((N_ITEMS, FACTORS)))
        client = 0
        for rows in rows_of_clients():
            for row in rows:
                recorder.upload(0, client, row)
                client += 1


def shuffle(path: Path, together: int) -> None:
    """Rows of so many clients in any order, by a program that is not ours; factors stay where they are."""
    file = path / "messages.arrow"
    with pa.memory_map(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
        order, rng = np.arange(table.num_rows), np.random.default_rng(0)
        for low in range(0, order.size, together * N_ITEMS):
            rng.shuffle(order[low : low + together * N_ITEMS])
        for name in ("sender", "index", "sequence"):
            if name in table.column_names:
                place = table.column_names.index(name)
                column = pa.array(table[name].to_numpy()[order])
                table = table.set_column(place, table.schema.field(name), column)
        with pa.ipc.new_file(path / "shuffled", table.schema) as sink:
            sink.write_table(table, max_chunksize=1 << 16)
    (path / "shuffled").replace(file)


@pytest.fixture(scope="module", params=[version_1, version_2], ids=lambda write: write.__name__)
def written(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("open") / "t"
    request.param(path)
    yield path
    shutil.rmtree(path.parent)


@pytest.fixture(scope="module", params=[0, TOGETHER, N_USERS], ids=["in order", "inside batches", "all rows"])
def recorded(request, written):
    if request.param:
        shuffle(written, request.param)
    return written


def test_open_beside_one_sum(benchmark, recorded):
    """Reading and checking every row; the floor is one ``numpy.sum`` of mapped gradients."""
    transcript = open_transcript(recorded)
    sums: list[tuple[float, float]] = []
    opened: list[tuple[float, float]] = []

    def both():
        sums.append(seconds(lambda: [chunk.sum() for chunk in transcript.messages.gradient]))
        opened.append(seconds(lambda: open_transcript(recorded)))

    benchmark.pedantic(both, rounds=7, warmup_rounds=1)
    wall, cpu = medians(opened[1:]) / medians(sums[1:])
    benchmark.extra_info |= {"rows": transcript.messages.n_rows, "wall": round(wall, 2), "cpu": round(cpu, 2)}
    print(f"\nopen {medians(opened[1:])[0]:.3f} s, {wall:.2f} times one sum; {cpu:.2f} times in CPU time")


def plain(path: Path, size: int, *, synced: bool = False) -> None:
    """As many bytes, as quickly as they can be written: to the page cache, or, synced, to the disk."""
    block = memoryview(np.random.default_rng(0).bytes(8 << 20))
    with path.open("wb", buffering=0) as file:
        for low in range(0, size, len(block)):
            file.write(block[: min(len(block), size - low)])
        if synced:
            os.fsync(file.fileno())


def uploads(path: Path, rows: np.ndarray) -> None:
    """Some rows again and again, each time of another client."""
    items = np.arange(len(rows))
    with Recorder(path, rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, np.ones((max(N_ITEMS, len(rows)), FACTORS)))
        for client in range(max(1, ROWS // len(rows))):
            recorder.upload(0, client, rows, items)


@pytest.mark.parametrize("per_call", [100, 4000, 1_000_000])
def test_record_beside_a_plain_write(benchmark, tmp_path, per_call):
    """``Recorder`` with rows of a size; floors are files as large, in the page cache and on the disk."""
    rows = np.random.default_rng(0).standard_normal((per_call, FACTORS))
    whole: list[tuple[float, float]] = []
    floor: list[tuple[float, float]] = []
    disk: list[tuple[float, float]] = []

    def all_three():
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        with PeakMemory() as memory:
            whole.append(seconds(lambda: uploads(tmp_path / "t", rows)))
        size = (tmp_path / "t" / "messages.arrow").stat().st_size
        shutil.rmtree(tmp_path / "t")
        floor.append(seconds(lambda: plain(tmp_path / "plain", size)))
        os.sync()  # what waits is not this file's
        disk.append(seconds(lambda: plain(tmp_path / "synced", size, synced=True)))
        benchmark.extra_info |= {"bytes": size, "peak_MB_above_start": round(memory.peak_megabytes)}

    benchmark.pedantic(all_three, rounds=3)
    shutil.rmtree(tmp_path)
    wall, cpu = medians(whole) / medians(floor)
    over_disk = medians(whole)[0] / medians(disk)[0]
    benchmark.extra_info |= {"rows": ROWS, "record_over_plain_write": round(wall, 2)}
    benchmark.extra_info |= {"record_over_synced_write": round(over_disk, 2)}
    print(f"\n{per_call} rows a call: {medians(whole)[0]:.2f} s, {wall:.1f} times a plain write", end="")
    print(f" ({cpu:.1f} times in CPU time), {over_disk:.1f} times a synced one", end="")
    print(
        f" of {benchmark.extra_info['bytes']:,} bytes, {benchmark.extra_info['peak_MB_above_start']} MB above"
    )
