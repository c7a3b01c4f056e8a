"""Defenses side by side: who reads what, how well the recommender ranks, and what a round costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from rich.table import Table

from reports.leaks import LEAKS, Leak, kinds_of, leak_cell, leak_of, why_nothing, worst_cell
from reports.verdicts import CLAIMED, DIFFERENCES, OF_WHAT, SIZES, Row, grouped, number

QUALITY = "ndcg_at_10"
SENT = "bytes_sent_mean"
NAMELESS = (
    "the attack does not learn whose rows it reads; the value is the share of the ratings it claims "
    "that one client really gave"
)
SHIFTED = (
    "rows do not tell by how many levels all ratings of a client are to be shifted; the value is the share "
    "of its pairs of ratings whose difference is right"
)
UPSIDE_DOWN = (
    "rows do not tell which of two ratings is the higher; the value is the share of a client's pairs of "
    "ratings that are as far from each other as is said"
)
SECONDS = ("seconds_local_update", "seconds_encryption", "seconds_decryption")


def comparison_table(rows: Sequence[Row], title: str, listed: Mapping[str, Collection[str]] = {}) -> Table:
    """Tabulate the strongest answer to each question, and the worst of them, by defense and adversary."""
    kinds = kinds_of(rows)
    table = Table(title=title, title_justify="left", show_lines=True, caption_justify="left")
    table.caption = "value (best guess without the transcript), 95 % interval, verdict, attack"
    table.add_column("defense\nadversary", overflow="fold")
    for metric in kinds:
        table.add_column(LEAKS[metric], overflow="fold", min_width=14)
    table.add_column("worst\nadvantage", overflow="fold")
    shown: list[Leak] = []
    for defense, of_defense in grouped(rows, "defense").items():
        for line, (who, leaks) in enumerate(_lines(of_defense, kinds, listed.get(defense, ()))):
            shown += leaks
            name = f"{defense}\n{who}" if line == 0 else who
            table.add_row(name, *map(leak_cell, leaks), worst_cell(leaks))
    there = {leak.row["metric"] for leak in shown if leak.row is not None}
    for metric, words in ((CLAIMED, NAMELESS), (DIFFERENCES, SHIFTED), (SIZES, UPSIDE_DOWN)):
        if metric in there:
            table.caption += f"\n({OF_WHAT[metric]}): {words}"
    return table


def cost_of_defenses_table(rows: Sequence[Row], title: str) -> Table:
    """Tabulate how well the recommender ranks, and a client's seconds and bytes of a round, by defense."""
    table = Table(title=title, title_justify="left")
    table.add_column("defense", overflow="fold")
    for name in ("NDCG@10 (sd)", "popularity", "client: s", "MB a round"):
        table.add_column(name, justify="right", overflow="fold")
    for defense, of_defense in grouped(rows, "defense").items():
        table.add_row(defense, *_quality_cells(of_defense), *_cost_cells(of_defense))
    return table


def _lines(
    rows: Sequence[Row], kinds: Sequence[str], listed: Collection[str]
) -> list[tuple[str, list[Leak]]]:
    """Adversaries and what they read; those who read the same share a line."""
    lines: dict[tuple[str, ...], tuple[list[str], list[Leak]]] = {}
    for adversary, seen in by_adversary(rows).items():
        leaks = [
            leak_of(seen, metric)._replace(in_open=metric == "rated_set_auc" and adversary in listed)
            for metric in kinds
        ]
        lines.setdefault(tuple(map(leak_cell, leaks)), ([], leaks))[0].append(adversary)
    failed = [row for row in rows if row["metric"] == "leakage"]
    if failed:
        lines[("failed",)] = (["all"], [leak_of(failed, metric) for metric in kinds])
    return [("\n".join(names), leaks) for names, leaks in lines.values()]


def by_adversary(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Group the rows of leakage by who reads it."""
    return grouped([row for row in rows if isinstance(row["adversary"], str)], "adversary")


def values_of(rows: Sequence[Row], metric: str) -> np.ndarray:
    """Collect the values of a metric."""
    return np.array([row["value"] for row in rows if row["metric"] == metric and row["status"] == "ran"])


def _quality_cells(rows: Sequence[Row]) -> list[str]:
    values = values_of(rows, QUALITY)
    if not values.size:
        return [why_nothing([row for row in rows if row["metric"] == "quality"]), "-"]
    beside = np.mean([row["baseline"] for row in rows if row["metric"] == QUALITY])
    spread = values.std(ddof=1) if values.size > 1 else float("nan")
    return [f"{values.mean():.3f} ({number(spread)})", f"{beside:.3f}"]


def _cost_cells(rows: Sequence[Row]) -> list[str]:
    sent = values_of(rows, SENT)
    if not sent.size:
        return [why_nothing([row for row in rows if row["metric"] == "cost"]), "-"]
    seconds = sum(float(values_of(rows, metric)[0]) for metric in SECONDS)
    return [f"{seconds:.3g}", f"{sent[0] / 1e6:.3g}"]
