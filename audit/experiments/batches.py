"""One batch of cells: claimed, prepared once, measured one after the other, kept as each is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from audit.experiments.cache import claimed, kept_rows, write_cell
from audit.experiments.grid import Cell, Procedure, Say, not_run, silent
from audit.experiments.results import Row, write_user_errors
from audit.plugins import said
from audit.shell.deadline import OutOfTime, until
from audit.shell.debugging import trace
from audit.shell.programs import keep_programs
from victims.common.errors import InputError, OutputError
from victims.common.files import remove, unfinished

Task = TypeVar("Task")
Given = TypeVar("Given")
Prepared = TypeVar("Prepared")
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
    keep_programs()
    with ExitStack() as stack:
        claim = claim_of(batch[0])
        if claim is not None:
            stack.enter_context(claimed(claim))
        kept = {
            cell.path: Done(rows)
            for cell in batch
            if cell.path is not None and (rows := kept_rows(cell.path, silent)) is not None
        }
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
            write_user_errors(cell.path, done.beside)
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
            rows = procedure.measure(cell, prepared, say)
        if procedure.beside is None or any(row["status"] == "failed" for row in rows):
            return rows, None
        return rows, procedure.beside(cell, prepared)
    except (InputError, OutputError, KeyboardInterrupt):
        raise
    except OutOfTime:
        return _not_reached(procedure, cell), None
    except BaseException as error:  # a failed cell is a row with its reason, never a missing row
        trace(error)
        return procedure.failed(cell.task, _failure(error)), None
