"""Figures 4 to 6 of paper 004: RMSE against rounds, over lambda and W, and against K."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import MARKERS, ONE_PANEL, STYLE, save
from reports.trusted_prediction import frame_of, last_rounds, over_weights
from reports.verdicts import Row

SYSTEMS = ("dpmf-yang", "dmf", "svd++", "gaussian-pmf")  # in the order of their colours
UNIT = "RMSE, units of 0..1"


def trusted_figures(rows: Sequence[Row], vary: str, directory: Path) -> list[Path]:
    """Draw what a grid shows, bars of one standard deviation over seeds."""
    frame = frame_of(rows)
    frame = frame[(frame["metric"] == "rmse_unit") & (frame["status"] == "ran")]
    if frame.empty or vary not in ("nothing", "weights"):
        return []
    with mpl.rc_context(STYLE):
        if vary == "weights":
            return _over_weights(frame, directory)
        return [*_against_rounds(frame, directory), *_against_factors(last_rounds(frame), directory)]


def _against_rounds(frame: pd.DataFrame, directory: Path) -> list[Path]:
    trained = frame[frame["rounds"] > 0]
    sizes = list(trained["K"].unique())
    if not sizes:
        return []
    figure = Figure(figsize=(ONE_PANEL * len(sizes), 2.9), layout="constrained")
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    for axes, factors in zip(panels, sizes, strict=True):
        some = trained[trained["K"] == factors]
        _lines(axes, some, "rounds")
        axes.axhline(some["baseline"].mean(), color="0.4", linestyle=":", label="constant mean")
        axes.set(xscale="log", xlabel="rounds", title=f"K = {factors}")
        shown = sorted(some["rounds"].unique())
        axes.set_xticks(shown, [f"{number:g}" for number in shown])  # powers of ten would be formulas
        axes.minorticks_off()
    panels[0].set_ylabel(UNIT)
    _legend_below(figure, panels[0])
    return save(figure, directory / "rmse_against_rounds")


def _against_factors(frame: pd.DataFrame, directory: Path) -> list[Path]:
    figure = Figure(figsize=(ONE_PANEL, 2.9), layout="constrained")
    axes = figure.subplots()
    _lines(axes, frame, "K")
    axes.axhline(frame["baseline"].mean(), color="0.4", linestyle=":", label="constant mean")
    axes.set(xlabel="K", ylabel=UNIT, xticks=sorted(frame["K"].unique()))
    _legend_below(figure, axes)
    return save(figure, directory / "rmse_against_k")


def _legend_below(figure: Figure, axes: Axes) -> None:
    """Say what lines are where none of them runs."""
    lines, words = axes.get_legend_handles_labels()
    figure.legend(lines, words, loc="outside lower center", ncols=3, frameon=False)


def _over_weights(frame: pd.DataFrame, directory: Path) -> list[Path]:
    mean = over_weights(frame)
    figure = Figure(figsize=(ONE_PANEL, 2.8), layout="constrained")
    axes = figure.subplots()
    shown = axes.imshow(mean.to_numpy(), origin="lower", aspect="auto", cmap="viridis_r")
    middle = (mean.to_numpy().min() + mean.to_numpy().max()) / 2
    for (row, column), value in np.ndenumerate(mean.to_numpy()):
        colour = "white" if value > middle else "black"
        axes.text(column, row, f"{value:.4f}", ha="center", va="center", fontsize=6, color=colour)
    axes.set_xticks(range(mean.shape[1]), [f"{weight:g}" for weight in mean.columns])
    axes.set_yticks(range(mean.shape[0]), [f"{share:g}" for share in mean.index])
    axes.set(xlabel="W", ylabel="lambda")
    figure.colorbar(shown, ax=axes, label=UNIT)
    return save(figure, directory / "rmse_over_weights")


def _lines(axes: Axes, frame: pd.DataFrame, x: str) -> None:
    colours = sns.color_palette("colorblind", len(SYSTEMS))
    for rank, system in enumerate(SYSTEMS):
        some = frame[frame["system"] == system]
        if some.empty:
            continue
        found = some.groupby(x)["value"].agg(["mean", "std"])
        axes.errorbar(
            found.index,
            found["mean"],
            yerr=found["std"].fillna(0),
            color=colours[rank],
            marker=MARKERS[rank],
            capsize=2,
            label=system,
        )
