"""What a command measures: its plan, settled; its cells; and how those become rows.

``audit``, ``compare``, ``sweep``, ``predict``, ``claims``, ``cost`` and ``quality`` are experiments. Each is
run alone by its command, or as a part of a campaign (``audit.campaigns``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from audit.experiments.cluster import Cluster
from audit.experiments.grid import Cell, Found, Procedure, Report, silent
from audit.experiments.results import Row
from audit.experiments.runner import run_grid
from victims.data.ratings import Ratings

Plan = TypeVar("Plan")
Task = TypeVar("Task")
Prepared = TypeVar("Prepared")


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
