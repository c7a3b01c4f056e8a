"""What clients of a graph read of each other: against degree, distance, coalition and the round watched.

Every panel shows the advantage over the best guess, (right - guess) / (1 - guess): 0 is what anybody knows
who saw nothing, 1 is every rating. What is not claimed counts as guessed.
"""

from __future__ import annotations

from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import MARKERS, STYLE

ADVANTAGE = "advantage over the guess"


class Panel(NamedTuple):
    """A panel: what is varied, its words, whose ratings are meant, and whether the axis is logarithmic."""

    name: str
    x: str
    title: str
    log: bool


PANELS = (
    Panel("degree", "clients who send to the adversary", "a  everybody's ratings, round 0", True),
    Panel("coalition", "members of the coalition", "b  everybody's ratings, round 0", True),
    Panel(
        "distance",
        "steps along the graph to the adversary",
        "c  ratings of clients so far away, round 0",
        False,
    ),
    Panel(
        "round",
        "the one round watched (0 is the start)",
        "d  ratings of those who send to the adversary",
        False,
    ),
)
LABELS = {  # protocol and column of a line -> its words
    ("PDMFRec", "right"): "PDMFRec, no names, under pseudonyms",
    ("PDMFRec", "by name"): "PDMFRec, no names, under the right name",
    ("DMF", "right"): "DMF, names told",
    ("DPMF-Yang", "right"): "DPMF-Yang, names told",
}


def leakage_figure(frame: pd.DataFrame) -> Figure:
    """Draw four panels, a line for each protocol; bars are 95 % intervals over clients.

    Against degree a mark is one adversary, against coalition the mean of some draws of members.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.8, 5.2), layout="constrained")
        panels = figure.subplots(2, 2, sharey="row")
        for panel, axes in zip(PANELS, panels.flat, strict=True):
            _draw(axes, panel, frame[frame["panel"] == panel.name])
        for axes in panels[:, 0]:
            axes.set_ylabel(ADVANTAGE)
        lines, words = panels[0, 0].get_legend_handles_labels()
        figure.legend(lines, words, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw(axes: Axes, panel: Panel, frame: pd.DataFrame) -> None:
    colours = sns.color_palette("colorblind", len(LABELS))
    axes.axhline(0, color="0.4", linestyle=":", linewidth=1)
    axes.axhline(1, color="0.8", linewidth=0.8)
    for rank, ((protocol, column), words) in enumerate(LABELS.items()):
        some = frame[frame["protocol"].str.split(",").str[0] == protocol]
        if some.empty:
            continue
        shown = pd.DataFrame(
            {name: _advantage(some[name], some["guess"]) for name in (column, "low", "high")}
        )
        found = shown.assign(x=some["x"]).groupby("x").mean()
        bars = column == "right" and panel.name in ("distance", "round")
        apart = [found[column] - found["low"], found["high"] - found[column]] if bars else None
        axes.errorbar(
            found.index,
            found[column],
            yerr=None if apart is None else np.maximum(apart, 0),
            color=colours[rank],
            marker=MARKERS[rank],
            linestyle="--" if column == "by name" else "-",
            capsize=2,
            label=words,
        )
    if panel.log:
        axes.set_xscale("log")
        shown_at = sorted({1, *(10**k * n for k in range(4) for n in (1, 2, 5))})
        inside = [n for n in shown_at if frame["x"].min() <= n <= frame["x"].max()] if len(frame) else []
        axes.set_xticks(inside, [f"{n:g}" for n in inside])
        axes.minorticks_off()
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")  # powers of ten would be formulas
    elif len(frame):
        axes.set_xticks(sorted(frame["x"].unique()), [f"{n:g}" for n in sorted(frame["x"].unique())])
    axes.set(xlabel=panel.x)
    if not panel.log:
        axes.set_ylim(-0.05, 1.05)
    axes.set_title(panel.title, loc="left")


def _advantage(right: pd.Series, guess: pd.Series) -> pd.Series:
    return (right - guess) / (1 - guess)
