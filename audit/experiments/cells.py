"""Cells: one piece of work each, the file that keeps its rows, and a batch of them worked off.

A cell's file is named by a hash of all that determines the rows; it has a checksum, and one run at a time
works on it. The procedure says how a cell becomes rows; the runner decides where.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import psutil
from filelock import FileLock, Timeout

from audit.experiments.results import COLUMNS, Row, write_beside
from audit.plugins import said
from audit.shell.deadline import OutOfTime, until
from audit.shell.debugging import trace
from audit.shell.notes import note
from audit.shell.programs import keep_programs
from victims.common.errors import InputError, OutputError
from victims.common.files import output, remove, small_file, unfinished, write_text, writer_of
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


def kept_rows(path: Path | None, say: Callable[[str], None] = note) -> list[Row] | None:
    """Read the rows of a cell that may have been kept, and finished before."""
    if path is None or not os.path.lexists(path):
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


Task = TypeVar("Task")
Given = TypeVar("Given")  # what all cells start from: ratings, or a recording
Prepared = TypeVar("Prepared")
Place = Literal["anywhere", "here", "alone"]
Say = Callable[[str], None]  # told what goes on inside a cell
Found = Callable[[list[Row]], None]  # told the rows of a cell that is finished
Report = Callable[[int, int, str], None]  # told how many cells are done, how many there are, what goes on


def silent(*_: object) -> None:
    """Say or report nothing."""


@dataclass(frozen=True)
class Cell(Generic[Task]):
    """One piece of work.

    Cells with the same ``scratch`` are a batch: one process works on them, in order, on what is prepared once
    for all of them, such as a recording.
    """

    task: Task  # what is computed; immutable and picklable
    # where the rows are kept, under a hash of everything that determines them (``cell_path``); None
    # keeps nothing
    path: Path | None = None
    scratch: tuple[Path, ...] = ()  # files and folders that are of no use once the batch is finished
    together: str = ""  # cells without scratch that are a batch all the same have this in common
    kind: str = ""  # cells of one kind take times of the same order
    # "anywhere"; "here" where files of this machine are read, which workers on others do not have; "alone"
    # where seconds of this machine are measured: then nothing else of the run goes on
    place: Place = "anywhere"
    # what is prepared is found again in ``scratch`` by a run that comes after one that was stopped
    resumable: bool = False
    obstacle: str = ""  # why it does not apply; then it is rows that say so, and never run
    procedure: Procedure[Task, Any, Any] | None = None  # None is the grid's; cells of a batch have one


@dataclass(frozen=True)
class Procedure(Generic[Task, Given, Prepared]):
    """How the cells of a grid become rows; all functions are picklable."""

    # what all cells of a batch need, from the first of those that are left. Any error of it is a failed row
    # for each of them
    prepare: Callable[[Cell[Task], Given, Say], Prepared]
    # the rows of a cell, a pure function of the cell and of what is prepared. An ``InputError`` says that the
    # request was wrong, and ends the run; another error is a failed row. With the rows may come an array that
    # is kept beside them
    measure: Callable[[Cell[Task], Prepared, Say], list[Row] | tuple[list[Row], np.ndarray | None]]
    # the rows of a cell that could not be finished; it may raise the error, which then ends the run
    failed: Callable[[Task, Exception], list[Row]]
    # why a cell is not needed, from its task and the rows of its batch so far; empty where it is
    unneeded: Callable[[Task, Sequence[Row]], str] | None = None


def not_run(
    failed: Callable[[Task, Exception], list[Row]],
    task: Task,
    reason: str,
    status: Literal["not applicable", "not needed", "not reached"] = "not applicable",
) -> list[Row]:
    """Make the rows of a cell that is not run."""
    settled = {"status": status} | ({"verdict": ""} if status == "not needed" else {})
    return [{**row, **settled} for row in failed(task, InputError(reason))]


def refuse_if_none_applies(cells: Sequence[Cell[Any]]) -> None:
    """Refuse what asks for nothing that applies."""
    if cells and all(cell.obstacle for cell in cells):
        raise InputError(cells[0].obstacle)


def only_ratings(cell: Cell[Any], ratings: Ratings, say: Say) -> Ratings:
    """Prepare nothing: cells are measured on the ratings themselves."""
    return ratings


def refuse(task: object, error: Exception) -> list[Row]:
    """End the run where a cell fails."""
    raise error


Batch = tuple[Cell[Task], ...]
UNKEPT = ("failed", "not needed", "not reached")
Step = Callable[[int, str], None]  # told how many cells of a batch are done, and what goes on


class Done(NamedTuple):
    """A finished cell: its rows, the seconds that they took (NaN where they were there before), and an array
    that is kept beside them.
    """

    rows: list[Row]
    seconds: float = float("nan")
    beside: np.ndarray | None = None


def run_batch(
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    keep_scratch: bool,
    batch: Batch[Task],
    step: Step = silent,
    *,
    before: Sequence[Row] = (),
    found: Callable[[Cell[Task], list[Row]], None] = silent,
    deadline: float | None = None,
) -> list[Done]:
    """Compute the cells of a batch that nobody has finished."""
    procedure = batch[0].procedure or procedure
    keep_programs()
    with ExitStack() as stack:
        claim = claim_of(batch[0])
        if claim is not None:
            stack.enter_context(claimed(claim))
        kept = {cell.path: Done(rows) for cell in batch if (rows := kept_rows(cell.path, silent)) is not None}
        left = [cell for cell in batch if cell.path not in kept]
        if left and not batch[0].resumable:
            for path in batch[0].scratch:
                remove(path)
                stack.enter_context(unfinished(path))
        step = partial(_counted, step, len(kept))
        earlier = [*before, *(row for done in kept.values() for row in done.rows)]
        computed = iter(list(_computed(procedure, given, left, step, earlier, found, deadline)))
        if not keep_scratch:
            for path in batch[0].scratch:
                remove(path)
        return [kept[cell.path] if cell.path in kept else next(computed) for cell in batch]


def _counted(step: Step, before: int, done: int, what: str) -> None:
    step(before + done, what)


def claim_of(cell: Cell[Task]) -> Path | None:
    """Say what only one run may work on at a time."""
    return cell.scratch[0] if cell.scratch else cell.path


def keep(cell: Cell[Task], done: Done) -> None:
    """Write a finished cell; one that failed or was not run is not kept."""
    if cell.path is not None and not any(row["status"] in UNKEPT for row in done.rows):
        if done.beside is not None:
            write_beside(cell.path, done.beside)
        write_cell(cell.path, done.rows, done.seconds)


def _computed(
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    cells: Sequence[Cell[Task]],
    step: Step,
    earlier: list[Row],
    found: Callable[[Cell[Task], list[Row]], None],
    deadline: float | None,
) -> Iterator[Done]:
    """The rows of each cell, written when they are there; the first one's seconds hold the preparation."""
    ready: list[Prepared] = []
    broken: Exception | None = None
    for number, cell in enumerate(cells):
        begin, say = time.perf_counter(), partial(step, number)
        beside = None
        if procedure.unneeded is not None and (why := procedure.unneeded(cell.task, earlier)):
            rows = not_run(procedure.failed, cell.task, why, "not needed")
        else:
            if not ready and broken is None:
                try:
                    with until(deadline):
                        ready.append(procedure.prepare(cell, given, say))
                except (OutputError, KeyboardInterrupt):
                    raise
                except OutOfTime:  # as for all that come
                    pass
                except BaseException as error:  # training diverged, say
                    trace(error)
                    broken = _failure(error)
            if ready:
                rows, beside = _measured(procedure, cell, ready[0], say, deadline)
            elif broken is not None:
                rows = procedure.failed(cell.task, broken)
            else:
                rows = _not_reached(procedure, cell)
        done = Done(rows, time.perf_counter() - begin, beside)
        keep(cell, done)
        found(cell, rows)
        earlier += rows
        yield done


def _not_reached(procedure: Procedure[Task, Given, Prepared], cell: Cell[Task]) -> list[Row]:
    return not_run(procedure.failed, cell.task, "out of time", "not reached")


def _failure(error: BaseException) -> Exception:
    """What a row says of an error; a component that ends the program has failed, too."""
    if isinstance(error, Exception):
        return error
    return InputError(f"a component must not end the program, got {said(error)}")


def _measured(
    procedure: Procedure[Task, Given, Prepared],
    cell: Cell[Task],
    prepared: Prepared,
    say: Say,
    deadline: float | None,
) -> tuple[list[Row], np.ndarray | None]:
    """The rows of a cell, and what is kept beside them where none failed."""
    try:
        with until(deadline):
            found = procedure.measure(cell, prepared, say)
        return found if isinstance(found, tuple) else (found, None)
    except (InputError, OutputError, KeyboardInterrupt):
        raise
    except OutOfTime:
        return _not_reached(procedure, cell), None
    except BaseException as error:  # a failed cell is a row with its reason, never a missing row
        trace(error)
        return procedure.failed(cell.task, _failure(error)), None
