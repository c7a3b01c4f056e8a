"""What all figures have in common: their style, and files that are the same bytes for the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from victims.common.files import replacing

MARKERS = "osD^vP*X"
ONE_PANEL = 3.4  # inches, a column of a paper
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
