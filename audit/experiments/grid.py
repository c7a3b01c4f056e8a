"""What a grid is made of: cells, and the procedure by which a cell becomes rows (run by ``runner``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from audit.experiments.results import Row
from victims.common.errors import InputError
from victims.data.ratings import Ratings

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
    # where the rows are kept, under a hash of everything that determines them (``naming.cell_path``); None
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


@dataclass(frozen=True)
class Procedure(Generic[Task, Given, Prepared]):
    """How the cells of a grid become rows; all functions are picklable."""

    # what all cells of a batch need, from the first of those that are left. Any error of it is a failed row
    # for each of them
    prepare: Callable[[Cell[Task], Given, Say], Prepared]
    # the rows of a cell, a pure function of the cell and of what is prepared. An ``InputError`` says that the
    # request was wrong, and ends the run; another error is a failed row
    measure: Callable[[Cell[Task], Prepared, Say], list[Row]]
    # the rows of a cell that could not be finished; it may raise the error, which then ends the run
    failed: Callable[[Task, Exception], list[Row]]
    # an array that is kept beside the rows of a cell, from the cell and what is prepared
    beside: Callable[[Cell[Task], Prepared], np.ndarray] | None = None
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
