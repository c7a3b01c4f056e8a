"""Figures of a sweep: accuracy against noise scale, and against rounds watched.

Every line has its 95 % band over clients, the best guess without the transcript (dark, dash-dotted, named in
the panel) and the ceiling (the line's colour, dotted, capped) in the same axes. Where most clients got no
answer the value is the guess's: the mark is hollow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from reports.figures import MARKERS, STYLE, save
from reports.sweep_panels import draw_guess, draw_line, fell_back, finish, line_of, panels_of, scale_of
from reports.verdicts import Row, grouped

METRICS = {
    "rating_accuracy": "ratings right (Eq. 43)",
    "rated_rating_accuracy": "rated items right",
    "attribute_group_accuracy": "attributes right (blocks)",
}
GREY = "0.35"


def sweep_figures(rows: Sequence[Row], directory: Path, strongest: str, *paper: str) -> list[Path]:
    """Draw all figures of a sweep as SVG and PNG."""
    written = []
    for metric in METRICS:
        usable = [row for row in rows if row["metric"] == metric and row["status"] == "ran"]
        drawn = [row for row in usable if row["attack"] == strongest]
        if not drawn:
            continue
        by_scale = accuracy_against_scale(usable, metric, strongest, *paper)
        written += save(by_scale, directory / f"{metric}_against_scale")
        if len({row["rounds"] for row in drawn if scale_of(row) > 0}) > 1:
            by_rounds = accuracy_against_rounds(usable, metric, strongest)
            written += save(by_rounds, directory / f"{metric}_against_rounds")
    return written


def accuracy_against_scale(rows: Sequence[Row], metric: str, strongest: str, *paper: str) -> Figure:
    """Draw a panel per scenario; a colour per number of rounds watched, the paper's procedure dashed grey."""
    counts = sorted({row["rounds"] for row in rows if row["attack"] == strongest})
    colours = _colours(counts)
    scales = sorted({scale_of(row) for row in rows})
    place = _place_of(scales)

    def x_of(row: Row) -> float:
        return place(scale_of(row))

    with mpl.rc_context(STYLE):
        figure, panels = panels_of(rows)
        for scenario, axes in panels.items():
            shown = grouped(rows, "update", "weighting")[scenario]
            for rank, count in enumerate(counts):
                line = line_of(shown, strongest, x_of, rounds=count)
                draw_line(axes, line, colours[rank], _marker(rank))
            _draw_paper(axes, shown, paper, x_of)
            draw_guess(axes, line_of(shown, strongest, x_of, rounds=counts[0]))
            _scale_axis(axes, scales)
        labels = [f"{strongest}, {count} round{'s' if count > 1 else ''}" for count in counts]
        handles = [
            *_handles(colours, labels),
            Line2D([], [], color=GREY, marker="x", linestyle="--", label="paper's procedure, fewest rounds"),
        ]
        finish(figure, panels, METRICS[metric], "noise scale b (stars²)", handles, any(map(fell_back, rows)))
    return figure


def _draw_paper(axes: Axes, rows: Sequence[Row], paper: Sequence[str], x_of: Callable[[Row], float]) -> None:
    """The first of some attacks that ran, with the fewest rounds that its systems can be formed from."""
    ran = {row["attack"] for row in rows}
    attack = next((attack for attack in paper if attack in ran), None)
    if attack is not None:
        fewest = min(row["rounds"] for row in rows if row["attack"] == attack)
        line = line_of(rows, attack, x_of, rounds=fewest)
        draw_line(axes, line, GREY, "x", dashed=True, limits=False)


def accuracy_against_rounds(rows: Sequence[Row], metric: str, strongest: str) -> Figure:
    """Draw a panel per scenario, with a line per noise scale."""
    rows = [row for row in rows if row["attack"] == strongest]
    scales = [b for b in sorted({scale_of(row) for row in rows}) if b > 0]
    colours = _colours(scales)
    with mpl.rc_context(STYLE):
        figure, panels = panels_of(rows)
        for scenario, axes in panels.items():
            shown = grouped(rows, "update", "weighting")[scenario]
            for rank, scale in enumerate(scales):
                line = line_of(shown, strongest, _rounds_of, scale=scale)
                draw_line(axes, line, colours[rank], _marker(rank))
            draw_guess(axes, line_of(shown, strongest, _rounds_of, scale=scales[0]))
            _rounds_axis(axes, sorted({row["rounds"] for row in rows}))
        handles = _handles(colours, [f"b = {b:g}" for b in scales])
        finish(figure, panels, METRICS[metric], "rounds watched", handles, any(map(fell_back, rows)))
    return figure


def _rounds_of(row: Row) -> float:
    return float(row["rounds"])


def _colours(values: Sequence[object]) -> Sequence[Any]:
    """A colour for each value, from dark to light, without the lightest."""
    colours: Sequence[Any] = sns.color_palette("viridis", len(values) + 1)
    return colours[: len(values)]


def _marker(rank: int) -> str:
    return MARKERS[rank % len(MARKERS)]


def _handles(colours: Sequence[Any], labels: Sequence[str]) -> list[Line2D]:
    return [
        Line2D([], [], color=colour, marker=_marker(rank), label=label)
        for rank, (colour, label) in enumerate(zip(colours, labels, strict=True))
    ]


def _place_of(scales: Sequence[float]) -> Callable[[float], float]:
    """Where a scale lies on the axis: its logarithm, and 0 one step to the left of the smallest."""
    positive = [b for b in scales if b > 0]
    zero = np.log10(positive[0]) - 0.5 if positive else 0.0
    return lambda b: float(np.log10(b)) if b > 0 else zero


def _scale_axis(axes: Axes, scales: Sequence[float]) -> None:
    place = _place_of(scales)
    shown = list(scales)
    while len(shown) > 9:  # keep ends and every other label
        shown = [*shown[:-1:2], shown[-1]]
    axes.xaxis.set_major_locator(FixedLocator([place(b) for b in shown]))
    names = {place(b): f"{b:g}" for b in shown}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: names.get(x, "")))


def _rounds_axis(axes: Axes, counts: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
