"""What encrypted rounds cost, for numbers of items and systems: the grid behind ``factorleak cost``."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from audit.code_identity import code_used
from audit.experiments.grid import Cell, Procedure, Report, Say, only_ratings, silent
from audit.experiments.metric_rows import failed_row
from audit.experiments.naming import cell_path, content_of
from audit.experiments.operation_counts import server_share
from audit.experiments.results import Row, make_row
from audit.experiments.round_cost import SAMPLE_ROWS, Cost, cost_of
from audit.experiments.runner import run_grid
from audit.factories import make_defense, make_defenses, make_victim
from audit.registry import recorded_name
from victims.data.ratings import Ratings
from victims.data.subsets import most_rated

HEADLINE = "slowest"  # seconds of a round, in paper 001's accounting


@dataclass(frozen=True)
class Sheet:
    """What to measure: every number of items in the clear, with phe, and packed under every key length."""

    victim: str = "fedmf"
    data: str = "synthetic"
    options: dict[str, Any] = field(default_factory=dict)
    items: tuple[int, ...] = ()
    key_bits: tuple[int, ...] = (1024, 2048)
    phe: bool = True
    defense: str = "none"
    sample: int = SAMPLE_ROWS
    bits_per_second: float = 1e9
    seed: int = 0


class System(NamedTuple):
    """How rows are protected: defenses as text, the length of the key, and whether phe encrypts."""

    name: str
    defense: str
    key_bits: int = 0
    phe: bool = False

    @property
    def shown(self) -> str:
        """What the column ``defense`` says."""
        if not self.phe:
            return self.defense
        return f"{'' if self.defense == 'none' else f'{self.defense}+'}phe:key_bits={self.key_bits}"


class Round(NamedTuple):
    """The task of a cell: a round of a system on the most rated items."""

    sheet: Sheet
    items: int
    system: System

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        sheet = self.sheet
        return {
            "victim": recorded_name(sheet.victim),
            "update": str(sheet.options.get("update", "")),
            "weighting": str(sheet.options.get("weighting", "")),
            "data": f"{sheet.data}, the {self.items} most rated items",
            "defense": self.system.shown,
            "rounds": 1,
            "seed": sheet.seed,
        }


def run(
    sheets: Sequence[Sheet], ratings: Ratings, directory: Path | None = None, *, report: Report = silent
) -> list[Row]:
    """Measure one after the other, for what runs beside would be in the seconds.

    Parameters
    ----------
    sheets : sequence of Sheet
    ratings : Ratings
    directory : Path, optional
        Of the result files; cells in it are not measured again on the same machine. None writes nothing.
    report : callable
        Called with (cells done, cells in all, what is going on).

    Returns
    -------
    list of dict
        One row per number of items, system and number; ``wide`` puts those of a system side by side.

    Raises
    ------
    InputError
        If a name or option is wrong.
    OutputError
        If something cannot be written.
    """
    content = content_of(ratings)
    cells = []
    for sheet in sheets:
        make_victim(sheet.victim, sheet.options)
        make_defenses(sheet.defense)
        counts = sheet.items or (ratings.n_items,)
        rounds = [Round(sheet, count, system) for count in counts for system in _systems(sheet)]
        cells += [_cell(task, content, directory) for task in rounds]
    return run_grid(cells, PROCEDURE, ratings, directory, report=report)


def wide(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Put all numbers of a system side by side; systems that failed are left out.

    Parameters
    ----------
    rows : sequence of mapping
        Of ``run``.

    Returns
    -------
    list of dict
        One row per upload, number of items and system, with all numbers of ``Cost``.
    """
    found: dict[tuple[Any, ...], Row] = {}
    notes = {}
    for row in rows:
        if row["status"] == "ran":
            key = row["upload"], row["items"], row["system"]
            shared = {"items": row["items"], "ratings": row["ratings"], "system": row["system"]}
            found.setdefault(key, shared)[row["metric"]] = row["value"]
            notes[key] = row["reason"]
    return [{**row, "note": notes[key]} for key, row in found.items()]


def _cell(task: Round, content: str, directory: Path | None) -> Cell[Round]:
    """A cell that is named by the machine, too: it measures seconds."""
    if directory is None:
        return Cell(task)
    sheet, system = task.sheet, task.system
    identity = {
        "code": code_used(sheet.victim, [system.defense]),
        "sheet": {**asdict(sheet), "items": task.items, "key_bits": 0, "phe": False},
        "system": system,
        "ratings": content,
        "machine": (platform.node(), platform.machine(), platform.processor()),
    }
    return Cell(task, cell_path(directory, f"{task.items}-{system.name.replace(', ', '-')}", identity))


def _systems(sheet: Sheet) -> list[System]:
    systems = [System("in the clear", sheet.defense)]
    before = "" if sheet.defense == "none" else f"{sheet.defense}+"
    for bits in sheet.key_bits:
        if sheet.phe:
            systems.append(System(f"phe, {bits} bit", sheet.defense, bits, phe=True))
        encryption = f"paillier:key_bits={bits}"
        make_defense(encryption)
        systems.append(System(f"packed, {bits} bit", before + encryption, bits))
    return systems


def _measure(cell: Cell[Round], ratings: Ratings, say: Say) -> list[Row]:
    sheet, items, system = cell.task
    some = most_rated(ratings, items)
    victim: Any = make_victim(sheet.victim, sheet.options)
    cost = cost_of(
        victim,
        some,
        make_defenses(system.defense),
        sheet.seed,
        sample=sheet.sample,
        phe_bits=system.key_bits if system.phe else None,
        progress=lambda what: say(f"{items} items, {system.name}: {what}"),
    )
    speed = sheet.bits_per_second
    spent = {
        "slowest": cost.slowest(speed),
        "server_share": cost.server_share(),
        "server_share_subtracting": cost.server_share(subtracts=True),
        **_counted(cost, system.key_bits),
        "seconds_transfer": cost.transfer(speed),
        "seconds_transfer_mean": cost.transfer(speed, mean=True),
        **cost.metrics(),
    }
    beside = _beside(cell.task, some.n_ratings)
    return [
        make_row(**cell.task.columns(), metric=name, value=value, status="ran", reason=cost.note) | beside
        for name, value in spent.items()
    ]


def _beside(task: Round, n_ratings: int | None) -> Row:
    """What the rows of this command have beside the columns of all."""
    upload = str(task.sheet.options.get("upload", ""))
    return {"items": task.items, "ratings": n_ratings, "system": task.system.name, "upload": upload}


def _failed(task: Round, error: Exception) -> list[Row]:
    return [failed_row(task.columns(), error, HEADLINE, verdict="") | _beside(task, None)]


def _counted(cost: Cost, key_bits: int) -> dict[str, float]:
    """The server's share by counts of operations."""
    counts = cost.ciphertexts, cost.ciphertexts_decrypted, cost.ciphertexts_added
    return {
        "server_share_counted": server_share(*counts, key_bits),
        "server_share_counted_subtracting": server_share(*counts, key_bits, subtracts=True),
    }


PROCEDURE = Procedure(only_ratings, _measure, _failed)
