"""25 million ratings of 160,000 clients, about as many as in MovieLens 25M: recorded, opened and read.

Each in a process of its own, so that memory which one has freed does not serve the next.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from audit.factories import make_attack
from tests.benchmarks.memory import PeakMemory
from tests.benchmarks.timing import Line, seconds, summing, written
from victims.data.ratings import Ratings, from_triples
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

CLIENTS, ITEMS, EACH = 160_000, 59_053, 156.0  # a prime number of items: every step goes through all of them
BYTES = 8_000_000_000  # of disk: two recordings, the truth beside one, and the file that is their floor
PIECE = 1 << 20  # ratings that are drawn together


def drawn() -> Ratings:
    """Ratings with planted factors; each client rates items that lie a step apart."""
    rng = np.random.default_rng(0)
    counts = rng.lognormal(np.log(EACH) - 0.32, 0.8, CLIENTS)
    counts = np.clip(np.rint(counts), 2, ITEMS // 2).astype(np.int64)
    users = np.repeat(np.arange(CLIENTS), counts)
    place = np.arange(users.size) - np.repeat(np.cumsum(counts) - counts, counts)
    first, step = rng.integers(0, ITEMS, CLIENTS), rng.integers(1, ITEMS, CLIENTS)
    items = (first[users] + step[users] * place) % ITEMS
    p, q = rng.normal(0, 0.7, (CLIENTS, 4)), rng.normal(0, 0.7, (ITEMS, 4))
    values = rng.normal(3.5, 0.5, users.size)
    for low in range(0, users.size, PIECE):
        some = slice(low, low + PIECE)
        values[some] += np.einsum("rk,rk->r", p[users[some]], q[items[some]])
    values = np.clip(np.rint(values), 1, 5)
    return from_triples(
        "synthetic", users, items, values, user_ids=np.arange(CLIENTS), item_ids=np.arange(ITEMS)
    )


def all_lines(path: Path) -> Iterator[Line]:
    """Each path once; nothing is compiled."""
    if shutil.disk_usage(path.parent).free < BYTES:
        sys.exit(f"{path.parent} has less than {BYTES // 10**9} GB free")
    for measure in (recording, opening, reading, recorder):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            yield alone.submit(measure, path).result()


def once(name: str, call: Callable[[], object], floor: Callable[[], object]) -> Line:
    """A call, its memory, and its floor."""
    with PeakMemory() as memory:
        took = seconds(call)
    floor()
    return Line(name, took, seconds(floor), memory.peak_megabytes)


def recording(path: Path) -> Line:
    """Written as the victim sends it; the ratings are there before, what a round makes of them counts."""
    ratings = drawn()
    victim = FedMVMF(update="semi-als", weighting="observed-only")
    return once(
        "recording, semi-als/observed-only",
        lambda: record(victim, ratings, path, rounds=[0]),
        lambda: written(path.with_name("plain"), (path / "messages.arrow").stat().st_size),
    )


def opening(path: Path) -> Line:
    """Reading and checking every row."""
    gradients = open_transcript(path).messages.gradient
    assert gradients is not None
    return once("opening, semi-als/observed-only", lambda: open_transcript(path), summing(gradients))


def reading(path: Path) -> Line:
    """``spectral``, its answers among the memory."""
    transcript = open_transcript(path)
    assert transcript.messages.gradient is not None
    attack = make_attack("spectral")
    return once(
        "spectral, semi-als/observed-only",
        lambda: attack.attack(transcript.view("server"), 0),
        summing(transcript.messages.gradient),
    )


def recorder(path: Path) -> Line:
    """The same rows through the ``Recorder``, a call for each client."""
    view = open_transcript(path).view("server")
    rows, layout, again = view.messages, view.layout, path.with_name("again")
    assert rows.gradient is not None

    def recorded() -> None:
        with Recorder(again, rating_levels=view.manifest.rating_levels) as into:
            into.broadcast(0, view.broadcasts[0].factors)
            for client, start, size in zip(layout.users, layout.start[0], layout.length[0], strict=True):
                gradient, index = (
                    rows.between(one, start, start + size) for one in (rows.gradient, rows.index)
                )
                into.upload(0, int(client), gradient, index)

    size = (path / "messages.arrow").stat().st_size
    return once("recording, a call a client", recorded, lambda: written(path.with_name("plain"), size))
