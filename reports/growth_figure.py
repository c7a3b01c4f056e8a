"""Bytes and seconds of a round against what grows, beside what a paper claims of both."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from reports.figures import MARKERS, ONE_PANEL, STYLE

GROWS = {"users": "ratings of the clients", "degree": "receivers of each client, d", "factors": "factors, K"}
MEASURED = {"bytes": "megabytes a round", "seconds": "processor seconds a round"}


def growth_figure(frame: pd.DataFrame) -> Figure:
    """Draw a column for what grows, a row for what is measured, a line for each protocol, on log axes."""
    protocols = list(dict.fromkeys(frame["protocol"]))
    colours = sns.color_palette("colorblind", len(protocols))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(ONE_PANEL * len(GROWS), 4.6), layout="constrained")
        panels = figure.subplots(len(MEASURED), len(GROWS), sharex="col", sharey="row")
        for (measured, words), row in zip(MEASURED.items(), panels, strict=True):
            for varied, axes in zip(GROWS, row, strict=True):
                for rank, protocol in enumerate(protocols):
                    some = frame[(frame["varied"] == varied) & (frame["protocol"] == protocol)]
                    unit = 1e6 if measured == "bytes" else 1.0
                    at, values = some["at"].to_numpy(float), some[measured].to_numpy(float) / unit
                    claimed = some["claimed"] / unit if measured == "bytes" else values[0] * at / at[0]
                    axes.plot(at, values, color=colours[rank], marker=MARKERS[rank], label=protocol)
                    label = f"{protocol}, as claimed"
                    axes.plot(at, np.asarray(claimed), color=colours[rank], linestyle=":", label=label)
                axes.set(xscale="log", yscale="log")
                axes.minorticks_off()
                shown = sorted(set(frame.loc[frame["varied"] == varied, "at"].astype(float)))
                axes.set_xticks(shown, [f"{value:,.0f}" for value in shown])
                axes.yaxis.set_major_formatter("{x:g}")
            row[0].set_ylabel(words)
        for axes, words in zip(panels[-1], GROWS.values(), strict=True):
            axes.set_xlabel(words)
        lines, names = panels[0][0].get_legend_handles_labels()
        figure.legend(lines, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure
