"""Defenses side by side: one table, one figure; and ranking quality with and without encryption.

Work on plain mappings with the columns of ``results.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from reports.figures import MARKERS, STYLE, save
from reports.tables import CLAIMED, number, score_cell

Row = Mapping[str, Any]
LEAKS = ("rated_rating_accuracy", "rated_set_auc", "attribute_group_accuracy")
QUALITY = "ndcg_at_10"
SECONDS = ("seconds_local_update", "seconds_encryption", "seconds_decryption")
PANELS = {"server": "the server", "server+client": "the server with one client's key"}
LEGEND = "area: bytes that a mean client sends (log); hollow: no attack applies"
SIZES = (18.0, 160.0)  # square points of the smallest and the largest mark


def comparison_table(rows: Sequence[Row], title: str) -> Table:
    """One line per defense and adversary: the best attack on each of ratings, rated set and attributes."""
    table = Table(title=title, title_justify="left", show_lines=True)
    headings = ("defense", "adversary", "rated items", "rated set (AUC)", "attributes (blocks)")
    for name in (*headings, "NDCG@10 (sd)", "client: s, MB a round"):
        table.add_column(name, overflow="fold")
    for defense, part in _grouped(rows, "defense").items():
        ends = [_quality_cell(part), _cost_cell(part)]
        for number_, (who, cells) in enumerate(_lines(part)):
            table.add_row("" if number_ else defense, who, *cells, *(["", ""] if number_ else ends))
    return table


def _lines(part: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Adversaries and what they read; those who read the same share a line."""
    seen = _grouped([row for row in part if isinstance(row["adversary"], str)], "adversary")
    lines: dict[tuple[str, ...], list[str]] = {}
    for adversary, rows in seen.items():
        cells = [_best_cell(rows, metric) for metric in LEAKS]
        if cells[0] == "-":
            cells[0] = _why(rows)
        lines.setdefault(tuple(cells), []).append(adversary)
    failed = [row for row in part if row["metric"] == "leakage"]
    if failed:
        lines[_why(failed), "-", "-"] = ["all"]
    return [("\n".join(names), list(cells)) for cells, names in lines.items()]


def best(rows: Sequence[Row], metric: str) -> Row | None:
    """The row of the attack with the largest advantage; guesses do not count."""
    names = {metric, CLAIMED} if metric == "rated_rating_accuracy" else {metric}
    found = [
        row
        for row in rows
        if row["metric"] in names and row["status"] == "ran" and number(row["advantage"]) != "-"
    ]
    return max(found, key=lambda row: row["advantage"]) if found else None


def _grouped(rows: Sequence[Row], column: str) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def _best_cell(rows: Sequence[Row], metric: str) -> str:
    row = best(rows, metric)
    if row is None:
        return "-"
    who = f"{row['attack']}, {row['n_users']} " + ("nameless" if row["metric"] == CLAIMED else "clients")
    return f"{score_cell(row)}\n{who}\n{row['verdict']}"


def _why(rows: Sequence[Row]) -> str:
    """Why nothing was read: a failure, else the reason of the attack on sums, else the first one."""
    open_ = [row for row in rows if row["status"] != "ran" and row["reason"]]
    order = sorted(open_, key=lambda row: (row["status"] != "failed", row["attack"] != "aggregate"))
    return f"{order[0]['status']}: {order[0]['reason']}" if order else "-"


def _values(rows: Sequence[Row], metric: str) -> np.ndarray:
    return np.array([row["value"] for row in rows if row["metric"] == metric and row["status"] == "ran"])


def _quality_cell(rows: Sequence[Row]) -> str:
    values = _values(rows, QUALITY)
    if not values.size:
        return _why([row for row in rows if row["metric"] == "quality"])
    beside = np.mean([row["baseline"] for row in rows if row["metric"] == QUALITY])
    spread = values.std(ddof=1) if values.size > 1 else float("nan")
    return f"{values.mean():.3f} ({number(spread)})\npopularity {beside:.3f}"


def _cost_cell(rows: Sequence[Row]) -> str:
    sent = _values(rows, "bytes_sent_mean")
    if not sent.size:
        return _why([row for row in rows if row["metric"] == "cost"])
    seconds = sum(float(_values(rows, metric)[0]) for metric in SECONDS)
    return f"{seconds:.3g} s\n{sent[0] / 1e6:.3g} MB"


def comparison_figure(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Leakage against quality, a panel per adversary and a mark per defense, as SVG and PNG.

    Hollow marks at 0: no attack applies to what this adversary sees.
    """
    defenses = _grouped(rows, "defense")
    sent = {name: _values(part, "bytes_sent_mean") for name, part in defenses.items()}
    known = [float(value[0]) for value in sent.values() if value.size]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.6, 5.2), layout="constrained")
        panels = figure.subplots(len(PANELS), 1, sharex=True)
        colours = sns.color_palette("colorblind", max(len(defenses), 1))
        for axes, (adversary, words) in zip(panels, PANELS.items(), strict=True):
            for number_, (name, part) in enumerate(defenses.items()):
                look = {"color": colours[number_], "marker": MARKERS[number_ % len(MARKERS)]}
                size = _area(float(sent[name][0]), known) if sent[name].size else SIZES[0]
                _mark(axes, part, adversary, look, size)
            axes.set_title(words)
            axes.set_ylabel("advantage, rated items")
            axes.set_ylim(-0.1, 1.12)
        panels[-1].set_xlabel("NDCG@10 on held-out ratings (mean, sd over runs)")
        for number_, name in enumerate(defenses):
            panels[-1].scatter(
                [], [], color=colours[number_], marker=MARKERS[number_ % len(MARKERS)], s=22, label=name
            )
        figure.legend(loc="outside lower center", ncols=2, frameon=False, title=LEGEND, title_fontsize=7)
        return save(figure, directory / "leakage_against_quality")


def _mark(axes: Axes, part: Sequence[Row], adversary: str, look: dict[str, Any], size: float) -> None:
    """One defense as one adversary sees it, on rated items."""
    quality = _values(part, QUALITY)
    cell = [row for row in part if row["adversary"] == adversary]
    if not quality.size or not cell:
        return
    spread = float(quality.std(ddof=1)) if quality.size > 1 else 0.0
    row = best(cell, "rated_rating_accuracy")
    value, low, high = (
        (0.0, 0.0, 0.0)
        if row is None
        else (max(float(row[name]), 0.0) for name in ("advantage", "advantage_low", "advantage_high"))
    )
    bars = [[max(value - low, 0)], [max(high - value, 0)]]
    axes.errorbar(
        quality.mean(), value, xerr=spread, yerr=bars, fmt="none", ecolor=look["color"], elinewidth=0.8
    )
    face = "none" if row is None else (*look["color"], 0.55)
    axes.scatter(
        quality.mean(), value, s=size, marker=look["marker"], facecolors=[face], edgecolors=[look["color"]],
        linewidths=1.1, clip_on=False, zorder=3,
    )  # fmt: skip


def _area(sent: float, known: Sequence[float]) -> float:
    low, high = np.log(min(known)), np.log(max(known))
    share = 0.5 if high == low else (np.log(sent) - low) / (high - low)
    return float(SIZES[0] + share * (SIZES[1] - SIZES[0]))


def quality_table(rows: Sequence[Row], title: str) -> Table:
    """One line per scenario, reading and metric: with and without encryption, beside popularity."""
    table = Table(title=title, title_justify="left")
    for name in ("scenario", "among", "metric"):
        table.add_column(name)
    for name in ("without encryption", "with encryption", "largest difference of a run", "popularity"):
        table.add_column(name, justify="right")
    groups: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in rows:
        key = row["scenario"], row["reading"], row["metric"]
        groups.setdefault(key, {}).setdefault(row["system"], []).append(row["value"])
    for key, systems in groups.items():
        plain, sealed, popular = (np.array(systems[name]) for name in ("plain", "encrypted", "popularity"))
        table.add_row(
            *key, _mean(plain), _mean(sealed), f"{np.abs(plain - sealed).max():.1e}", _mean(popular)
        )
    return table


def _mean(values: np.ndarray) -> str:
    spread = values.std(ddof=1) if values.size > 1 else float("nan")
    return f"{number(float(values.mean()), 4)} ({number(float(spread), 4)})"
