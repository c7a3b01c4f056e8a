"""The runner of all grids: it claims cells, runs those that are left, and keeps what is finished."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from audit.experiments.batches import Batch, Done, Step, claim_of, keep, run_batch
from audit.experiments.cell_files import kept_rows
from audit.experiments.cluster import Cluster, LostError, on_workers
from audit.experiments.grid import Cell, Procedure, Report, not_applicable, refuse_if_none_applies, silent
from audit.experiments.locks import remove_stale, remove_unclaimed
from audit.experiments.processes import KilledError, in_processes, in_this_process, supervised
from audit.experiments.results import Row, write_results
from victims.common.errors import OutputError

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
    jobs : int or Cluster
        Parallel processes; -1 is one per core, 1 is this one. Or workers that may be on other machines.
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
        If a cell says that the request is wrong, or no cell applies.
    OutputError
        If something cannot be written.
    """
    refuse_if_none_applies(cells)
    if directory is not None:
        remove_stale(directory)
    finished = {n: rows for n, cell in enumerate(cells) if (rows := _known(cell, procedure)) is not None}
    batches = _batches(cells, finished)
    report(len(finished), len(cells), "")
    try:
        with closing(_results(cells, batches, procedure, given, jobs, keep_scratch, report)) as results:
            for indices, computed in results:
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
        return not_applicable(procedure.failed, cell.task, cell.obstacle)
    return _kept(cell)


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
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    jobs: int | Cluster,
    keep_scratch: bool,
    report: Report,
) -> Generator[tuple[tuple[int, ...], list[Done]]]:
    """Each batch and its cells, as they end; last those that no other process may work on."""
    mine: list[tuple[int, ...]] = []
    others: list[tuple[int, ...]] = []
    for indices in batches:
        (mine if _only_here(cells[indices[0]], jobs) else others).append(indices)
    tasks = [tuple(cells[index] for index in indices) for indices in others]
    if isinstance(jobs, Cluster):
        for number, found in on_workers(procedure, given, tasks, jobs) if tasks else ():
            done = _after_kill(procedure, tasks[number], found) if isinstance(found, LostError) else found
            for cell, one in zip(tasks[number], done, strict=True):
                keep(cell, one)
            yield others[number], done
    run = partial(run_batch, procedure, given, keep_scratch)
    if not isinstance(jobs, Cluster) and tasks:
        for number, result in in_processes(run, tasks, jobs):
            if isinstance(result, KilledError):
                yield others[number], _after_kill(procedure, tasks[number], result)
            else:
                yield others[number], result
    before = len(cells) - sum(map(len, mine))
    for indices in mine:
        with supervised():
            step = _inside(report, before, len(cells))
            done = run(tuple(cells[index] for index in indices), step)
        yield indices, done
        before += len(indices)


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
