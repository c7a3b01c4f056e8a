"""Figures 2 and 3 of paper 001: the server's share of an encrypted iteration against the number of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import MARKERS, ONE_PANEL, STYLE, save
from reports.verdicts import Row

PUBLISHED = {"full-text": "Figure 2, full-text", "part-text": "Figure 3, part-text"}
PAPER_SHARE = 0.95
SHARES = {
    "server_share": "adds negated gradients, seconds",
    "server_share_subtracting": "subtracts, seconds",
    "server_share_counted": "adds, by counts of operations",
    "server_share_counted_subtracting": "subtracts, by counts",
}


def cost_figure(rows: Mapping[str, Sequence[Row]], system: str, directory: Path) -> list[Path]:
    """Draw the server's share: a panel for each upload, measured and counted, adding and subtracting."""
    uploads = [upload for upload in PUBLISHED if upload in rows]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(ONE_PANEL * len(uploads), 3.1), layout="constrained")
        panels = figure.subplots(1, len(uploads), sharey=True, squeeze=False)[0]
        for axes, upload in zip(panels, uploads, strict=True):
            _panel(axes, [row for row in rows[upload] if row["system"] == system])
            axes.set_title(PUBLISHED[upload])
            axes.set_xlabel("most rated items")
        panels[0].set_ylabel(f"server's share of an iteration\n({system})")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        return save(figure, directory / "server_share_against_items")


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    items = [row["items"] for row in rows]
    colours = sns.color_palette("colorblind")
    for rank, (name, said) in enumerate(SHARES.items()):
        axes.plot(
            items,
            [row[name] for row in rows],
            color=colours[rank % 2],
            linestyle="-" if rank < len(SHARES) // 2 else "--",
            marker=MARKERS[rank],
            label=f"server {said}",
        )
    axes.axhline(PAPER_SHARE, color="0.5", linestyle="-.", linewidth=0.9, label='paper: "about 95 %"')
    axes.set_xscale("log")
    axes.set_xticks(items, [f"{count:,}" for count in items])
    axes.set_xticks([], minor=True)
    axes.set_ylim(0, 1)
