"""The numbers that a page draws, as tidy frames: one line for each mark, with the words shown on hover."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from reports.compare import QUALITY, SENT, values_of
from reports.leaks import best
from reports.page.overview import System
from reports.verdicts import ANSWERED, NOT_TESTED, Row, grouped, number, tested, verdict_of

HEADLINE = ("rated_rating_accuracy", "rated_set_auc", "attribute_group_accuracy", ANSWERED)
BLOCK = "attribute_group_accuracy/"
COLUMNS = ("system", "adversary", "metric", "value", "low", "high", "guess", "ceiling", "verdict", "hover")


def leaks_frame(systems: Sequence[System]) -> pd.DataFrame:
    """Collect the strongest answer of each system, adversary and kind; NaN where nothing was tested.

    Parameters
    ----------
    systems : sequence of System

    Returns
    -------
    DataFrame
        With ``COLUMNS``.
    """
    lines = []
    for system in systems:
        for seen in system.adversaries:
            rows = [row for row in system.rows if row["adversary"] == seen.adversary]
            lines += [
                _line(system.short, ", ".join(seen.alike), metric, best(rows, metric))
                for metric in HEADLINE
                if any(row["metric"] == metric for row in system.rows)
            ]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def blocks_frame(systems: Sequence[System]) -> pd.DataFrame:
    """Collect the strongest answer about each block of attributes, over all adversaries.

    Parameters
    ----------
    systems : sequence of System

    Returns
    -------
    DataFrame
        With ``COLUMNS``; ``metric`` is the block.
    """
    lines = []
    for system in systems:
        names = sorted({row["metric"] for row in system.rows if str(row["metric"]).startswith(BLOCK)})
        for name in names:
            found = [row for row in system.rows if row["metric"] == name and tested(row)]
            strongest = max(found, key=lambda row: row["advantage"], default=None)
            block = f"block {name.removeprefix(BLOCK)}"
            who = "" if strongest is None else str(strongest["adversary"])
            lines.append(_line(system.short, who, block, strongest))
    return pd.DataFrame(lines, columns=list(COLUMNS))


def rounds_frame(systems: Sequence[System], metric: str = HEADLINE[0]) -> pd.DataFrame:
    """Collect what is read by how many rounds are watched, where they differ.

    Parameters
    ----------
    systems : sequence of System
    metric : str

    Returns
    -------
    DataFrame
        With ``COLUMNS`` and ``rounds``; empty where there is one number of rounds.
    """
    lines = []
    for system in systems:
        watched = grouped([row for row in system.rows if isinstance(row["adversary"], str)], "rounds")
        read = {rounds: best(rows, metric) for rounds, rows in watched.items() if not np.isnan(rounds)}
        found = sorted(
            ((int(n), row) for n, row in read.items() if row is not None), key=lambda pair: pair[0]
        )
        for rounds, row in found if len(found) > 1 else ():
            lines.append({**_line(system.short, str(row["adversary"]), metric, row), "rounds": rounds})
    return pd.DataFrame(lines, columns=[*COLUMNS, "rounds"])


def frontier_frame(systems: Sequence[System]) -> pd.DataFrame:
    """Collect leakage, usefulness and cost of each system whose ranking was measured.

    Parameters
    ----------
    systems : sequence of System

    Returns
    -------
    DataFrame
        ``system``, ``advantage`` of the worst adversary (NaN where nothing was tested) with ``low`` and
        ``high``, ``quality`` (NDCG@10) with ``spread`` over seeds, ``popularity`` (that of ranking by
        popularity), ``megabytes`` of a mean client in a round, ``dominated``, ``hover``.
    """
    lines = []
    for system in systems:
        quality = values_of(system.rows, QUALITY)
        if not quality.size:
            continue
        worst = system.worst
        row = None if worst is None else worst.row
        numbers = [np.nan] * 3 if row is None else [_bounded(row[name]) for name in _ADVANTAGE]
        sent = values_of(system.rows, SENT)
        popularity = np.mean([row["baseline"] for row in system.rows if row["metric"] == QUALITY])
        lines.append(
            {
                "system": system.short,
                **dict(zip(("advantage", "low", "high"), numbers, strict=True)),
                "quality": float(quality.mean()),
                "spread": float(quality.std(ddof=1)) if quality.size > 1 else 0.0,
                "popularity": float(popularity),
                "megabytes": float(sent[0]) / 1e6 if sent.size else np.nan,
            }
        )
    frame = pd.DataFrame(lines)
    if frame.empty:
        return frame
    frame["dominated"] = [_is_dominated(frame, place) for place in range(len(frame))]
    frame["hover"] = [_frontier_words(line) for line in frame.to_dict("records")]
    return frame


_ADVANTAGE = ("advantage", "advantage_low", "advantage_high")


def _line(system: str, adversary: str, metric: str, row: Row | None) -> dict[str, object]:
    shared = {"system": system, "adversary": adversary, "metric": metric}
    if row is None:
        numbers = dict.fromkeys(("value", "low", "high", "guess", "ceiling"), np.nan)
        return {**shared, **numbers, "verdict": NOT_TESTED, "hover": f"{system}, {adversary}: {NOT_TESTED}"}
    return {
        **shared,
        "value": row["value"],
        "low": row["ci_low"],
        "high": row["ci_high"],
        "guess": row["baseline"],
        "ceiling": row["ceiling"],
        "verdict": verdict_of(row),
        "hover": (
            f"{system}, {adversary}, {row['attack']}: {number(row['value'])} "
            f"[{number(row['ci_low'])}, {number(row['ci_high'])}], best guess {number(row['baseline'])}, "
            f"ceiling {number(row['ceiling'])}, {row['verdict']}"
        ),
    }


def _bounded(value: float) -> float:
    return float(np.clip(value, -1, 1))


def _is_dominated(frame: pd.DataFrame, place: int) -> bool:
    """Another system leaks no more and ranks no worse, and in one of the two is better beyond the bars."""
    one = frame.iloc[place]
    if np.isnan(one.advantage):
        return False
    no_worse = (frame.advantage <= one.advantage) & (frame.quality >= one.quality)
    better = (frame.high < one.low) | (frame.quality - frame.spread > one.quality + one.spread)
    return bool((no_worse & better).any())


def _frontier_words(line: dict) -> str:
    leak = NOT_TESTED
    if not np.isnan(line["advantage"]):
        leak = f"advantage {line['advantage']:.3f} [{line['low']:.3f}, {line['high']:.3f}]"
    cost = "" if np.isnan(line["megabytes"]) else f", {line['megabytes']:.3g} MB a round"
    return (
        f"{line['system']}: {leak}, NDCG@10 {line['quality']:.3f} (sd {line['spread']:.3f}; popularity "
        f"{line['popularity']:.3f}){cost}"
    )
