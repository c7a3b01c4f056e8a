"""Cells of a grid: what they are called, how they are kept, and their rows.

A finished cell is a JSON file whose name holds a hash of everything that determines it, so that a grid that
was stopped goes on where it was, and a changed option runs anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import joblib
import numpy as np
import psutil
from filelock import FileLock, Timeout
from jax.experimental.compilation_cache import compilation_cache

from attacks.base import Reconstruction, Scope
from audit.experiments.results import COLUMNS, Row, make_row, write_results
from audit.scoring.abstentions import in_words
from audit.scoring.metrics import UserScores
from audit.scoring.score import Ceiling, as_record, score
from audit.scoring.statistics import NOT_TESTED
from audit.scoring.truth import Truth
from audit.shell import interrupts
from audit.shell.debugging import trace
from audit.shell.notes import note
from victims.common.errors import InputError, one_line
from victims.common.files import output, remove, scratch_folder, small_file, write_text, writer_of
from victims.data.ratings import Ratings
from victims.transcript.manifest import Manifest


def digest(identity: dict[str, Any]) -> str:
    """Sixteen hexadecimal digits of a hash."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def content_of(ratings: Ratings) -> str:
    """A hash of the ratings, attributes and features themselves."""
    content = hashlib.sha256()
    for array in (ratings.indptr, ratings.items, ratings.values, ratings.attributes, ratings.item_features):
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()


def write_cell(path: Path, rows: list[Row]) -> None:
    """Keep a finished cell: its rows, and a checksum of them."""
    content = {"format": FORMAT, "sha256": _checksum(rows), "rows": rows}
    write_text(path, json.dumps(content))


def read_cell(path: Path) -> list[Row]:
    """The rows of a finished cell.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    try:
        content = json.loads(small_file(path, CELL_BYTES))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({error}); remove it to run that cell again") from None
    for broken, rule in (
        (not isinstance(content, dict) or content.get("format") != FORMAT, f"be a {FORMAT}"),
        (not _are_rows(_part(content, "rows")), "hold result rows"),
        (_part(content, "sha256") != _checksum(_part(content, "rows")), "have the checksum that it states"),
    ):
        if broken:
            raise InputError(f"{path} must {rule}; remove it to run that cell again")
    rows: list[Row] = content["rows"]
    return rows


def _part(content: Any, name: str) -> Any:
    return content.get(name) if isinstance(content, dict) else None


def _are_rows(rows: Any) -> bool:
    """At least one row, each with every column, of plain values."""
    return (
        isinstance(rows, list)
        and bool(rows)
        and all(isinstance(row, dict) and tuple(row) == COLUMNS for row in rows)
        and all(
            value is None or isinstance(value, str | int | float) for row in rows for value in row.values()
        )
    )


def _checksum(rows: Any) -> str:
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def kept_rows(path: Path) -> list[Row] | None:
    """The rows of a cell that was finished before; a damaged one is as none, and that is said."""
    if not os.path.lexists(path):
        return None
    try:
        return read_cell(path)
    except InputError as error:
        note(f"a cell is computed again: {error}")
        return None


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Nobody else works on ``path`` meanwhile; where somebody does, wait, and say so.

    The claim is a lock of the operating system, which ends with the process.
    """
    with output(path):
        lock = _lock(path)
        Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            note(f"another run works on {path.stem}; waiting for it")
            lock.acquire(poll_interval=0.2)
    try:
        yield
    finally:
        lock.release()


def _lock(path: Path) -> FileLock:
    """The lock of a cell, in a folder beside that of the cells."""
    return FileLock(path.parent.parent / ".locks" / f"{digest({'name': path.name})}.lock")


def remove_stale(directory: Path) -> None:
    """Remove what processes that were killed had begun to write below a directory."""
    for path in directory.rglob(".*.partial"):
        if (number := writer_of(path)) is not None and not _runs(number):
            remove(path)


def _runs(number: int) -> bool:
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@runtime_checkable
class Cell(Protocol):
    """A piece of work that knows where its rows are kept."""

    @property
    def path(self) -> Path:
        """The file of its rows."""
        ...

    @property
    def scratch(self) -> tuple[Path, ...]:
        """Files and folders that are of no use once it is finished, or was stopped."""
        ...

    def failed(self, error: Exception) -> list[Row]:
        """Its rows where it could not be finished."""
        ...


FORMAT = "factorleak-cell-1"
CELL_BYTES = 64 << 20
FOLDER, LEAST = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
SLOW = 0.1  # seconds of compiling, from which a program is kept
C = TypeVar("C", bound=Cell)
T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def programs_kept(folder: Path) -> Iterator[None]:
    """What is compiled meanwhile is kept in ``folder``, and found there: attacks drop it from memory.

    A folder that the user chose (``JAX_COMPILATION_CACHE_DIR``) goes before.
    """
    if getattr(jax.config, FOLDER) is not None:
        yield
        return
    old = getattr(jax.config, LEAST)
    _configure(str(folder), SLOW)
    try:
        yield
    finally:
        _configure(None, old)


def _configure(folder: str | None, slow: float) -> None:
    jax.config.update(FOLDER, folder)
    jax.config.update(LEAST, slow)
    compilation_cache.reset_cache()  # the open folder is remembered otherwise


Work = Callable[[C, Ratings], list[Row]]


def _run_one(work: Work[C], folder: str, cell: C, ratings: Ratings) -> list[Row]:
    """One cell, unless another run finished it meanwhile; kept unless it failed: repeating tries again.

    JAX does not write compiled programs atomically, so each process has a folder for them.
    """
    with claimed(cell.path), programs_kept(Path(folder, str(os.getpid()))):
        rows = kept_rows(cell.path)
        if rows is None:
            rows = work(cell, ratings)
            if not _has_failed(rows):
                write_cell(cell.path, rows)
    return rows


def _has_failed(rows: list[Row]) -> bool:
    return any(row["status"] == "failed" for row in rows)


def run_cells(
    cells: Sequence[C],
    work: Work[C],
    ratings: Ratings,
    directory: Path,
    jobs: int,
    report: Callable[[int, int], None],
) -> list[Row]:
    """Run every cell that is not there yet, in parallel processes, and write the result files.

    A cell whose process was killed twice is a failed row.
    """
    remove_stale(directory)
    found = {cell.path: rows for cell in cells if (rows := kept_rows(cell.path)) is not None}
    left = [cell for cell in cells if cell.path not in found]
    report(len(found), len(cells))
    try:
        with scratch_folder() as programs:
            one = partial(_run_one, work, str(programs), ratings=ratings)
            for place, result in in_processes(one, left, jobs):
                cell = left[place]
                found[cell.path] = cell.failed(result) if isinstance(result, KilledError) else result
                report(len(found), len(cells))
    finally:
        _tidy(left, directory)
    rows = [row for cell in cells for row in found[cell.path]]
    write_results(rows, directory)
    return rows


def _tidy(cells: Iterable[C], directory: Path) -> None:
    """Remove what killed workers left; not what another run works on."""
    remove_stale(directory)
    for cell in cells:
        lock = _lock(cell.path)
        with suppress(Timeout, OSError), lock.acquire(blocking=False):
            for path in cell.scratch:
                remove(path)


class KilledError(Exception):
    """The process that worked on something was killed twice."""

    def __init__(self) -> None:
        super().__init__(
            "its process was killed twice, perhaps for want of memory; try fewer clients or --jobs 1"
        )


def in_processes(
    work: Callable[[T], R], tasks: Sequence[T], jobs: int
) -> Iterator[tuple[int, R | KilledError]]:
    """Place and result of each task, in the order in which they end.

    The processes end with this one. Where one of them is killed, what was begun is tried once more, each task
    alone, so that it is known which one it was; its result is a ``KilledError``.
    """
    left = dict(enumerate(tasks))
    begun: list[int] = []
    with supervised():
        try:
            for place, result in _pool(jobs)(_begun(work, left, begun)):
                del left[place]
                yield place, result
        except BrokenProcessPool:
            interrupts.halt()
            note("a process was killed, perhaps for want of memory; what it worked on is tried again")
        for place in [place for place in begun if place in left]:
            try:
                ((_, again),) = _pool(FEWEST)(_begun(work, {place: left.pop(place)}, []))
                yield place, again
            except BrokenProcessPool:
                interrupts.halt()
                yield place, KilledError()
    if left:  # what the killed one kept from being begun
        places = list(left)
        for place, result in in_processes(work, list(left.values()), jobs):
            yield places[place], result


FEWEST = 2  # processes with which joblib does not work in this one


def _pool(jobs: int) -> joblib.Parallel:
    return joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")


def _begun(work: Callable[[T], R], left: Mapping[int, T], begun: list[int]) -> Iterator[Any]:
    """The tasks for joblib, each one noted when it is begun."""
    task = joblib.delayed(_placed)
    for place, given in list(left.items()):
        begun.append(place)
        yield task(work, place, given)


def _placed(work: Callable[[T], R], place: int, given: T) -> tuple[int, R]:
    return place, work(given)


@contextmanager
def supervised() -> Iterator[None]:
    """Processes that are started meanwhile end with this one."""
    interrupts.leave_signals_to_this_process()
    with joblib.parallel_config("loky", initializer=interrupts.in_worker, initargs=(os.getpid(),)):
        yield


def reason_of_failure(error: Exception) -> str:
    """Why a cell failed, in one line."""
    known = isinstance(error, InputError | KilledError)
    return one_line(error if known else f"{type(error).__name__}: {error}")


def failed_row(shared: Row, error: Exception) -> Row:
    """The row of a cell that failed, with its reason."""
    trace(error)
    reason = reason_of_failure(error)
    row = {**shared, "metric": "rating_accuracy", "status": "failed", "reason": reason}
    return make_row(**row, verdict=NOT_TESTED)


def metric_rows(
    shared: Row,
    reconstruction: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    *,
    shuffled: UserScores | None = None,
    ceilings: Mapping[str, Ceiling] | None = None,
) -> list[Row]:
    """One row per metric, or one that says why the attack does not apply.

    An attack that looked at every client and found nothing did apply: it has scores, all of them the guess.
    """
    n_users = reconstruction.users.size
    n_silent = len(reconstruction.abstained)
    left = {"status": "not applicable", "verdict": NOT_TESTED, "n_users": n_users, "n_abstained": n_silent}
    if not reconstruction.applies:
        nobody = reconstruction.obstacle or "the adversary receives no uploads"
        reason = in_words(reconstruction.abstained, n_users) or nobody
        return [make_row(**shared, metric="rating_accuracy", **left, reason=reason)]
    scores = score(reconstruction, manifest, truth, shuffled=shuffled, ceilings=ceilings)
    rows = [make_row(**shared, **as_record(part), status="ran") for part in scores]
    if reconstruction.scope == Scope.RATED_SET:
        reason = "it reads which items are rated and nothing else"
        rows.append(make_row(**shared, metric="rating_accuracy", **left, reason=reason))
    return rows
