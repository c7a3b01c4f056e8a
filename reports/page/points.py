"""The numbers that a page draws, as tidy frames: one line for each mark, with the words shown on hover."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd

from reports.leaks import best
from reports.page.overview import System
from reports.verdicts import NOT_TESTED, Row, grouped, number, of_what, tested, verdict_of

RATINGS = "rated_rating_accuracy"
BLOCK = re.compile(r"attribute_group_accuracy/(\d+)")
COLUMNS = (
    "system",
    "adversary",
    "metric",
    "value",
    "low",
    "high",
    "guess",
    "ceiling",
    "verdict",
    "about",
    "hover",
)


def leaks_frame(systems: Sequence[System]) -> pd.DataFrame:
    """Collect the strongest answer of each system, adversary and kind; NaN where nothing was tested."""
    lines = [
        line_of(system.short, ", ".join(seen.alike), leak.kind, leak.row)
        for system in systems
        for seen in system.adversaries
        for leak in seen.leaks
    ]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def blocks_frame(systems: Sequence[System]) -> pd.DataFrame:
    """Collect the strongest answer about each block of attributes of the data, over all adversaries."""
    lines: list[dict[str, object]] = []
    blocks: dict[str, set[str]] = defaultdict(set)
    for row in (row for system in systems for row in system.rows):
        if BLOCK.fullmatch(str(row["metric"])):
            blocks[row["data"]].add(str(row["metric"]))
    for system in (one for one in systems if one.adversaries):
        for name in sorted(blocks[system.rows[0]["data"]]):
            found = [row for row in system.rows if row["metric"] == name and tested(row)]
            strongest = max(found, key=lambda row: row["advantage"], default=None)
            block = f"block {name.rpartition('/')[2]}"
            who = "" if strongest is None else str(strongest["adversary"])
            lines.append(line_of(system.short, who, block, strongest))
    return pd.DataFrame(lines, columns=list(COLUMNS))


def rounds_frame(systems: Sequence[System], metric: str = RATINGS) -> pd.DataFrame:
    """Collect what is read by how many rounds are watched, where they differ."""
    lines = []
    for system in systems:
        watched = grouped([row for row in system.rows if isinstance(row["adversary"], str)], "rounds")
        read = {rounds: best(rows, metric) for rounds, rows in watched.items() if not np.isnan(rounds)}
        found = sorted(
            ((int(n), row) for n, row in read.items() if row is not None), key=lambda pair: pair[0]
        )
        for rounds, row in found if len(found) > 1 else ():
            lines.append({**line_of(system.short, str(row["adversary"]), metric, row), "rounds": rounds})
    return pd.DataFrame(lines, columns=[*COLUMNS, "rounds"])


def line_of(system: str, adversary: str, metric: str, row: Row | None) -> dict[str, object]:
    """Form the line of one mark."""
    shared = {"system": system, "adversary": adversary, "metric": metric}
    if row is None:
        numbers = dict.fromkeys(("value", "low", "high", "guess", "ceiling"), np.nan)
        return {
            **shared,
            **numbers,
            "verdict": NOT_TESTED,
            "about": "",
            "hover": f"{', '.join(filter(None, (system, adversary)))}: {NOT_TESTED}",
        }
    return {
        **shared,
        "value": row["value"],
        "low": row["ci_low"],
        "high": row["ci_high"],
        "guess": row["baseline"],
        "ceiling": row["ceiling"],
        "verdict": verdict_of(row),
        "about": of_what(row, "{}"),
        "hover": (
            f"{system}, {adversary}, {row['attack']}{of_what(row)}: {number(row['value'])} "
            f"[{number(row['ci_low'])}, {number(row['ci_high'])}], best guess {number(row['baseline'])}, "
            f"ceiling {number(row['ceiling'])}, {row['verdict']}"
        ),
    }
