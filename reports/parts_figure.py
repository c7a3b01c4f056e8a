"""MAE against rounds of a protocol among neighbours, beside a constant and a published number."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from reports.figures import MARKERS, ONE_PANEL, STYLE


def rounds_figure(frame: pd.DataFrame, *, mean: float, published: float) -> Figure:
    """Draw a panel for each learning rate, a line for each variant."""
    rates = sorted(frame["rate"].unique())
    variants = list(dict.fromkeys(frame["variant"]))
    colours = sns.color_palette("colorblind", len(variants))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(ONE_PANEL * len(rates), 3.0), layout="constrained")
        panels = figure.subplots(1, len(rates), sharey=True, squeeze=False)[0]
        for axes, rate in zip(panels, rates, strict=True):
            axes.axhline(published, color="0.2", linestyle="--", linewidth=1, label="published, PDMFRec")
            axes.axhline(mean, color="0.4", linestyle=":", linewidth=1, label="mean of the training ratings")
            for rank, variant in enumerate(variants):
                some = frame[(frame["rate"] == rate) & (frame["variant"] == variant)]
                axes.plot(
                    some["rounds"], some["mae"], color=colours[rank], marker=MARKERS[rank], label=variant
                )
            axes.set(xscale="log", xlabel="rounds", title=f"rate {rate:g}", ylim=(0.88, 1.28))
            shown = [1, 2, 5, 10, 20, 50, 100, 150]
            axes.set_xticks(shown, [str(number) for number in shown])
            axes.minorticks_off()
        panels[0].set_ylabel("MAE on held-out ratings (stars)")
        lines, words = panels[0].get_legend_handles_labels()
        figure.legend(lines, words, loc="outside lower center", ncols=3, frameon=False)
    return figure
