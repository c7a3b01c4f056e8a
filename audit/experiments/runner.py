"""The runner of all grids: runs the cells that are left, keeps what is finished, says how long it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from audit.experiments.cells import (
    Batch,
    Cell,
    Done,
    Found,
    Procedure,
    Report,
    claim_of,
    keep,
    kept_rows,
    not_run,
    refuse_if_none_applies,
    remove_stale,
    remove_unclaimed,
    run_batch,
    seconds_of,
    silent,
)
from audit.experiments.results import Row, write_results
from audit.experiments.workers import (
    Cluster,
    in_processes,
    in_this_process,
    on_workers,
    processes_of,
    supervised,
)
from audit.shell.progress import lasting
from victims.common.errors import OutputError

WRITE_INTERVAL = 2.0  # seconds between two writes of the result files while a batch goes on
Task = TypeVar("Task")
Given = TypeVar("Given")
Prepared = TypeVar("Prepared")
Finished = dict[int, list[Row]]  # index of a cell -> its rows
Beside = Callable[[list[Row]], list[Row]]  # rows that no cell measures, from those of the finished cells


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
    beside: Beside = lambda rows: [],
) -> list[Row]:
    """Run every cell that is not kept yet, and write the result files; ``beside`` adds rows to theirs.

    Whatever ends the run, cells that were finished are kept. A cell whose process was killed twice is failed
    rows; failed rows are not kept, so that a repeated run tries again.
    """
    refuse_if_none_applies(cells)
    if directory is not None:
        remove_stale(directory)
    finished = {
        index: rows
        for index, cell in enumerate(cells)
        if (rows := _rows_without_work(cell, procedure)) is not None
    }
    batches = _batches(cells, finished)
    report(len(finished), len(cells), "")
    for rows in finished.values():
        found(rows)
    run = partial(run_batch, procedure, given, keep_scratch)
    position = {id(cell): index for index, cell in enumerate(cells)}
    written = time.monotonic()

    def on_finished(cell: Cell[Task], rows: list[Row]) -> None:
        nonlocal written
        finished[position[id(cell)]] = rows
        found(rows)
        if time.monotonic() - written > WRITE_INTERVAL:
            _write(cells, finished, directory, beside)
            written = time.monotonic()

    try:
        with closing(_in_other_processes(cells, batches, procedure, given, jobs, run)) as results:
            for indices, computed in results:
                for index, done in zip(indices, computed, strict=True):
                    on_finished(cells[index], done.rows)
                _write(cells, finished, directory, beside)
                report(len(finished), len(cells), f"last: {_label(cells[indices[-1]])}")
        for indices in batches:
            if indices[0] in finished:
                continue
            earlier = [row for index in _batch_of(cells, indices[0]) for row in finished.get(index, ())]
            step = partial(_report_step, report, len(finished), len(cells))
            batch = tuple(cells[index] for index in indices)
            with supervised():
                computed = run(batch, step, before=earlier, found=on_finished, deadline=deadline)
            finished |= dict(zip(indices, (done.rows for done in computed), strict=True))
            _write(cells, finished, directory, beside)
            report(len(finished), len(cells), "")
    except OutputError:  # room for what is still to be written
        keep_scratch = False
        raise
    finally:
        _clean_up([cells[indices[0]] for indices in batches], directory, keep_scratch)
    if not batches:
        _write(cells, finished, directory, beside)
    return _in_order(cells, finished, beside)


def _rows_without_work(cell: Cell[Task], procedure: Procedure[Task, Given, Prepared]) -> list[Row] | None:
    """The rows of a cell that does not apply or was finished before."""
    if cell.obstacle:
        return not_run((cell.procedure or procedure).failed, cell.task, cell.obstacle)
    return kept_rows(cell.path)


def _batches(cells: Sequence[Cell[Task]], finished: Mapping[int, object]) -> list[tuple[int, ...]]:
    """Indices of the cells that are left, by what they share."""
    batches: dict[object, list[int]] = {}
    for index, cell in enumerate(cells):
        if index not in finished:
            batches.setdefault(_batch_key(cell) or index, []).append(index)
    return [tuple(indices) for indices in batches.values()]


def _batch_of(cells: Sequence[Cell[Task]], first: int) -> list[int]:
    """Indices of all cells of a batch, finished or not."""
    key = _batch_key(cells[first])
    return [index for index, cell in enumerate(cells) if key and _batch_key(cell) == key]


def _batch_key(cell: Cell[Task]) -> object:
    """What the cells of a batch have in common; empty where a cell is a batch of its own."""
    return cell.scratch or cell.together


def _in_other_processes(
    cells: Sequence[Cell[Task]],
    batches: Sequence[tuple[int, ...]],
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    jobs: int | Cluster,
    run: Callable[[Batch[Task]], list[Done]],
) -> Generator[tuple[tuple[int, ...], list[Done]]]:
    """Each batch that other processes may work on, and its cells, as they end."""
    others = [indices for indices in batches if not _must_run_here(cells[indices[0]], jobs)]
    tasks = [tuple(cells[index] for index in indices) for indices in others]
    if not tasks:
        return
    if isinstance(jobs, Cluster):
        for number, far in on_workers(procedure, given, tasks, jobs):
            computed = _done_or_failed(procedure, tasks[number], far)
            for cell, done in zip(tasks[number], computed, strict=True):
                keep(cell, done)
            yield others[number], computed
        return
    for number, near in in_processes(run, tasks, jobs):
        yield others[number], _done_or_failed(procedure, tasks[number], near)


def _label(cell: Cell[Task]) -> str:
    """What a person recognizes a cell by: the name of its file without the hash."""
    return "" if cell.path is None else cell.path.stem.rpartition("-")[0]


def _must_run_here(cell: Cell[Task], jobs: int | Cluster) -> bool:
    """Whether this process itself must work on a cell."""
    if isinstance(jobs, Cluster):
        return cell.place != "anywhere"
    return cell.place == "alone" or in_this_process(jobs)


def _report_step(report: Report, n_before: int, n_cells: int, done: int, what: str) -> None:
    """Report on a batch as part of all cells."""
    report(n_before + done, n_cells, what)


def _done_or_failed(
    procedure: Procedure[Task, Given, Prepared], batch: Batch[Task], result: list[Done] | Exception
) -> list[Done]:
    """The cells of a batch; where its process was killed, those finished before, and failed rows."""
    if not isinstance(result, Exception):
        return result
    failed = (batch[0].procedure or procedure).failed
    return [Done(kept_rows(cell.path) or failed(cell.task, result)) for cell in batch]


def _write(cells: Sequence[Cell[Task]], finished: Finished, directory: Path | None, beside: Beside) -> None:
    if directory is not None:
        write_results(_in_order(cells, finished, beside), directory)


def _in_order(cells: Sequence[Cell[Task]], finished: Finished, beside: Beside) -> list[Row]:
    rows = [row for index in range(len(cells)) for row in finished.get(index, ())]
    return [*rows, *beside(rows)]


def _clean_up(firsts: Sequence[Cell[Task]], directory: Path | None, keep_scratch: bool) -> None:
    """Remove what this run and killed workers left; not what another run works on."""
    if directory is not None:
        remove_stale(directory)
    for cell in firsts:
        claim = claim_of(cell)
        if claim is not None and not keep_scratch:
            remove_unclaimed(claim, cell.scratch)


Plan = TypeVar("Plan")


@dataclass(frozen=True)
class Experiment(Generic[Plan, Task, Given, Prepared]):
    """One question, asked of ratings, or of what else is given."""

    # the plan with everything chosen that was left open; settled again it stays the same. What is wrong is
    # refused, before any ratings are loaded
    settle: Callable[[Plan], Plan]
    # of a settled plan on what is given, with the directory of the results, in the order of the rows; it
    # refuses what the ratings do not allow
    cells: Callable[[Plan, Given, Path], list[Cell[Task]]]
    procedure: Procedure[Task, Given, Prepared]  # how a cell becomes rows
    # of a settled plan: rows that are known without a cell, beside those of the finished ones
    known: Callable[[Plan, Given, list[Row]], list[Row]] = lambda plan, given, rows: []

    def run(
        self,
        plan: Plan,
        given: Given,
        directory: Path,
        *,
        jobs: int | Cluster = -1,
        report: Report = silent,
        found: Found = silent,
    ) -> list[Row]:
        """Run every cell that is not there yet and write the result files."""
        plan = self.settle(plan)
        return run_grid(
            self.cells(plan, given, directory), self.procedure, given, directory,
            jobs=jobs, report=report, found=found, beside=partial(self.known, plan, given),
        )  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    """Seconds of the cells that are left."""

    left: int  # cells that are to be run
    timed: int  # finished cells that the estimate rests on
    unknown: tuple[str, ...]  # kinds of cells that are left, of which none was timed
    seconds: float  # of all cells that are left and whose kind was timed, one after the other
    processes: int  # that share them; 0 where that is not known

    def __str__(self) -> str:
        """One line for people."""
        if not self.left:
            return "estimate: nothing is left to run"
        if self.unknown:
            names = ", ".join(self.unknown)
            return f"no estimate: nothing was timed yet of {names}; --estimate tries one cell of each"
        shared = self.seconds / max(self.processes, 1)
        who = f"in {self.processes} processes" if self.processes > 1 else "one after the other"
        return (
            f"estimate: {lasting(shared)} for {self.left} cells {who}, from {self.timed} that were timed; "
            f"cells of one kind differ by the factor that their defenses, attacks and rounds do"
        )

    def record(self) -> dict[str, int | float | None]:
        """Make what a program reads: seconds that the rest may take; None where that is not known."""
        known = not self.unknown
        return {"left": self.left, "estimate": self.seconds / max(self.processes, 1) if known else None}


def estimated(cells: Sequence[Cell[Any]], jobs: int | Cluster) -> Estimate:
    """Estimate what is left from what was timed."""
    times, left = _times(cells)
    means = {kind: sum(seconds) / len(seconds) for kind, seconds in times.items()}
    unknown = tuple(dict.fromkeys(cell.kind for cell in left if cell.kind not in means))
    return Estimate(
        left=len(left),
        timed=sum(map(len, times.values())),
        unknown=unknown,
        seconds=float(sum(means.get(cell.kind, 0.0) for cell in left)),
        processes=0 if isinstance(jobs, Cluster) else processes_of(jobs),
    )


def trials(cells: Sequence[Cell[Task]]) -> list[Cell[Task]]:
    """Choose the first cell of each kind of which none was timed."""
    times, left = _times(cells)
    first: dict[str, Cell[Task]] = {}
    for cell in left:
        if cell.kind not in times:
            first.setdefault(cell.kind, cell)
    return list(first.values())


def try_out(
    cells: Sequence[Cell[Task]],
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    report: Report = silent,
) -> None:
    """Run one cell of each kind that was never timed, in this process."""
    run_grid(trials(cells), procedure, given, report=report)


def _times(cells: Sequence[Cell[Task]]) -> tuple[Mapping[str, list[float]], list[Cell[Task]]]:
    """Seconds of finished cells by kind, and the cells that are left."""
    times: dict[str, list[float]] = {}
    left = []
    for cell in cells:
        if cell.path is None or not cell.path.exists():
            left.append(cell)
        elif not math.isnan(seconds := seconds_of(cell.path)):
            times.setdefault(cell.kind, []).append(seconds)
    return times, left
