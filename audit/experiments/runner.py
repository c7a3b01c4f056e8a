"""The runner of all grids: it claims cells, runs those that are left, and keeps what is finished."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from audit.experiments.cell_files import kept_rows, write_cell
from audit.experiments.compiled_programs import programs_kept
from audit.experiments.grid import Cell, Procedure, Report, Say, silent
from audit.experiments.locks import claimed, remove_stale, remove_unclaimed
from audit.experiments.processes import KilledError, in_processes, in_this_process, supervised
from audit.experiments.results import Row, write_results
from audit.shell.debugging import trace
from victims.common.errors import InputError, OutputError
from victims.common.files import remove, scratch_folder, unfinished

Task = TypeVar("Task")
Given = TypeVar("Given")
Prepared = TypeVar("Prepared")
Batch = tuple[Cell[Task], ...]
Finished = dict[int, list[Row]]  # index of a cell -> its rows
Step = Callable[[int, str], None]  # told how many cells of a batch are done, and what goes on


def run_grid(
    cells: Sequence[Cell[Task]],
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    directory: Path | None = None,
    *,
    jobs: int = 1,
    keep_scratch: bool = False,
    report: Report = silent,
) -> list[Row]:
    """Run every cell that is not kept yet, and write the result files.

    Whatever ends the run, cells that were finished are kept. A cell whose process was killed twice is failed
    rows; failed rows are not kept, so that a repeated run tries again.

    Parameters
    ----------
    cells : sequence of Cell
    procedure : Procedure
    given : object
        What all cells start from.
    directory : Path, optional
        Of the result files, which are written whenever a batch ends; None writes none.
    jobs : int
        Parallel processes; -1 is one per core, 1 is this one.
    keep_scratch : bool
        Leave what was prepared.
    report : callable
        Called with (cells done, cells in all, what goes on).

    Returns
    -------
    list of dict
        All rows, in the order of the cells.

    Raises
    ------
    InputError
        If a cell says that the request is wrong.
    OutputError
        If something cannot be written.
    """
    if directory is not None:
        remove_stale(directory)
    finished = {n: rows for n, cell in enumerate(cells) if (rows := _kept(cell)) is not None}
    batches = _batches(cells, finished)
    report(len(finished), len(cells), "")
    try:
        run = partial(_run_batch, procedure, given, keep_scratch)
        with closing(_results(cells, batches, run, procedure, jobs, report)) as results:
            for indices, computed in results:
                finished |= dict(zip(indices, computed, strict=True))
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


def _kept(cell: Cell[Task]) -> list[Row] | None:
    return None if cell.path is None else kept_rows(cell.path)


def _batches(cells: Sequence[Cell[Task]], finished: Mapping[int, object]) -> list[tuple[int, ...]]:
    """Indices of the cells that are left, those that share their scratch together."""
    batches: dict[object, list[int]] = {}
    for index, cell in enumerate(cells):
        if index not in finished:
            batches.setdefault(cell.scratch or index, []).append(index)
    return [tuple(indices) for indices in batches.values()]


def _results(
    cells: Sequence[Cell[Task]],
    batches: Sequence[tuple[int, ...]],
    run_batch: Callable[..., list[list[Row]]],
    procedure: Procedure[Task, Given, Prepared],
    jobs: int,
    report: Report,
) -> Generator[tuple[tuple[int, ...], list[list[Row]]]]:
    """Each batch and the rows of its cells, as they end."""
    tasks = [tuple(cells[index] for index in indices) for indices in batches]
    with scratch_folder() as programs:
        run = partial(run_batch, programs)
        if in_this_process(jobs):
            done = len(cells) - sum(map(len, batches))
            for indices, batch in zip(batches, tasks, strict=True):
                with supervised():
                    results = run(batch, _inside(report, done, len(cells)))
                yield indices, results
                done += len(indices)
            return
        for number, found in in_processes(run, tasks, jobs):
            if isinstance(found, KilledError):
                yield batches[number], _after_kill(procedure, tasks[number], found)
            else:
                yield batches[number], found


def _inside(report: Report, before: int, total: int) -> Step:
    return lambda done, what: report(before + done, total, what)


def _after_kill(
    procedure: Procedure[Task, Given, Prepared], batch: Batch[Task], error: KilledError
) -> list[list[Row]]:
    """Rows of cells that were finished before the kill, and failed rows of the others."""
    return [_kept(cell) or procedure.failed(cell.task, error) for cell in batch]


def _run_batch(
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    keep_scratch: bool,
    programs: Path,
    batch: Batch[Task],
    step: Step = silent,
) -> list[list[Row]]:
    """The rows of each cell of a batch; those that another run finished meanwhile are read."""
    with ExitStack() as stack:
        claim = _claim(batch[0])
        if claim is not None:
            stack.enter_context(claimed(claim))
        stack.enter_context(programs_kept(programs / str(os.getpid())))
        kept = {
            cell.path: rows
            for cell in batch
            if cell.path is not None and (rows := kept_rows(cell.path, silent)) is not None
        }
        left = [cell for cell in batch if cell.path not in kept]
        if not procedure.resumable and left:
            for path in batch[0].scratch:
                remove(path)
                stack.enter_context(unfinished(path))
        computed = iter(_computed(procedure, given, left, partial(_counted, step, len(kept))))
        if not keep_scratch:
            for path in batch[0].scratch:
                remove(path)
        return [kept[cell.path] if cell.path in kept else next(computed) for cell in batch]


def _counted(step: Step, before: int, done: int, what: str) -> None:
    step(before + done, what)


def _claim(cell: Cell[Task]) -> Path | None:
    """What only one run may work on at a time."""
    return cell.scratch[0] if cell.scratch else cell.path


def _computed(
    procedure: Procedure[Task, Given, Prepared], given: Given, cells: Sequence[Cell[Task]], step: Step
) -> list[list[Row]]:
    """The rows of each cell, written when they are there."""
    if not cells:
        return []
    try:
        prepared = procedure.prepare(cells[0], given, partial(step, 0))
    except OutputError:
        raise
    except Exception as error:  # training diverged, say
        trace(error)
        return [procedure.failed(cell.task, error) for cell in cells]
    rows = []
    for done, cell in enumerate(cells):
        rows.append(_measured(procedure, cell, prepared, partial(step, done)))
        if cell.path is not None and not _has_failed(rows[-1]):  # a repeated run tries again
            write_cell(cell.path, rows[-1])
    return rows


def _measured(
    procedure: Procedure[Task, Given, Prepared], cell: Cell[Task], prepared: Prepared, say: Say
) -> list[Row]:
    try:
        return procedure.measure(cell, prepared, say)
    except (InputError, OutputError):
        raise
    except Exception as error:  # a failed cell is a row with its reason, never a missing row
        trace(error)
        return procedure.failed(cell.task, error)


def _has_failed(rows: Sequence[Row]) -> bool:
    return any(row["status"] == "failed" for row in rows)


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
        claim = _claim(cell)
        if claim is not None and not keep_scratch:
            remove_unclaimed(claim, cell.scratch)
