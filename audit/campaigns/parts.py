"""The parts of a campaign: what a command measures, on ratings that have a name.

``PRESETS`` lists the commands. A campaign's cell is a cell of a command's own experiment, with the names of
the experiment and of the ratings, so that one procedure serves cells of all commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from audit.epsilon import claims
from audit.experiments import auditing, comparison, sweep
from audit.experiments.experiment import Experiment
from audit.experiments.grid import Cell, Procedure, Say
from audit.experiments.results import Row
from audit.papers import cost, hu_fang, pdmfrec, ranking_quality, yang
from victims.common.errors import InputError
from victims.data.ratings import Ratings

COMPARE = "compare"


@dataclass(frozen=True)
class Preset:
    """A command: the question that its cells answer, and its experiment."""

    question: str
    experiment: Experiment[Any, Any, Any]


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

    @property
    def question(self) -> str:
        """What the cell answers; a comparison's cells answer one of three questions."""
        return self.task.question if self.preset == COMPARE else PRESETS[self.preset].question


def cells_of(part: Part, ratings: Ratings, directory: Path) -> list[Cell[Placed]]:
    """List the cells of a part."""
    cells = PRESETS[part.preset].experiment.cells(part.plan, ratings, directory)
    return [_placed(part, cell) for cell in cells]


def _placed(part: Part, cell: Cell[Any]) -> Cell[Placed]:
    task = Placed(part.preset, part.data, cell.task)
    return replace(cell, task=task, kind=cell.kind or f"{part.preset} on {part.data}")


def rows_without(task: Placed, error: Exception) -> list[Row]:
    """Make the rows of a cell that was not finished."""
    return _procedure(task).failed(task.task, error)


def _procedure(task: Placed) -> Procedure[Any, Any, Any]:
    return PRESETS[task.preset].experiment.procedure


def _prepare(cell: Cell[Placed], data: Mapping[str, Ratings], say: Say) -> Any:
    own = replace(cell, task=cell.task.task)
    return _procedure(cell.task).prepare(own, data[cell.task.data], say)


def _measure(cell: Cell[Placed], prepared: Any, say: Say) -> list[Row]:
    own = replace(cell, task=cell.task.task)
    try:
        return _procedure(cell.task).measure(own, prepared, say)
    except InputError as error:  # ends a command, which has nothing else to do; a campaign has
        return rows_without(cell.task, error)


PROCEDURE = Procedure(_prepare, _measure, rows_without)
