"""What encrypted rounds cost, for numbers of items and systems: the grid behind ``papers cost``."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from audit.code_identity import code_used
from audit.experiments.cells import Cell, Procedure, Say, cell_path, content_of, only_ratings
from audit.experiments.options import check, each_once, refuse_too_many
from audit.experiments.results import Row, make_row
from audit.experiments.round_cost import Cost, cost_of, timed
from audit.experiments.rows import failed_row
from audit.experiments.runner import Experiment
from audit.experiments.scenarios import obstacle_of, one_scenario
from audit.factories import make_defense, make_defenses, make_victim
from audit.papers.plans import Sheet
from audit.registry import recorded_name
from victims.common.errors import InputError
from victims.common.limits import peak_memory
from victims.common.validation import above, require
from victims.data.ratings import Ratings
from victims.data.subsets import most_rated
from victims.training import Run, formed_rows, network_of, start

FEDMF, UPLOAD = "fedmf", "part-text"  # a victim with two uploads, and the usual one
GRAPH_NOTE = "one round of all clients; a message is an index and K numbers, along every edge of its sender"

THING = "a cost sheet"
HEADLINE = "slowest"  # seconds of a round, in Chai et al.'s accounting


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
            "update": sheet.update,
            "weighting": sheet.weighting,
            "data": f"{sheet.data}, the {self.items} most rated items",
            "defense": self.system.shown,
            "rounds": 1,
            "seed": sheet.seed,
        }


def options_of(sheet: Sheet) -> dict[str, Any]:
    """Options of the victim."""
    return {**sheet.victim_options, "update": sheet.update, "weighting": sheet.weighting}


def settled(sheet: Sheet) -> Sheet:
    """Choose the scenario and the upload, and check every name."""
    check(sheet, THING)
    require(THING, "bits_per_second", sheet.bits_per_second, above(0), "the default is 1e9")
    chosen = one_scenario(sheet.victim, sheet.update, sheet.weighting, sheet.victim_options)
    upload = {"upload": UPLOAD} if sheet.victim == FEDMF and not sheet.uploads else {}
    sheet = replace(
        sheet,
        update=chosen.update,
        weighting=chosen.weighting,
        victim_options={**upload, **chosen.options},
        items=each_once(map(int, sheet.items)),
        key_bits=each_once(map(int, sheet.key_bits)),
    )
    refuse_too_many(THING, items=sheet.items or (0,), systems=range(1 + 2 * len(sheet.key_bits)))
    make_victim(sheet.victim, options_of(sheet))
    make_defenses(sheet.defense)
    _systems(sheet)  # for its checks: lengths that no key has are refused here
    return sheet


def cells_of(sheet: Sheet, ratings: Ratings, directory: Path) -> list[Cell[Round]]:
    """List the cells of a sheet; what this machine measured is not measured again."""
    content = content_of(ratings)
    counts = sheet.items or (ratings.n_items,)
    if max(counts) > ratings.n_items:
        raise InputError(
            f"items of {THING} must be at most the {ratings.n_items:,} that {ratings.name} has, got "
            f"{max(counts):,}; leave items out to measure all"
        )
    systems = [System("in the clear", sheet.defense)] if sends_along_graph(sheet) else _systems(sheet)
    return [
        _cell(Round(one, count, system), content, directory)
        for one in _sheets_of(sheet)
        for count in counts
        for system in systems
    ]


def _sheets_of(sheet: Sheet) -> list[Sheet]:
    """One for each upload."""
    named = {name: {**sheet.victim_options, "upload": name} for name in sheet.uploads}
    return [replace(sheet, victim_options=options, uploads=()) for options in named.values()] or [sheet]


def sends_along_graph(sheet: Sheet) -> bool:
    """Whether clients send to each other, so that there is no server whose seconds could be measured."""
    network = network_of(make_victim(sheet.victim, options_of(sheet)))
    return network is not None and network.edges is not None


def wide(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Put all numbers of a system side by side; systems that failed are left out."""
    found: dict[tuple[Any, ...], Row] = {}
    notes = {}
    for row in rows:
        if row["status"] == "ran":
            key = row["upload"], row["items"], row["system"]
            shared = {"items": row["items"], "ratings": row["ratings"], "system": row["system"]}
            found.setdefault(key, shared)[row["metric"]] = row["value"]
            notes[key] = row["reason"]
    return [{**row, "note": notes[key]} for key, row in found.items()]


def _cell(task: Round, content: str, directory: Path) -> Cell[Round]:
    """A cell that is named by the machine, too, and measured alone, for what runs beside would be in the
    seconds.
    """
    sheet, system = task.sheet, task.system
    identity = {
        "code": code_used(sheet.victim, [system.defense]),
        "sheet": {**asdict(sheet), "items": task.items, "key_bits": 0, "phe": False},
        "system": system,
        "ratings": content,
        "machine": (platform.node(), platform.machine(), platform.processor()),
    }
    path = cell_path(directory, f"{task.items}-{system.name.replace(', ', '-')}", identity)
    obstacle = obstacle_of(sheet.victim, options_of(sheet), system.defense)
    return Cell(task, path, place="alone", obstacle=obstacle)


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
    victim: Any = make_victim(sheet.victim, options_of(sheet))
    if sends_along_graph(sheet):
        run = start(victim, some, make_defenses(system.defense), sheet.seed)
        counted = {"users": some.n_users, **asdict(graph_cost_of(run))}
        return _rows(cell.task, some, {name: float(value) for name, value in counted.items()}, GRAPH_NOTE)
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
    return _rows(cell.task, some, spent, cost.note)


def _rows(task: Round, ratings: Ratings, spent: Mapping[str, float], note: str) -> list[Row]:
    beside = _beside(task, ratings.n_ratings)
    return [
        make_row(**task.columns(), metric=name, value=value, status="ran", reason=note) | beside
        for name, value in spent.items()
    ]


def _beside(task: Round, n_ratings: int | None) -> Row:
    """What the rows of this command have beside the columns of all."""
    upload = str(task.sheet.victim_options.get("upload", ""))
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


EXPERIMENT = Experiment(settled, cells_of, Procedure(only_ratings, _measure, _failed))
run = EXPERIMENT.run


INDEX_BYTES = 4


@dataclass(frozen=True)
class GraphCost:
    """Of one round."""

    seconds_round: float
    seconds_rows: float  # of forming the rows alone
    rows: int  # that are formed
    edges: int
    messages: int  # rows that arrive
    bytes: float  # of all messages
    bytes_sent: float  # of the client with most
    bytes_sent_mean: float
    bytes_received: float
    bytes_received_mean: float
    peak_bytes: float  # largest resident size of this process so far


def graph_cost_of(run: Run) -> GraphCost:
    """Measure one round."""
    n_users = run.ratings.n_users
    rows = partial(_rows_per_client, run)
    rows()  # compiles what is timed
    of_rows, count = timed(rows)
    step = partial(run.trained, 0)
    jax.block_until_ready(step().state)  # compiles what is timed
    of_round, _ = timed(lambda: jax.block_until_ready(step().state))
    edges = run.network.edges
    assert edges is not None
    along = count[edges.sender]
    size = INDEX_BYTES + 8 * run.victim.broadcast(run.state)[0].shape[1]
    sent, received = (
        size * np.bincount(end, along, minlength=n_users) for end in (edges.sender, edges.receiver)
    )
    return GraphCost(
        of_round,
        of_rows,
        int(count.sum()),
        edges.sender.size,
        int(along.sum()),
        float(sent.sum()),
        float(sent.max()),
        float(sent.mean()),
        float(received.max()),
        float(received.mean()),
        float(peak_memory()),
    )


def _rows_per_client(run: Run) -> np.ndarray:
    """Rows that leave each client in a round, before what is done to each message anew."""
    count = np.zeros(run.ratings.n_users, np.int64)
    for some in formed_rows(run, np.arange(count.size), 0):
        count += np.bincount(some.sender, minlength=count.size)
    return count


ENCRYPTION, DECRYPTION = 1.5, 1.5 / 4  # multiplications for each bit of the key
ADDITION, SUBTRACTION = 1.0, 6.0  # multiplications


def server_share(
    encrypted: float, decrypted: float, added: float, key_bits: int, *, subtracts: bool = False
) -> float:
    """Share of the server in a round's multiplications, as Chai et al. 2021 count: one client and the server.

    Examples
    --------
    >>> round(server_share(2560.0, 2560.0, 610 * 2560.0, 1024), 3)  # full-text, 2,560 items, 610 clients
    0.241
    >>> round(server_share(2560.0, 2560.0, 610 * 2560.0, 1024, subtracts=True), 3)
    0.656
    """
    client = key_bits * (ENCRYPTION * encrypted + DECRYPTION * decrypted)
    server = added * (SUBTRACTION if subtracts else ADDITION)
    return server / (client + server) if client + server else float("nan")
