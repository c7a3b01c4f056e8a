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
    """One question, asked of ratings.

    Attributes
    ----------
    settle : callable
        The plan with everything chosen that was left open; settled again it stays the same. What is wrong is
        refused, before any ratings are loaded.
    cells : callable
        Of a settled plan on ratings, with the directory of the results, in the order of the rows; it refuses
        what the ratings do not allow.
    procedure : Procedure
        How a cell becomes rows.
    """

    settle: Callable[[Plan], Plan]
    cells: Callable[[Plan, Ratings, Path], list[Cell[Task]]]
    procedure: Procedure[Task, Ratings, Prepared]

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
        """Run every cell that is not there yet and write the result files.

        Parameters
        ----------
        plan : Plan
        ratings : Ratings
        directory : Path
            Of the result files; created if missing.
        jobs : int or Cluster
            Parallel processes; -1 is one per core. Or workers that may be on other machines.
        report : callable
            Called with (cells done, cells in all, what is going on).
        found : callable
            Called with the rows of each cell.

        Returns
        -------
        list of dict
            All rows, in the order of the cells.

        Raises
        ------
        InputError
            If a name, option or number is wrong, or the ratings do not allow it.
        OutputError
            If something cannot be written.
        """
        cells = self.cells(self.settle(plan), ratings, directory)
        return run_grid(cells, self.procedure, ratings, directory, jobs=jobs, report=report, found=found)
