"""What encrypted rounds cost, for numbers of items and systems: the grid behind ``factorleak cost``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from audit.experiments.graph_cost import graph_cost_of
from audit.experiments.grid import Cell, Procedure, Report, Say, only_ratings, refuse, silent
from audit.experiments.operation_counts import server_share
from audit.experiments.results import Row
from audit.experiments.round_cost import SAMPLE_ROWS, Cost, cost_of
from audit.experiments.runner import run_grid
from audit.factories import make_defense, make_defenses, make_victim
from victims.data.ratings import Ratings
from victims.data.subsets import most_rated, of_users
from victims.training import start

FEW = 4  # clients who tell whom rows go to
GRAPH_NOTE = "one round of all clients; a message is an index and K numbers, along every edge of its sender"


@dataclass(frozen=True)
class Sheet:
    """What to measure: every number of items in the clear, with phe, and packed under every key length."""

    victim: str = "fedmf"
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


class Round(NamedTuple):
    """The task of a cell: a round of a system on the most rated items."""

    sheet: Sheet
    items: int
    system: System


def run(sheet: Sheet, ratings: Ratings, *, report: Report = silent) -> list[Row]:
    """Measure one after the other, for what runs beside would be in the seconds.

    Parameters
    ----------
    sheet : Sheet
    ratings : Ratings
    report : callable
        Called with (cells done, cells in all, what is going on).

    Returns
    -------
    list of dict
        One row per number of items and system, with all numbers of ``Cost``.

    Raises
    ------
    InputError
        If a name or option is wrong.
    """
    systems = (
        [System("in the clear", sheet.defense)] if sends_along_graph(sheet, ratings) else _systems(sheet)
    )
    counts = sheet.items or (ratings.n_items,)
    cells = [Cell(Round(sheet, count, system)) for count in counts for system in systems]
    return run_grid(cells, PROCEDURE, ratings, report=report)


def sends_along_graph(sheet: Sheet, ratings: Ratings) -> bool:
    """Whether clients send to each other, so that there is no server whose seconds could be measured.

    Parameters
    ----------
    sheet : Sheet
    ratings : Ratings

    Raises
    ------
    InputError
        If a name or option is wrong, or the defense makes no sense along the graph.
    """
    victim: Any = make_victim(sheet.victim, sheet.options)
    make_defenses(sheet.defense)
    few = of_users(ratings, np.arange(min(ratings.n_users, FEW)))
    return victim.network(victim.init(few, sheet.seed), few).edges is not None


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
    row: Row = {"items": items, "ratings": some.n_ratings, "system": system.name}
    if sends_along_graph(sheet, some):
        run = start(victim, some, make_defenses(system.defense), sheet.seed)
        return [{**row, "users": some.n_users, **asdict(graph_cost_of(run)), "note": GRAPH_NOTE}]
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
    }
    return [{**row, **spent, **cost.metrics(), "note": cost.note}]


def _counted(cost: Cost, key_bits: int) -> dict[str, float]:
    """The server's share by counts of operations."""
    counts = cost.ciphertexts, cost.ciphertexts_decrypted, cost.ciphertexts_added
    return {
        "server_share_counted": server_share(*counts, key_bits),
        "server_share_counted_subtracting": server_share(*counts, key_bits, subtracts=True),
    }


PROCEDURE = Procedure(only_ratings, _measure, refuse)
