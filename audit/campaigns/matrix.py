"""The parts of a campaign: what a command measures, on ratings that have a name.

``PRESETS`` lists the commands. A campaign's cell is a cell of a command's own experiment, with the names of
the experiment and of the ratings, so that one procedure serves cells of all commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from audit.epsilon import claims
from audit.experiments import auditing, comparison, sweep
from audit.experiments.across_rows import controlled, strongest
from audit.experiments.cells import Cell, Procedure, Report, Say, not_run, refuse_if_none_applies, silent
from audit.experiments.comparison import Asked
from audit.experiments.options import MOST_CELLS
from audit.experiments.plan import Comparison
from audit.experiments.results import Row, make_row, write_results
from audit.experiments.rows import HEADLINE
from audit.experiments.runner import Experiment, run_grid
from audit.experiments.workers import Cluster
from audit.papers import cost, hu_fang, pdmfrec, ranking_quality, yang
from audit.registry import main_name
from audit.scoring.verdicts import NOT_TESTED
from victims.common.errors import InputError
from victims.data.ratings import Ratings

COMPARE = "compare"


@dataclass(frozen=True)
class Preset:
    """A command: the question that its cells answer, and its experiment."""

    question: str
    experiment: Experiment[Any, Any, Any, Any]


PRESETS = {
    COMPARE: Preset("leakage", comparison.EXPERIMENT),
    "audit": Preset("leakage", auditing.EXPERIMENT),
    "sweep": Preset("sweep", sweep.EXPERIMENT),
    "predict mf": Preset("prediction", hu_fang.EXPERIMENT),
    "predict pdmfrec": Preset("prediction", pdmfrec.EXPERIMENT),
    "predict dpmf-yang": Preset("prediction", yang.EXPERIMENT),
    "claims": Preset("claims", claims.EXPERIMENT),
    "cost": Preset("cost", cost.EXPERIMENT),
    "quality": Preset("quality", ranking_quality.EXPERIMENT),
}


@dataclass(frozen=True)
class Part:
    """What one command measures."""

    preset: str  # A key of ``PRESETS``
    data: str  # name of the ratings
    plan: Any  # of the preset's experiment, settled
    asked: str = ""  # the block that asks for it; what asks for nothing that applies is refused


@dataclass(frozen=True)
class Placed:
    """The task of a campaign's cell: a task of a preset's experiment, on ratings that have a name."""

    preset: str
    data: str
    task: Any
    procedure: Procedure[Any, Any, Any]  # the cell's own, or its experiment's

    @property
    def question(self) -> str:
        """What the cell answers; a comparison's cells answer one of three questions."""
        return self.task.question if self.preset == COMPARE else PRESETS[self.preset].question


def cells_of(part: Part, ratings: Ratings, directory: Path) -> list[Cell[Placed]]:
    """List the cells of a part."""
    cells = PRESETS[part.preset].experiment.cells(part.plan, ratings, directory)
    return [_placed(part, cell) for cell in cells]


def _placed(part: Part, cell: Cell[Any]) -> Cell[Placed]:
    procedure = cell.procedure or PRESETS[part.preset].experiment.procedure
    task = Placed(part.preset, part.data, cell.task, procedure)
    return replace(cell, task=task, kind=cell.kind or f"{part.preset} on {part.data}", procedure=None)


def rows_without(task: Placed, error: Exception) -> list[Row]:
    """Make the rows of a cell that was not finished."""
    return task.procedure.failed(task.task, error)


def _prepare(cell: Cell[Placed], data: Mapping[str, Ratings], say: Say) -> Any:
    own = replace(cell, task=cell.task.task)
    return cell.task.procedure.prepare(own, data[cell.task.data], say)


def _measure(cell: Cell[Placed], prepared: Any, say: Say) -> list[Row] | tuple[list[Row], np.ndarray | None]:
    own = replace(cell, task=cell.task.task)
    try:
        return cell.task.procedure.measure(own, prepared, say)
    except InputError as error:  # ends a command, which has nothing else to do; a campaign has
        return rows_without(cell.task, error)


PROCEDURE = Procedure(_prepare, _measure, rows_without)


ALWAYS = ("leakage", "cost", "quality")  # questions that are counted where there is none, too


@dataclass(frozen=True)
class Exclusion:
    """Cells that are left out, and why."""

    # values that a cell must have: of victim, update, weighting, data, defense, adversary, attack, seed
    where: Mapping[str, str]
    reason: str

    def names(self, columns: Mapping[str, Any]) -> bool:
        """Whether a row with such columns is meant."""
        return all(_said(name, columns.get(name)) == _said(name, value) for name, value in self.where.items())


def _said(column: str, value: object) -> str:
    return main_name("victims", str(value)) if column == "victim" else str(value)


@dataclass(frozen=True)
class Matrix:
    """Measurements that are run as one."""

    parts: tuple[Part, ...]
    exclusions: tuple[Exclusion, ...] = ()


class Listed(NamedTuple):
    """The cells of a campaign, each once, and a row for everything that is left out."""

    cells: list[Cell[Placed]]
    excluded: list[Row]
    matrix: Matrix  # without what is left out of comparisons


def run(
    listed: Listed,
    data: Mapping[str, Ratings],
    directory: Path,
    *,
    jobs: int | Cluster = -1,
    report: Report = silent,
) -> list[Row]:
    """Run every cell that is not there yet, and write the result files."""
    known = partial(_known, listed.matrix, data)
    rows = run_grid(listed.cells, PROCEDURE, data, directory, jobs=jobs, report=report, beside=known)
    rows = controlled(rows)
    rows = [*rows, *strongest(rows), *listed.excluded]
    write_results(rows, directory)
    return rows


def _known(matrix: Matrix, data: Mapping[str, Ratings], rows: list[Row]) -> list[Row]:
    """What experiments know of their plans without a cell; each once, without what is excluded."""
    return _each_once(
        row
        for part in matrix.parts
        for row in PRESETS[part.preset].experiment.known(part.plan, data[part.data], rows)
        if not any(one.names(row) for one in matrix.exclusions)
    )


def listed(matrix: Matrix, data: Mapping[str, Ratings], directory: Path) -> Listed:
    """List the cells, and what is left out."""
    cells: dict[Path | None, Cell[Placed]] = {}
    left_out: list[Row] = []
    asked: dict[str, list[Cell[Placed]]] = {}
    met: set[int] = set()
    parts: list[Part] = []
    for part in matrix.parts:
        kept, rows = _without(part, matrix.exclusions, met)
        left_out += rows
        parts += kept
        for cell in (one for some in kept for one in cells_of(some, data[part.data], directory)):
            excluded = matrix.exclusions and part.preset != COMPARE
            reason = _reason(matrix.exclusions, _columns(cell), met) if excluded else None
            asked.setdefault(part.asked, []).append(cell)
            _refuse_many(asked)
            if reason is None and not cell.obstacle:
                cells.setdefault(cell.path, cell)
            else:
                left_out += not_run(rows_without, cell.task, reason or cell.obstacle)
    _refuse_idle(asked)
    _refuse_unmet(matrix.exclusions, met)
    return Listed(list(cells.values()), _each_once(left_out), replace(matrix, parts=tuple(parts)))


def _refuse_many(asked: Mapping[str, Sequence[Cell[Placed]]]) -> None:
    if sum(map(len, asked.values())) > MOST_CELLS:
        raise InputError(
            f"a campaign must have at most {MOST_CELLS:,} cells, got more; leave some out, or split it into "
            "several files"
        )


def _refuse_idle(asked: Mapping[str, Sequence[Cell[Placed]]]) -> None:
    for name, cells in asked.items():
        try:
            refuse_if_none_applies(cells)
        except InputError as error:
            raise InputError(f"campaign: {name}: {error}") from None


def _refuse_unmet(exclusions: Sequence[Exclusion], met: Collection[int]) -> None:
    for number, exclusion in enumerate(exclusions):
        if number not in met:
            words = ", ".join(f"{name} = {value!r}" for name, value in exclusion.where.items())
            raise InputError(f"campaign: the exclusion with {words} means no cell; correct or remove it")


def _each_once(rows: Iterable[Row]) -> list[Row]:
    """Two blocks may ask for one cell that is left out."""
    return list({repr(row): row for row in rows}.values())


def _without(part: Part, exclusions: Sequence[Exclusion], met: set[int]) -> tuple[list[Part], list[Row]]:
    """A comparison by defense, each with the adversaries that stay, for a cell of it has all of them."""
    if part.preset != COMPARE:
        return [part], []
    plan: Comparison = part.plan
    parts, rows = [], []
    for defense in plan.defenses:
        columns = Asked(plan, defense, "leakage").columns()
        reasons = {who: _reason(exclusions, {**columns, "adversary": who}, met) for who in plan.adversaries}
        stay = tuple(who for who, reason in reasons.items() if reason is None)
        if stay:
            parts.append(replace(part, plan=replace(plan, defenses=(defense,), adversaries=stay)))
        rows += [
            make_row(
                **columns,
                adversary=who,
                metric=HEADLINE,
                status="not applicable",
                verdict=NOT_TESTED,
                reason=reason,
            )
            for who, reason in reasons.items()
            if reason is not None
        ]
    return parts, rows


def _reason(exclusions: Sequence[Exclusion], columns: Mapping[str, Any], met: set[int]) -> str | None:
    """Why something is left out, None where it stays; exclusions that mean it are noted as met."""
    found = [number for number, one in enumerate(exclusions) if one.names(columns)]
    met.update(found)
    return f"excluded by the campaign: {exclusions[found[0]].reason}" if found else None


def _columns(cell: Cell[Placed]) -> Row:
    """The columns that a row of the cell has."""
    return rows_without(cell.task, InputError(""))[0]


def counts_of(cells: Sequence[Cell[Placed]]) -> dict[str, int]:
    """Count cells by their question, and those that are kept already."""
    found = Counter(cell.task.question for cell in cells)
    counts = {name: found[name] for name in dict.fromkeys((*ALWAYS, *found))}
    return {**counts, "kept": sum(cell.path is not None and cell.path.exists() for cell in cells)}
