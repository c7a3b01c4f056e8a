"""Leakage against ranking quality, a mark for each defense.

What was not tested lies in a lane of its own, never at a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.compare import by_adversary
from reports.compare_marks import Mark, Marks, legend_of, marks_of
from reports.figures import STYLE, save
from reports.leaks import LEAKS, best, kinds_of, leak_cell, leak_of
from reports.verdicts import Row, grouped

TITLES = {**LEAKS, "rated_rating_accuracy": "ratings of rated items"}
LANE = -0.3  # where marks of what was not tested lie
LOWEST = -0.12  # of the axis of advantages; what is worse than the guess is drawn here


class Line(NamedTuple):
    """A row of panels: who reads the same of every defense shares one."""

    title: str
    adversary: str


def comparison_figure(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw leakage against quality: a row of panels per adversary, a column per kind of leak.

    What was not tested lies in a lane below the axis, and a defense without a measured quality in one at its
    left: nothing vanishes.
    """
    kinds, defenses = kinds_of(rows), grouped(rows, "defense")
    lines, marks = _lines(rows, kinds), marks_of(defenses)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.1 * len(kinds) + 0.7, 1.75 * len(lines) + 1.9), layout="constrained")
        panels = figure.subplots(len(lines), len(kinds), sharex=True, sharey=True, squeeze=False)
        for line, axes_of_line in zip(lines, panels, strict=True):
            for metric, axes in zip(kinds, axes_of_line, strict=True):
                _panel(axes, line, metric, marks, defenses)
        for axes in panels[:, 0]:
            axes.set_ylabel("advantage over the guess")
        for axes in panels[-1]:
            axes.set_xlabel("NDCG@10 (mean, sd over runs)")
        figure.legend(handles=legend_of(marks), loc="outside lower center", ncols=2, frameon=False)
        return save(figure, directory / "leakage_against_quality")


def _lines(rows: Sequence[Row], kinds: Sequence[str]) -> list[Line]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for adversary, seen in by_adversary(rows).items():
        look = tuple(
            f"{defense} {leak_cell(leak_of(of_defense, metric))}"
            for defense, of_defense in grouped(seen, "defense").items()
            for metric in kinds
        )
        groups.setdefault(look, []).append(adversary)
    return [Line(", ".join(names), names[0]) for names in groups.values()] or [Line("nobody", "")]


def _panel(axes: Axes, line: Line, metric: str, marks: Marks, defenses: Mapping[str, Sequence[Row]]) -> None:
    """All defenses in one panel, small marks on large ones."""
    _lanes(axes, marks.unmeasured, marks.any_unmeasured)
    for mark in sorted(marks.marks, key=lambda mark: -mark.size):
        seen = [row for row in defenses[mark.name] if row["adversary"] == line.adversary]
        if seen:  # else the adversary does not exist under the defense
            _draw(axes, mark, best(seen, metric))
    axes.set_title(f"{line.title}\n{TITLES[metric]}", fontsize=7)


def _lanes(axes: Axes, left: float, unmeasured: bool) -> None:
    """The lane of what was not tested, and where needed that of an unmeasured quality."""
    axes.axhspan(LANE - 0.1, LANE + 0.1, facecolor="0.92", zorder=0)
    axes.axhline(0, color="0.5", linewidth=0.7, zorder=0)
    axes.set_ylim(LANE - 0.1, 1.1)
    axes.set_yticks([LANE, 0, 0.5, 1], ["not\ntested", "0", "0.5", "1"])
    if unmeasured:
        axes.axvline(left, color="0.85", linewidth=8, zorder=0)
        axes.annotate("quality not measured", (left, 0.5), rotation=90, fontsize=5, ha="center", va="center")


def _draw(axes: Axes, mark: Mark, row: Row | None) -> None:
    """One defense in one panel, in the lane where nothing was tested."""
    look: dict[str, Any] = {
        "marker": mark.marker,
        "s": mark.size,
        "edgecolors": [mark.colour],
        "clip_on": False,
        "zorder": 3,
    }
    if row is None:
        axes.scatter(mark.quality, LANE, facecolors="none", linewidths=1.1, **look)
        return
    value, low, high = (
        max(float(row[name]), LOWEST) for name in ("advantage", "advantage_low", "advantage_high")
    )
    bars = [[max(value - low, 0)], [max(high - value, 0)]]
    axes.errorbar(
        mark.quality, value, xerr=mark.spread, yerr=bars, fmt="none", ecolor=mark.colour, elinewidth=0.8
    )
    axes.scatter(mark.quality, value, facecolors=[(*mark.colour, 0.45)], linewidths=1.1, **look)
