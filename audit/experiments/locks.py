"""Several runs into one directory: claims on what is worked on, and what killed processes left behind.

A claim is a lock of the operating system, which ends with the process that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from audit.experiments.naming import digest
from audit.shell.notes import note
from victims.common.files import output, remove, writer_of

POLL = 0.2  # seconds between two looks at a lock that another run holds


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keep other runs from working on a path meanwhile; where one does, wait for it, and say so."""
    with output(path):
        lock = _lock(path)
        Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            note(f"another run works on {path.parent.name}/{path.stem}; waiting for it")
            lock.acquire(poll_interval=POLL)
    try:
        yield
    finally:
        lock.release()


def remove_unclaimed(claim: Path, paths: Iterable[Path]) -> None:
    """Remove files and folders, unless another run holds the claim that they belong to."""
    lock = _lock(claim)
    with suppress(Timeout, OSError), lock.acquire(blocking=False):
        for path in paths:
            remove(path)


def _lock(path: Path) -> FileLock:
    """The lock of a path, in a folder beside the path's."""
    name = digest({"name": f"{path.parent.name}/{path.name}"})
    return FileLock(path.parent.parent / ".locks" / f"{name}.lock")


def remove_stale(directory: Path) -> None:
    """Remove what processes that were killed had begun to write."""
    for path in directory.rglob(".*.partial"):
        if (writer := writer_of(path)) is not None and not _runs(writer):
            remove(path)


def _runs(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
