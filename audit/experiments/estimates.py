"""How long a grid will take, from cells of the same kind that were timed: an estimate, not a promise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from audit.experiments.cache import seconds_of
from audit.experiments.cluster import Cluster
from audit.experiments.grid import Cell, Procedure, Report, silent
from audit.experiments.processes import processes_of
from audit.experiments.runner import run_grid
from audit.shell.progress import lasting

Task = TypeVar("Task")
Given = TypeVar("Given")
Prepared = TypeVar("Prepared")


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
