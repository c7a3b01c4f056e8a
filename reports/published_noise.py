"""Figures 1 to 3 of paper 000 as published: Eq. (43) against the scale of Laplace noise, beside guesses.

The paper draws its own procedure and the expected accuracy of a random guess. Here the best guess without
the transcript stands beside it: Eq. (43) counts unrated items and zero attributes, and answering nothing but
those is right far more often than a random guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from reports.figures import ONE_PANEL, STYLE, save
from reports.sweep_panels import GUESS, draw_line, line_of, panels_of, scale_of
from reports.verdicts import Row, grouped

METRICS = {"rating_accuracy": "ratings right (Eq. 43)", "attribute_accuracy": "attributes right (Eq. 43)"}
RANDOM = "guess-uniform"
# Table 6 of the paper, in bold
CHOSEN = {
    ("semi-als", "observed-only"): "hybr",
    ("semi-als", "include-unrated"): "scalar Jacobian",
    ("sgd", "observed-only"): "Anderson",
    ("sgd", "include-unrated"): "hybr",
}
SOLVER_COLOUR, RANDOM_COLOUR = "#33508a", "#b3552a"
WIDEST = 10.0  # the largest scale of a linear axis


def published_figures(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw both figures, ratings and attributes, as SVG and PNG.

    References
    ----------
    Paper 000 (arXiv:2210.07775), Figures 1 to 3.
    """
    written = []
    for metric in METRICS:
        usable = [row for row in rows if row["metric"] == metric and row["status"] == "ran"]
        if any(row["attack"].startswith("root-") for row in usable):
            written += save(published_noise(usable, metric), directory / f"published_{metric}_under_noise")
    return written


def published_noise(rows: Sequence[Row], metric: str) -> Figure:
    """Draw a panel per scenario: the solver that ran, a random guess and the best guess."""
    scales = [scale_of(row) for row in rows]
    with mpl.rc_context(STYLE):
        figure, panels = panels_of(rows)
        figure.set_figheight(figure.get_figheight() + 0.25)
        for scenario, axes in panels.items():
            shown = grouped(rows, "update", "weighting")[scenario]
            solver = next(row["attack"] for row in shown if row["attack"].startswith("root-"))
            draw_line(axes, line_of(shown, solver, scale_of), SOLVER_COLOUR, "o", limits=False)
            drawn = line_of(shown, RANDOM, scale_of)
            if drawn:
                draw_line(axes, drawn, RANDOM_COLOUR, "", dashed=True, limits=False)
            _draw_best_guess(axes, line_of(shown, solver, scale_of))
            axes.set_title(f"{' / '.join(scenario)}\nsolver {solver} (paper: {CHOSEN.get(scenario, 'none')})")
            axes.set_ylim(0, 1.02)
            axes.grid(axis="y", color="0.92", linewidth=0.6)
            if max(scales) > WIDEST:
                axes.set_xscale("log")
                axes.xaxis.set_major_locator(FixedLocator(sorted(set(scales) - {0})))
                axes.xaxis.set_minor_locator(FixedLocator([]))
                axes.xaxis.set_major_formatter(FuncFormatter(lambda b, _: f"{b:,g}"))  # no formulas in labels
            else:
                axes.set_xlim(left=0)
        figure.supxlabel("noise scale b (stars²)", fontsize=8)
        figure.supylabel(f"share of {METRICS[metric]}", fontsize=8)
        figure.legend(
            handles=_handles(rows), loc="outside upper center", ncols=_columns(figure), frameon=False
        )
    return figure


def _columns(figure: Figure) -> int:
    return 3 if figure.get_figwidth() > ONE_PANEL else 1


def _draw_best_guess(axes: Axes, line: list[tuple[float, Row]]) -> None:
    axes.plot([x for x, _ in line], [row["baseline"] for _, row in line], **GUESS)


def _handles(rows: Sequence[Row]) -> list[Line2D]:
    clients = max(row["n_users"] for row in rows)
    label = f"paper's procedure, {clients} clients, 95 % band"
    return [
        Line2D([], [], color=SOLVER_COLOUR, marker="o", label=label),
        Line2D([], [], color=RANDOM_COLOUR, linestyle="--", label="random guess (the paper's baseline)"),
        Line2D([], [], **GUESS, label="best guess without the transcript"),
    ]
