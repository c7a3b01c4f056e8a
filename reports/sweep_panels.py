"""Panels of a sweep's figures: a scenario each, with lines, bands, ceilings and the best guess."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.figures import ONE_PANEL
from reports.verdicts import NOT_TESTED, Row

GUESS: Any = {"color": "0.15", "linestyle": (0, (7, 2, 1, 2)), "linewidth": 1.0}
CEILING: Any = {"linestyle": (0, (1, 1.5)), "linewidth": 0.9, "marker": "_", "markersize": 7}
Panels = dict[tuple[str, str], Axes]  # (update, weighting) -> panel
Line = list[tuple[float, Row]]


def panels_of(rows: Sequence[Row]) -> tuple[Figure, Panels]:
    """Lay out a figure with a panel for each scenario."""
    scenarios = list(dict.fromkeys((row["update"], row["weighting"]) for row in rows))
    columns = min(2, len(scenarios))
    height = -(-len(scenarios) // columns)
    figure = Figure(figsize=(ONE_PANEL * columns, 2.2 * height + 0.7), layout="constrained")
    grid = figure.subplots(height, columns, sharex=True, sharey=True, squeeze=False)
    for axis in grid.ravel()[len(scenarios) :]:
        axis.set_visible(False)
    return figure, dict(zip(scenarios, grid.ravel(), strict=False))


def line_of(
    rows: Sequence[Row],
    attack: str,
    x_of: Callable[[Row], float],
    *,
    rounds: int | None = None,
    scale: float | None = None,
) -> Line:
    """Choose the rows of one line."""
    points = [
        (x_of(row), row)
        for row in rows
        if row["attack"] == attack
        and (rounds is None or row["rounds"] == rounds)
        and (scale is None or scale_of(row) == scale)
    ]
    return sorted(points, key=lambda point: point[0])


def scale_of(row: Row) -> float:
    """Read the noise scale b from the text of a row's defense.

    Examples
    --------
    >>> scale_of({"defense": "laplace:scale=0.5"})
    0.5
    """
    return float(str(row["defense"]).rpartition("scale=")[2].partition(",")[0])


def fell_back(row: Row) -> bool:
    """Say whether most clients got no answer, so that they count with the best guess.

    Examples
    --------
    >>> fell_back({"n_users": 10, "n_abstained": 6, "verdict": ""})
    True
    """
    most = (row["n_abstained"] or 0) > (row["n_users"] or 0) / 2
    return row["verdict"] == NOT_TESTED or bool(most)


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)


def draw_line(
    axes: Axes,
    line: Line,
    colour: Any,
    marker: str,
    *,
    dashed: bool = False,
    limits: bool = True,
) -> None:
    """Draw a line with its band, hollow marks where it fell back on the guess, and its ceiling."""
    x = [where for where, _ in line]
    y = [row["baseline"] if fell_back(row) else row["value"] for _, row in line]
    axes.plot(x, y, "--" if dashed else "-", color=colour)
    for hollow in (False, True):
        chosen = [n for n, (_, row) in enumerate(line) if fell_back(row) == hollow]
        shape = "o" if hollow and marker == "x" else marker
        axes.plot([x[n] for n in chosen], [y[n] for n in chosen], linestyle="", color=colour, marker=shape,
                  markerfacecolor="white" if hollow else colour, zorder=3)  # fmt: skip
    low, high = ([_float(row[name]) for _, row in line] for name in ("ci_low", "ci_high"))
    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    if limits:
        axes.plot(x, [_float(row["ceiling"]) for _, row in line], color=colour, **CEILING)


def draw_guess(axes: Axes, line: Line) -> None:
    """Draw the best guess without the transcript, and name it in the panel."""
    x, y = [where for where, _ in line], [_float(row["baseline"]) for _, row in line]
    axes.plot(x, y, **GUESS)
    if x:
        axes.annotate("best guess", (x[0], y[0]), (0, -2), textcoords="offset points", va="top", fontsize=6)


def finish(
    figure: Figure,
    panels: Panels,
    metric: str,
    unit: str,
    handles: list[Line2D],
    hollow: bool,
) -> None:
    """Name panels and axes, and add the legend."""
    for (update, weighting), axes in panels.items():
        axes.set_title(f"{update} / {weighting}")
        axes.set_ylim(0, 1.02)
        axes.grid(axis="y", color="0.92", linewidth=0.6)
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
