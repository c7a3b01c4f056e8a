"""Prediction error of private matrix factorisation: one figure per quantity that is varied."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import MARKERS, ONE_PANEL, STYLE, save
from reports.prediction import VARIED, frame_of
from reports.verdicts import Row

METHODS = (
    "hdpmf",
    "pdpmf",
    "mf",
    "dpmf",
    "hdpmf-r",
    "dpmf-program",
)  # in the order of their colours in all figures


def prediction_figure(rows: Sequence[Row], vary: str, directory: Path) -> list[Path]:
    """Draw the MSE of every method, or against what is varied; a panel per K, bars of one deviation."""
    frame = frame_of(rows, vary)
    frame = frame[(frame["metric"] == "mse") & (frame["status"] == "ran")]
    if frame.empty:
        return []
    sizes = list(frame["K"].unique())
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(ONE_PANEL * len(sizes), 2.6), layout="constrained")
        panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
        draw = _bars if vary == "nothing" else partial(_lines, vary)
        for axes, factors in zip(panels, sizes, strict=True):
            draw(axes, frame[frame["K"] == factors])
            axes.set_title(f"K = {factors}")
        panels[0].set_ylabel("MSE on held-out ratings (stars²)")
        panels[-1].legend(frameon=False)
        return save(figure, directory / ("mse_of_methods" if vary == "nothing" else f"mse_against_{vary}"))


def _bars(axes: Axes, errors: pd.DataFrame) -> None:
    """Figure 8."""
    spread = errors.groupby("method", sort=False)["value"].agg(["mean", "std"])
    axes.bar(
        spread.index,
        spread["mean"],
        yerr=None if spread["std"].isna().any() else spread["std"],  # one seed has no spread
        capsize=2,
        color=sns.color_palette("colorblind")[0],
    )
    axes.axhline(errors["baseline"].mean(), color="0.4", linestyle=":", label="training mean")


def _lines(vary: str, axes: Axes, errors: pd.DataFrame) -> None:
    """Figures 2 to 7."""
    methods = sorted(errors["method"].unique(), key=METHODS.index)
    colours = sns.color_palette("colorblind", len(METHODS))
    for method in methods:
        rank = METHODS.index(method)
        spread = errors[errors["method"] == method].groupby("place")["value"].agg(["mean", "std"])
        axes.errorbar(
            spread.index,
            spread["mean"],
            yerr=spread["std"].fillna(0),
            color=colours[rank],
            marker=MARKERS[rank],
            capsize=2,
            label=method,
        )
    mean = errors.groupby("place")["baseline"].mean()
    axes.plot(mean.index, mean, color="0.4", linestyle=":", label="training mean")
    if vary == "epsilon":
        axes.set_xscale("log")
    axes.set_xlabel(VARIED[vary])
