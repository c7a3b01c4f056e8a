"""Figures of a sweep: accuracy against noise scale, and against rounds watched.

Work on plain mappings with the columns of ``results.json``. Every line has its 95 % band over clients, the
best guess without the transcript (dark, dash-dotted, named in the panel) and the ceiling (the line's colour,
dotted, capped) in the same axes. Where most clients got no answer the value is the guess's: the mark is
hollow. Files are the same bytes for the same rows: no dates, fixed identifiers in SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from victims.common.files import replacing

Row = Mapping[str, Any]

METRICS = {
    "rating_accuracy": "ratings right (Eq. 43)",
    "rated_rating_accuracy": "rated items right",
    "attribute_group_accuracy": "attributes right (blocks)",
}
MARKERS = "osD^vP*X"
ONE_PANEL = 3.4  # inches, a column of a paper
GUESS: Any = {"color": "0.15", "linestyle": (0, (7, 2, 1, 2)), "linewidth": 1.0}
CEILING: Any = {"linestyle": (0, (1, 1.5)), "linewidth": 0.9, "marker": "_", "markersize": 7}
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "text.parse_math": False,  # names from outside are no formulas
    "svg.hashsalt": "factorleak",
    "svg.fonttype": "path",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def sweep_figures(rows: Sequence[Row], directory: Path, strongest: str, *paper: str) -> list[Path]:
    """Draw all figures of a sweep as SVG and PNG.

    Parameters
    ----------
    rows : sequence of mappings
        Of a sweep, ``defense`` as "laplace:scale=2".
    directory : Path
    strongest : str
        The attack that is drawn for every number of rounds.
    *paper : str
        Attacks of which the first that ran in a scenario is drawn dashed beside it.

    Returns
    -------
    list of Path
    """
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


def scale_of(row: Row) -> float:
    """b of a row's defense.

    Examples
    --------
    >>> scale_of({"defense": "laplace:scale=0.5"})
    0.5
    """
    return float(str(row["defense"]).rpartition("scale=")[2].partition(",")[0])


def accuracy_against_scale(rows: Sequence[Row], metric: str, strongest: str, *paper: str) -> Figure:
    """One panel per scenario; a colour per number of rounds watched, the paper's procedure dashed grey."""
    counts = sorted({row["rounds"] for row in rows if row["attack"] == strongest})
    colours = dict(zip(counts, sns.color_palette("viridis", len(counts) + 1), strict=False))
    scales = sorted({scale_of(row) for row in rows})
    with mpl.rc_context(STYLE):
        figure, axes = _panels(rows)
        for (update, weighting), axis in axes.items():
            part = [r for r in rows if (r["update"], r["weighting"]) == (update, weighting)]
            for number, count in enumerate(counts):
                line = _line(part, strongest, scale_of, rounds=count)
                _draw(axis, line, _place(scales), colours[count], MARKERS[number % len(MARKERS)])
            # the fewest rounds that the paper's systems can be formed from
            ran = {row["attack"] for row in part}
            name = next((name for name in paper if name in ran), None)
            if name:
                fewest = min(r["rounds"] for r in part if r["attack"] == name)
                line = _line(part, name, scale_of, rounds=fewest)
                _draw(axis, line, _place(scales), "0.35", "x", dashed=True, limits=False)
            guess = _line(part, strongest, scale_of, rounds=counts[0])
            _draw_guess(axis, guess, _place(scales))
            _scale_axis(axis, scales)
        handles = [
            Line2D([], [], color=colours[c], marker=MARKERS[n % len(MARKERS)],
                   label=f"{strongest}, {c} round{'s' if c > 1 else ''}")
            for n, c in enumerate(counts)
        ]  # fmt: skip
        handles.append(
            Line2D([], [], color="0.35", marker="x", linestyle="--", label="paper's procedure, fewest rounds")
        )
        _finish(figure, axes, METRICS[metric], "noise scale b (stars²)", handles, any(map(fell_back, rows)))
    return figure


def accuracy_against_rounds(rows: Sequence[Row], metric: str, strongest: str) -> Figure:
    """One panel per scenario, one line per noise scale."""
    rows = [row for row in rows if row["attack"] == strongest]
    scales = [b for b in sorted({scale_of(row) for row in rows}) if b > 0]
    colours = dict(zip(scales, sns.color_palette("viridis", len(scales) + 1), strict=False))
    counts = sorted({row["rounds"] for row in rows})
    with mpl.rc_context(STYLE):
        figure, axes = _panels(rows)
        for (update, weighting), axis in axes.items():
            part = [r for r in rows if (r["update"], r["weighting"]) == (update, weighting)]
            for number, scale in enumerate(scales):
                line = _line(part, strongest, lambda row: float(row["rounds"]), scale=scale)
                _draw(axis, line, float, colours[scale], MARKERS[number % len(MARKERS)])
            guess = _line(part, strongest, lambda row: float(row["rounds"]), scale=scales[0])
            _draw_guess(axis, guess, float)
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(FixedLocator(counts))
            axis.xaxis.set_minor_locator(FixedLocator([]))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        handles = [
            Line2D([], [], color=colours[b], marker=MARKERS[n % len(MARKERS)], label=f"b = {b:g}")
            for n, b in enumerate(scales)
        ]
        _finish(figure, axes, METRICS[metric], "rounds watched", handles, any(map(fell_back, rows)))
    return figure


def _panels(rows: Sequence[Row]) -> tuple[Figure, dict[tuple[str, str], Axes]]:
    scenarios = list(dict.fromkeys((row["update"], row["weighting"]) for row in rows))
    columns = min(2, len(scenarios))
    height = -(-len(scenarios) // columns)
    figure = Figure(figsize=(ONE_PANEL * columns, 2.2 * height + 0.7), layout="constrained")
    grid = figure.subplots(height, columns, sharex=True, sharey=True, squeeze=False)
    for axis in grid.ravel()[len(scenarios) :]:
        axis.set_visible(False)
    return figure, dict(zip(scenarios, grid.ravel(), strict=False))


def _line(rows: Sequence[Row], attack: str, at: Any, *, rounds: int | None = None,
          scale: float | None = None) -> list[tuple[float, Row]]:  # fmt: skip
    found = [
        (at(row), row)
        for row in rows
        if row["attack"] == attack
        and (rounds is None or row["rounds"] == rounds)
        and (scale is None or scale_of(row) == scale)
    ]
    return sorted(found, key=lambda pair: pair[0])


def _draw(
    axis: Axes,
    line: list[tuple[float, Row]],
    place: Any,
    colour: Any,
    marker: str,
    *,
    dashed: bool = False,
    limits: bool = True,
) -> None:
    x = [place(value) for value, _ in line]
    style = "--" if dashed else "-"
    y = [row["baseline"] if fell_back(row) else row["value"] for _, row in line]
    axis.plot(x, y, style, color=colour)
    for hollow in (False, True):
        chosen = [number for number, (_, row) in enumerate(line) if fell_back(row) == hollow]
        shape = "o" if hollow and marker == "x" else marker
        axis.plot([x[n] for n in chosen], [y[n] for n in chosen], linestyle="", color=colour, marker=shape,
                  markerfacecolor="white" if hollow else colour, zorder=3)  # fmt: skip
    low, high = ([_number(row[name]) for _, row in line] for name in ("ci_low", "ci_high"))
    axis.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    if limits:
        axis.plot(x, [_number(row["ceiling"]) for _, row in line], color=colour, **CEILING)


def fell_back(row: Row) -> bool:
    """Whether most clients got no answer, so that they count with the best guess.

    Examples
    --------
    >>> fell_back({"n_users": 10, "n_abstained": 6, "verdict": ""})
    True
    """
    most = (row["n_abstained"] or 0) > (row["n_users"] or 0) / 2
    return row["verdict"] == "NOT TESTED" or bool(most)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _draw_guess(axis: Axes, line: list[tuple[float, Row]], place: Any) -> None:
    x, y = [place(value) for value, _ in line], [_number(row["baseline"]) for _, row in line]
    axis.plot(x, y, **GUESS)
    if x:
        axis.annotate("best guess", (x[0], y[0]), (0, -2), textcoords="offset points", va="top", fontsize=6)


def _place(scales: Sequence[float]) -> Any:
    """Where a scale lies on the axis: its logarithm, and 0 one step to the left of the smallest."""
    positive = [b for b in scales if b > 0]
    zero = np.log10(positive[0]) - 0.5 if positive else 0.0
    return lambda b: float(np.log10(b)) if b > 0 else zero


def _scale_axis(axis: Axes, scales: Sequence[float]) -> None:
    place = _place(scales)
    shown = list(scales)
    while len(shown) > 9:  # keep ends and every other label
        shown = [*shown[:-1:2], shown[-1]]
    axis.xaxis.set_major_locator(FixedLocator([place(b) for b in shown]))
    names = {place(b): f"{b:g}" for b in shown}
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: names.get(x, "")))


def _finish(
    figure: Figure,
    axes: dict[tuple[str, str], Axes],
    metric: str,
    unit: str,
    handles: list[Line2D],
    hollow: bool,
) -> None:
    for (update, weighting), axis in axes.items():
        axis.set_title(f"{update} / {weighting}")
        axis.set_ylim(0, 1.02)
        axis.grid(axis="y", color="0.92", linewidth=0.6)
    figure.supxlabel(unit, fontsize=8)
    figure.supylabel(f"share of {metric}", fontsize=8)
    handles = [
        *handles,
        Line2D([], [], color="0.4", **CEILING, label="ceiling"),
        Line2D([], [], **GUESS, label="best guess"),
    ]
    if hollow:
        label = "hollow: most clients unanswered, so the guess"
        handles.append(
            Line2D([], [], color="0.4", linestyle="", marker="o", markerfacecolor="white", label=label)
        )
    widest = 3 if figure.get_figwidth() > ONE_PANEL else 1
    figure.legend(handles=handles, loc="outside upper center", ncols=min(widest, len(handles)), frameon=False)


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as SVG and PNG, the same bytes for the same figure."""
    svg, png = path.with_name(path.name + ".svg"), path.with_name(path.name + ".png")
    with mpl.rc_context(STYLE):
        with replacing(svg) as partial:
            FigureCanvasSVG(figure).print_svg(partial, metadata={"Date": None, "Creator": "factorleak"})
        FigureCanvasAgg(figure)
        with replacing(png) as partial:
            figure.savefig(partial, dpi=200, format="png", metadata={"Software": "factorleak"})
    return [svg, png]
