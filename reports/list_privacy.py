"""Which items clients rated against what hiding them costs: a table, and a figure of two panels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from reports.figures import MARKERS, ONE_PANEL, STYLE, save
from reports.verdicts import Row, grouped, number

METRICS = {"rated_set_auc": "AUC of the rated set", "rated_set_f1": "F1 of the rated set"}
BYTES, SECONDS, ENCRYPTION = "bytes_sent_mean", "seconds_aggregation", "seconds_encryption_mean"
ONCE, EVERYTHING, NOTHING = ",redrawn=false", "full-text", "part-text"


def list_privacy_table(rows: Sequence[Row], title: str) -> Table:
    """One line per way of hiding and number of rounds watched."""
    table = Table(title=title, title_justify="left")
    heads = ("hidden by", "MB sent,\nmean client", "encrypt, s", "server adds, s", "rounds\nwatched")
    for name in (*heads, "AUC [95 %]", "best\nguess", "F1 [95 %]", "best\nguess", "F1 verdict"):
        table.add_column(name, justify="left" if name in ("hidden by", "F1 verdict") else "right")
    for label, of_label in grouped(rows, "defense").items():
        costs = _costs(of_label)
        words = (label, number(costs.get(BYTES, float("nan")) / 1e6, 2), number(costs.get(ENCRYPTION)))
        cost = (*words, number(costs.get(SECONDS), 2))
        for watched, scores in _by_rounds(of_label):
            auc, f1 = (scores.get(metric) for metric in METRICS)
            told = [part for row in (auc, f1) for part in _with_guess(row)]
            verdict = "lists say nothing" if f1 is None else str(f1["verdict"])
            table.add_row(*cost, str(watched), *told, verdict)
            cost = ("", "", "", "")
    return table


def _with_guess(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "-", "-"
    ends = f"[{number(row['ci_low'])}, {number(row['ci_high'])}]"
    return f"{number(row['value'])} {ends}", number(row["baseline"])


def _costs(rows: Sequence[Row]) -> dict[str, float]:
    return {row["metric"]: float(row["value"]) for row in rows if row["status"] == "ran"}


def _by_rounds(rows: Sequence[Row]) -> Iterator[tuple[int, Mapping[str, Row]]]:
    """What is read after each number of rounds, by metric; nothing where it does not apply."""
    asked = [row for row in rows if row["attack"] and (row["metric"] in METRICS or row["status"] != "ran")]
    for watched in sorted({int(row["rounds"]) for row in asked}):
        here = [row for row in asked if int(row["rounds"]) == watched]
        yield watched, {row["metric"]: row for row in here if row["status"] == "ran"}


def list_privacy_figure(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw what is read of the rated set against the bytes of a mean client, a line per number of rounds.

    Part-text, whose lists are the rated items, is where the lines begin; a dotted line stands where full-text
    is, whose lists say nothing; between them rho, the sampled unrated items per rated one. Samples that are
    drawn once tell for ever what one round tells: dashed.
    """
    hidden = grouped(rows, "defense")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(ONE_PANEL * len(METRICS), 3.1), layout="constrained")
        panels = figure.subplots(1, len(METRICS), squeeze=False)[0]
        for axes, (metric, title) in zip(panels, METRICS.items(), strict=True):
            _panel(axes, metric, hidden)
            axes.set_ylabel(title)
            axes.set_xlabel("MB that the mean client sends in a round; below: rho")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        return save(figure, directory / "list_privacy_against_cost")


class Mark(NamedTuple):
    """A point of a line: MB sent, and what is read with its interval."""

    size: float
    value: float
    low: float
    high: float


def _panel(axes: Axes, metric: str, hidden: Mapping[str, Sequence[Row]]) -> None:
    guesses = [row["baseline"] for rows in hidden.values() for row in rows if row["metric"] == metric]
    lines = _lines(metric, hidden)
    colours = sns.color_palette("viridis", len(lines))
    for rank, (said, found) in enumerate(lines.items()):
        marks = sorted(found)
        below, above = ([max(mark.value - mark.low, 0) for mark in marks], [mark.high for mark in marks])
        bars = below, [max(high - mark.value, 0) for high, mark in zip(above, marks, strict=True)]
        sizes, values = ([getattr(mark, name) for mark in marks] for name in ("size", "value"))
        look: Any = {"linestyle": "--" if rank == 0 else "-", "marker": MARKERS[rank % len(MARKERS)]}
        axes.errorbar(sizes, values, yerr=bars, label=said, color=colours[rank], **look)
    if guesses:
        axes.axhline(max(guesses), color="0.5", linestyle="-.", linewidth=0.9, label="best guess")
    ticks = {_size(rows): _place(label) for label, rows in hidden.items() if not label.endswith(ONCE)}
    if EVERYTHING in hidden:
        axes.axvline(_size(hidden[EVERYTHING]), color="0.5", linestyle=":", label="full-text: nothing told")
    axes.set_xscale("log")
    axes.set_xticks(list(ticks), [f"{size:.3g}\n{place}" for size, place in ticks.items()])
    axes.set_xticks([], minor=True)
    axes.set_ylim(top=1.03)


def _lines(metric: str, hidden: Mapping[str, Sequence[Row]]) -> dict[str, list[Mark]]:
    """Points by what they are called; lists that stay the same first, which tell what one round tells."""
    found: dict[tuple[int, str], list[Mark]] = {}
    for label, rows in hidden.items():
        for watched, scores in _by_rounds(rows):
            row = scores.get(metric)
            if row is None:
                continue
            mark = Mark(_size(rows), *(float(row[name]) for name in ("value", "ci_low", "ci_high")))
            once, anew = (0, "1 round watched, or drawn once"), (watched, f"drawn anew, {watched} rounds")
            if label == NOTHING:  # where all lines begin
                names = {once, anew} if watched > 1 else {once}
            else:
                names = {once if watched == 1 or label.endswith(ONCE) else anew}
            for name in names:
                here = found.setdefault(name, [])
                here += [mark] if mark not in here else []
    return {name: found[number, name] for number, name in sorted(found)}


def _size(rows: Sequence[Row]) -> float:
    return _costs(rows).get(BYTES, float("nan")) / 1e6


def _place(label: str) -> str:
    """A way of hiding under the axis."""
    return label.replace("unrated-sampling:rho=", "").replace("-text", "")
