"""Many comparisons as one grid: victims, data, seeds and rounds against defenses and adversaries.

Cells are those of single comparisons: a repeated run goes on where it was, and what two campaigns share is
computed once where they share a folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from audit.experiments import compare_rows
from audit.experiments.cluster import Cluster
from audit.experiments.compare import settled
from audit.experiments.compare_cells import Asked, Comparison, cells_of
from audit.experiments.false_discoveries import controlled
from audit.experiments.grid import Cell, Procedure, Report, Say, silent
from audit.experiments.metric_rows import HEADLINE
from audit.experiments.naming import content_of
from audit.experiments.results import Row, make_row, write_results
from audit.experiments.runner import run_grid
from audit.experiments.strongest import strongest
from audit.scoring.statistics import NOT_TESTED
from victims.data.ratings import Ratings


@dataclass(frozen=True)
class Exclusion:
    """Cells that are left out, and why.

    Attributes
    ----------
    where : dict of str to str
        Values that a cell must have: of victim, update, weighting, data, defense, adversary, seed.
    reason : str
    """

    where: Mapping[str, str]
    reason: str

    def names(self, plan: Comparison, defense: str, adversary: str) -> bool:
        """Whether a cell is meant; one that names no adversary means all of the defense."""
        values = {
            "victim": plan.victim, "update": plan.update, "weighting": plan.weighting, "data": plan.data,
            "defense": defense, "adversary": adversary, "seed": str(plan.seed),
        }  # fmt: skip
        return all(values[name] == value for name, value in self.where.items())


@dataclass(frozen=True)
class Matrix:
    """Comparisons that are run as one.

    Attributes
    ----------
    plans : tuple of Comparison
    exclusions : tuple of Exclusion
    """

    plans: tuple[Comparison, ...]
    exclusions: tuple[Exclusion, ...] = ()


def run(
    matrix: Matrix,
    data: Mapping[str, Ratings],
    directory: Path,
    *,
    jobs: int | Cluster = -1,
    report: Report = silent,
) -> list[Row]:
    """Run every cell that is not there yet, and write the result files.

    Parameters
    ----------
    matrix : Matrix
    data : mapping
        Name of the ratings in the plans -> the ratings.
    directory : Path
        Created if missing.
    jobs : int or Cluster
        Parallel processes; -1 is one per core. Or workers that may be on other machines.
    report : callable
        Called with (cells done, cells in all, what is going on).

    Returns
    -------
    list of dict
        All rows, verdicts controlled over the whole, then the strongest answer of each adversary; excluded
        cells are rows with their reason.

    Raises
    ------
    InputError
        If a name is unknown.
    OutputError
        If something cannot be written.
    """
    cells = cells_in(matrix, {name: content_of(ratings) for name, ratings in data.items()}, directory)
    rows = run_grid(cells, PROCEDURE, data, directory, jobs=jobs, report=report)
    rows = controlled(rows)
    rows = [*rows, *strongest(rows), *excluded(matrix)]
    write_results(rows, directory)
    return rows


def cells_in(matrix: Matrix, contents: Mapping[str, str], directory: Path) -> list[Cell[Asked]]:
    """List the cells, each once.

    Parameters
    ----------
    matrix : Matrix
    contents : mapping
        Name of the ratings -> their hash.
    directory : Path
        Of the results.

    Returns
    -------
    list of Cell

    Raises
    ------
    InputError
        If a name is unknown.
    """
    cells: dict[Path | None, Cell[Asked]] = {}
    for plan in matrix.plans:
        whole = settled(plan)
        for defense in plan.defenses:
            kept = tuple(who for who in plan.adversaries if _exclusion(matrix, plan, defense, who) is None)
            if not kept:
                continue
            one = replace(whole, defenses=(defense,), adversaries=kept)
            for cell in cells_of(one, contents[plan.data], directory):
                cells.setdefault(cell.path, cell)
    return list(cells.values())


def excluded(matrix: Matrix) -> list[Row]:
    """Make a row for each adversary and defense that is left out.

    Parameters
    ----------
    matrix : Matrix

    Returns
    -------
    list of dict
    """
    return [
        make_row(
            **Asked(plan, defense, "leakage").columns(),
            adversary=adversary,
            metric=HEADLINE,
            status="not applicable",
            verdict=NOT_TESTED,
            reason=f"excluded by the campaign: {found.reason}",
        )
        for plan in matrix.plans
        for defense in plan.defenses
        for adversary in plan.adversaries
        if (found := _exclusion(matrix, plan, defense, adversary)) is not None
    ]


def _exclusion(matrix: Matrix, plan: Comparison, defense: str, adversary: str) -> Exclusion | None:
    return next((one for one in matrix.exclusions if one.names(plan, defense, adversary)), None)


def _prepare(cell: Cell[Asked], data: Mapping[str, Ratings], say: Say) -> Ratings:
    return data[cell.task.comparison.data]


PROCEDURE = Procedure(_prepare, compare_rows.PROCEDURE.measure, compare_rows.PROCEDURE.failed, resumable=True)


def counts_of(cells: Sequence[Cell[Asked]]) -> dict[str, int]:
    """Count cells by their question, and those that are kept already.

    Parameters
    ----------
    cells : sequence of Cell

    Returns
    -------
    dict
    """
    counts = {
        name: sum(cell.task.question == name for cell in cells) for name in ("leakage", "cost", "quality")
    }
    return {**counts, "kept": sum(cell.path is not None and cell.path.exists() for cell in cells)}
