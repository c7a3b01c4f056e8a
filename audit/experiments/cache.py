"""Cells on disk: a name that is a hash of all that determines the rows, a checksum, one run at a time."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from filelock import FileLock, Timeout

from audit.experiments.results import COLUMNS, Row
from audit.shell.notes import note
from victims.common.errors import InputError
from victims.common.files import output, remove, small_file, write_text, writer_of
from victims.data.ratings import Ratings


def digest(identity: Mapping[str, Any]) -> str:
    """Hash what determines something."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def content_of(ratings: Ratings) -> str:
    """Hash the ratings, attributes and features themselves."""
    content = hashlib.sha256()
    for array in (ratings.indptr, ratings.items, ratings.values, ratings.attributes, ratings.item_features):
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()


def cell_path(directory: Path, label: str, identity: Mapping[str, Any]) -> Path:
    """Name the file of a cell's rows."""
    return directory / "cells" / f"{label}-{digest(identity)}.json"


FORMAT = "factorleak-cell-1"
CELL_BYTES = 64 << 20  # most that a file of rows may have


def write_cell(path: Path, rows: list[Row], seconds: float = math.nan) -> None:
    """Keep the rows of a finished cell."""
    took = None if math.isnan(seconds) else round(seconds, 3)
    content = {"format": FORMAT, "sha256": _checksum(rows), "seconds": took, "rows": rows}
    write_text(path, json.dumps(content))


def read_cell(path: Path) -> list[Row]:
    """Read the rows of a finished cell."""
    content = _content(path)
    rows: list[Row] = content.get("rows")  # type: ignore[assignment]
    for broken, rule in (
        (content.get("format") != FORMAT, f"be a {FORMAT}"),
        (not _are_rows(rows), "hold result rows"),
        (content.get("sha256") != _checksum(rows), "have the checksum that it states"),
    ):
        if broken:
            raise InputError(f"{path} must {rule}; remove it to run that cell again")
    return rows


def seconds_of(path: Path) -> float:
    """Read how long a finished cell took."""
    try:
        seconds = _content(path).get("seconds")
    except InputError:
        return math.nan
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return math.nan
    return float(seconds) if 0 <= seconds < math.inf else math.nan


def _content(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where it is no object."""
    try:
        content = json.loads(small_file(path, CELL_BYTES))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}); remove it to run that cell again") from None
    return content if isinstance(content, dict) else {}


def _are_rows(rows: Any) -> bool:
    """At least one row, each with every column before what a command has beside them, of plain values."""
    return (
        isinstance(rows, list)
        and bool(rows)
        and all(isinstance(row, dict) and tuple(row)[: len(COLUMNS)] == COLUMNS for row in rows)
        and all(
            value is None or isinstance(value, str | int | float) for row in rows for value in row.values()
        )
    )


def _checksum(rows: Any) -> str:
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def kept_rows(path: Path, say: Callable[[str], None] = note) -> list[Row] | None:
    """Read the rows of a cell that may have been finished before."""
    if not os.path.lexists(path):
        return None
    try:
        return read_cell(path)
    except InputError as error:
        say(f"a cell is computed again: {error}")
        return None


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
