"""The runner of all grids: it claims cells, runs those that are left, and keeps what is finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from audit.experiments.batches import Batch, Done, Step, claim_of, keep, run_batch
from audit.experiments.cache import kept_rows, remove_stale, remove_unclaimed
from audit.experiments.cluster import Cluster, LostError, on_workers
from audit.experiments.grid import Cell, Found, Procedure, Report, not_run, refuse_if_none_applies, silent
from audit.experiments.processes import KilledError, in_processes, in_this_process, supervised
from audit.experiments.results import Row, write_results
from victims.common.errors import OutputError
from victims.data.ratings import Ratings

WRITTEN = 2.0  # seconds between two times that the files are written while a batch goes on
Task = TypeVar("Task")
Given = TypeVar("Given")
Prepared = TypeVar("Prepared")
Finished = dict[int, list[Row]]  # index of a cell -> its rows


def run_grid(
    cells: Sequence[Cell[Task]],
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    directory: Path | None = None,
    *,
    jobs: int | Cluster = 1,
    keep_scratch: bool = False,
    report: Report = silent,
    found: Found = silent,
    deadline: float | None = None,
) -> list[Row]:
    """Run every cell that is not kept yet, and write the result files.

    Whatever ends the run, cells that were finished are kept. A cell whose process was killed twice is failed
    rows; failed rows are not kept, so that a repeated run tries again.
    """
    refuse_if_none_applies(cells)
    if directory is not None:
        remove_stale(directory)
    finished = {n: rows for n, cell in enumerate(cells) if (rows := _known(cell, procedure)) is not None}
    batches = _batches(cells, finished)
    report(len(finished), len(cells), "")
    for rows in finished.values():
        found(rows)
    run = partial(run_batch, procedure, given, keep_scratch)
    position = {id(cell): index for index, cell in enumerate(cells)}
    written = time.monotonic()

    def one(cell: Cell[Task], rows: list[Row]) -> None:
        nonlocal written
        finished[position[id(cell)]] = rows
        found(rows)
        if time.monotonic() - written > WRITTEN:
            _write(cells, finished, directory)
            written = time.monotonic()

    try:
        with closing(_elsewhere(cells, batches, procedure, given, jobs, run)) as results:
            for indices, computed in results:
                for index, done in zip(indices, computed, strict=True):
                    one(cells[index], done.rows)
                _write(cells, finished, directory)
                report(len(finished), len(cells), f"last: {_label(cells[indices[-1]])}")
        for indices in batches:
            if indices[0] in finished:
                continue
            before = [row for index in _batch_of(cells, indices[0]) for row in finished.get(index, ())]
            step = _inside(report, len(finished), len(cells))
            batch = tuple(cells[index] for index in indices)
            with supervised():
                computed = run(batch, step, before=before, found=one, deadline=deadline)
            finished |= dict(zip(indices, (done.rows for done in computed), strict=True))
            _write(cells, finished, directory)
            report(len(finished), len(cells), "")
    except OutputError:  # room for what is still to be written
        keep_scratch = False
        raise
    finally:
        _tidy([cells[indices[0]] for indices in batches], directory, keep_scratch)
    if not batches:
        _write(cells, finished, directory)
    return _in_order(cells, finished)


def _known(cell: Cell[Task], procedure: Procedure[Task, Given, Prepared]) -> list[Row] | None:
    """The rows of a cell that needs no work."""
    if cell.obstacle:
        return not_run(procedure.failed, cell.task, cell.obstacle)
    return _kept(cell)


def _kept(cell: Cell[Task]) -> list[Row] | None:
    return None if cell.path is None else kept_rows(cell.path)


def _batches(cells: Sequence[Cell[Task]], finished: Mapping[int, object]) -> list[tuple[int, ...]]:
    """Indices of the cells that are left, those that share their scratch together."""
    batches: dict[object, list[int]] = {}
    for index, cell in enumerate(cells):
        if index not in finished:
            batches.setdefault(_shared(cell) or index, []).append(index)
    return [tuple(indices) for indices in batches.values()]


def _batch_of(cells: Sequence[Cell[Task]], first: int) -> list[int]:
    """Indices of all cells of a batch, finished or not."""
    shared = _shared(cells[first])
    return [index for index, cell in enumerate(cells) if shared and _shared(cell) == shared]


def _shared(cell: Cell[Task]) -> object:
    return cell.scratch or cell.together


def _elsewhere(
    cells: Sequence[Cell[Task]],
    batches: Sequence[tuple[int, ...]],
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    jobs: int | Cluster,
    run: Callable[[Batch[Task]], list[Done]],
) -> Generator[tuple[tuple[int, ...], list[Done]]]:
    """Each batch that other processes may work on, and its cells, as they end."""
    others = [indices for indices in batches if not _only_here(cells[indices[0]], jobs)]
    tasks = [tuple(cells[index] for index in indices) for indices in others]
    if not tasks:
        return
    if isinstance(jobs, Cluster):
        for number, found in on_workers(procedure, given, tasks, jobs):
            done = _after_kill(procedure, tasks[number], found) if isinstance(found, LostError) else found
            for cell, one in zip(tasks[number], done, strict=True):
                keep(cell, one)
            yield others[number], done
        return
    for number, result in in_processes(run, tasks, jobs):
        if isinstance(result, KilledError):
            yield others[number], _after_kill(procedure, tasks[number], result)
        else:
            yield others[number], result


def _label(cell: Cell[Task]) -> str:
    """What a person recognizes a cell by: the name of its file without the hash."""
    return "" if cell.path is None else cell.path.stem.rpartition("-")[0]


def _only_here(cell: Cell[Task], jobs: int | Cluster) -> bool:
    """Whether this process itself must work on a cell."""
    if isinstance(jobs, Cluster):
        return cell.place != "anywhere"
    return cell.place == "alone" or in_this_process(jobs)


def _inside(report: Report, before: int, total: int) -> Step:
    return lambda done, what: report(before + done, total, what)


def _after_kill(
    procedure: Procedure[Task, Given, Prepared], batch: Batch[Task], error: Exception
) -> list[Done]:
    """Cells that were finished before the kill, and failed rows of the others."""
    return [Done(_kept(cell) or procedure.failed(cell.task, error)) for cell in batch]


def _write(cells: Sequence[Cell[Task]], finished: Finished, directory: Path | None) -> None:
    if directory is not None:
        write_results(_in_order(cells, finished), directory)


def _in_order(cells: Sequence[Cell[Task]], finished: Finished) -> list[Row]:
    return [row for index in range(len(cells)) for row in finished.get(index, ())]


def _tidy(firsts: Sequence[Cell[Task]], directory: Path | None, keep_scratch: bool) -> None:
    """Remove what this run and killed workers left; not what another run works on."""
    if directory is not None:
        remove_stale(directory)
    for cell in firsts:
        claim = claim_of(cell)
        if claim is not None and not keep_scratch:
            remove_unclaimed(claim, cell.scratch)


Plan = TypeVar("Plan")


@dataclass(frozen=True)
class Experiment(Generic[Plan, Task, Prepared]):
    """One question, asked of ratings."""

    # the plan with everything chosen that was left open; settled again it stays the same. What is wrong is
    # refused, before any ratings are loaded
    settle: Callable[[Plan], Plan]
    # of a settled plan on ratings, with the directory of the results, in the order of the rows; it refuses
    # what the ratings do not allow
    cells: Callable[[Plan, Ratings, Path], list[Cell[Task]]]
    procedure: Procedure[Task, Ratings, Prepared]  # how a cell becomes rows

    def run(
        self,
        plan: Plan,
        ratings: Ratings,
        directory: Path,
        *,
        jobs: int | Cluster = -1,
        report: Report = silent,
        found: Found = silent,
    ) -> list[Row]:
        """Run every cell that is not there yet and write the result files."""
        cells = self.cells(self.settle(plan), ratings, directory)
        return run_grid(cells, self.procedure, ratings, directory, jobs=jobs, report=report, found=found)
