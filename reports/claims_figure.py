"""Privacy against utility: the advantage of the best attack against the recommender's error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.claims import best_answer, option_of
from reports.figures import MARKERS, ONE_PANEL, STYLE, save
from reports.verdicts import Row, grouped


class Point(NamedTuple):
    """One budget of a protocol and reading of the noise: the best attack, and the recommender's error."""

    epsilon: float
    leak: Row
    error: Row


Lines = dict[tuple[str, str], list[Point]]  # (protocol, noise) -> points by budget


def claims_figure(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw a panel per protocol, with a line per reading of the noise."""
    lines = _lines(rows)
    if not lines:
        return []
    protocols = list(dict.fromkeys(protocol for protocol, _ in lines))
    noises = list(dict.fromkeys(noise for _, noise in lines))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(ONE_PANEL * len(protocols), 3.0), layout="constrained")
        panels = figure.subplots(1, len(protocols), sharey=True, squeeze=False)[0]
        guess = next(iter(lines.values()))[0].error["baseline"]
        for axes, protocol in zip(panels, protocols, strict=True):
            _panel(axes, protocol, noises, lines, guess)
        panels[0].set_ylabel("advantage of the best attack over the guess")
        panels[0].legend(frameon=False, title="noise drawn (numbers: largest budget)")
        return save(figure, directory / "privacy_against_utility")


def _lines(rows: Sequence[Row]) -> Lines:
    lines: Lines = {}
    for (protocol, defense), of_system in grouped(rows, "victim", "defense").items():
        leak = best_answer(of_system)
        errors = [row for row in of_system if row["metric"] == "mse" and row["status"] == "ran"]
        if leak is not None and errors and defense != "none":
            point = Point(float(option_of(defense, "epsilon")), leak, errors[0])
            lines.setdefault((str(protocol), option_of(defense, "noise")), []).append(point)
    return {key: sorted(points, key=lambda point: point.epsilon) for key, points in lines.items()}


def _panel(axes: Axes, protocol: str, noises: Sequence[str], lines: Lines, guess: float) -> None:
    colours = sns.color_palette("colorblind", len(noises))
    for rank, noise in enumerate(noises):
        if points := lines.get((protocol, noise)):
            _line(axes, points, rank, colours[rank], noise)
    axes.axvline(guess, color="0.6", linestyle=":")
    axes.annotate("training mean", (guess, 0.5), rotation=90, fontsize=6, color="0.4", ha="right")
    axes.set_xlabel("MSE of the recommender (stars²)")
    axes.set_title(protocol)


def _line(
    axes: Axes, points: Sequence[Point], rank: int, colour: tuple[float, float, float], label: str
) -> None:
    x = [point.error["value"] for point in points]
    y = [point.leak["advantage"] for point in points]
    below = [point.leak["advantage"] - point.leak["advantage_low"] for point in points]
    above = [point.leak["advantage_high"] - point.leak["advantage"] for point in points]
    axes.errorbar(x, y, yerr=[below, above], color=colour, marker=MARKERS[rank], capsize=2, label=label)
    for count, point in enumerate(points):
        away = (3, 3 if (count + rank) % 2 else -8)  # neighbours may lie on one another
        axes.annotate(
            f"{point.epsilon:g}", (x[count], y[count]), away, textcoords="offset points", fontsize=6
        )
