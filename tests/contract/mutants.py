"""Recordings of version 2, damaged: bytes, rows, columns, whole tables, manifests.

Whatever a mutant is, opening it ends in ``InputError``, or every attack answers, finitely, or abstains with
a reason; nothing raises, and nothing goes on without end. A mutant is named by its recording, what is done
and a number, from which it is made again.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.contract.damages import DAMAGES
from tests.contract.version_2 import recordings

SECONDS = 120  # for one call; the slowest compile for a few


def mutants(number: int) -> Iterator[str]:
    """Each recording with each kind of damage, ``number`` times; names do not change with ``number``."""
    for recording in recordings():
        for what in DAMAGES:
            for count in range(number):
                yield f"{recording}: {what} {count}"


def make(name: str, folder: Path) -> Path:
    """The mutant of a name, as a directory below ``folder``; intact recordings are made there once."""
    recording, _, rest = name.partition(": ")
    what, _, count = rest.rpartition(" ")
    intact = folder / f"intact-{recording}"
    if not intact.exists():
        recordings()[recording](intact)
    path = folder / "mutant"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(intact, path)
    DAMAGES[what](path, np.random.default_rng([int(count), *name.encode()]))
    return path


@contextmanager
def limited(seconds: int = SECONDS) -> Iterator[None]:
    """What takes longer raises ``TimeoutError``."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
