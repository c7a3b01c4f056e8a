"""What the charts of a page share: marks by verdict, and SVG whose marks say their numbers on hover.

Charts are drawn by seaborn. Text stays text and takes the page's colour, so that it is read aloud, found and
legible on dark ground.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from reports.figures import STYLE
from reports.verdicts import NOT_TESTED

ON_PAGE: Any = {**STYLE, "svg.fonttype": "none", "font.family": "sans-serif", "axes.facecolor": "none"}
MARKS = {"LEAK": "X", "INCONCLUSIVE": "D", "NO EVIDENCE": "o", NOT_TESTED: "s"}
VERDICTS = {"LEAK": "#c0392b", "INCONCLUSIVE": "#b7791f", "NO EVIDENCE": "#2b7a4b", NOT_TESTED: "#7b5ea7"}
LANE = -0.18  # where marks of what was not tested lie, left of all numbers
MOST_LINES = 60  # of one panel; more are in the table
SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
INKS = re.compile(r"#(?:000000|262626|333333)\b")

ElementTree.register_namespace("", SVG.strip("{}"))
ElementTree.register_namespace("xlink", XLINK.strip("{}"))


@dataclass(frozen=True)
class Chart:
    """A figure of a page."""

    name: str  # of its files
    title: str
    caption: str  # what is drawn, in words; also read aloud in place of the picture
    figure: Figure
    hovers: dict[str, Sequence[str]]  # id of a group of marks -> words of each mark, in their order


def inline_svg(chart: Chart) -> str:
    """Put a chart into a page: no file, no colour of its own for text, words on hover."""
    buffer = io.StringIO()
    with mpl.rc_context(ON_PAGE):
        FigureCanvasSVG(chart.figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    root = ElementTree.fromstring(INKS.sub("currentColor", text[text.index("<svg") :]))
    for metadata in root.findall(f"{SVG}metadata"):
        root.remove(metadata)
    for group, words in chart.hovers.items():
        _say_on_hover(root.find(f".//{SVG}g[@id='{group}']"), words)
    _prefix_ids(root, f"{chart.name}-")
    root.set("fill", "currentColor")  # matplotlib leaves out the colour of black text
    root.set("role", "img")
    root.set("aria-label", chart.caption)
    return ElementTree.tostring(root, encoding="unicode")


def _say_on_hover(group: ElementTree.Element | None, words: Sequence[str]) -> None:
    """The i-th mark of a group gets the i-th words; a mark is the use of a shape, or a shape."""
    assert group is not None
    shapes = {shape for defined in group.iter(f"{SVG}defs") for shape in defined.iter()}
    marks = [one for one in group.iter() if one.tag in (f"{SVG}use", f"{SVG}path") and one not in shapes]
    for mark, text in zip(marks, words, strict=True):
        ElementTree.SubElement(mark, f"{SVG}title").text = text


def _prefix_ids(root: ElementTree.Element, prefix: str) -> None:
    """Figures of one page must not share ids."""
    for one in root.iter():
        for name, value in one.attrib.items():
            if name == "id":
                one.set(name, prefix + value)
            elif name == f"{XLINK}href" or value.startswith("url(#"):
                one.set(name, value.replace("#", f"#{prefix}", 1))


def panels(
    frame: pd.DataFrame, names: Mapping[str, str], prefix: str, width: float = 2.4
) -> tuple[Figure, dict[str, Sequence[str]]]:
    """Draw a panel of dots for each metric, beside each other, with the same lines."""
    lines = list(dict.fromkeys(frame.line))[:MOST_LINES]
    frame = frame[frame.line.isin(lines)]
    hovers: dict[str, Sequence[str]] = {}
    with mpl.rc_context(ON_PAGE):
        size = (width * len(names) + 2.6, 0.24 * len(lines) + 1.2)
        figure = Figure(figsize=size, layout="constrained", facecolor="none")
        row = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for place, ((metric, title), axes) in enumerate(zip(names.items(), row, strict=True)):
            shown = frame[frame.metric == metric].reset_index(drop=True)
            dots(axes, shown, lines, f"{prefix}-{place}")
            hovers[f"{prefix}-{place}"] = list(shown.hover)
            axes.set_title(title)
    return figure, hovers


def dots(axes: Axes, frame: pd.DataFrame, lines: Sequence[str], group: str) -> None:
    """Draw a mark for each line with its interval, guess and ceiling; what was not tested in a lane."""
    where = frame.line.map({name: len(lines) - 1 - place for place, name in enumerate(lines)})
    drawn = frame.assign(where=where, shown=frame.value.fillna(LANE))
    axes.axvspan(LANE - 0.08, LANE + 0.08, facecolor="0.5", alpha=0.15, linewidth=0)
    axes.hlines(where, frame.low, frame.high, color="0.5", linewidth=1)
    sns.scatterplot(
        drawn, x="shown", y="where", hue="verdict", palette=VERDICTS, style="verdict", markers=MARKS, s=34,
        ax=axes, legend=False, zorder=3,
    )  # fmt: skip
    axes.collections[-1].set_gid(group)
    axes.vlines(frame.guess, where - 0.32, where + 0.32, color="0.5", linewidth=1.4, zorder=2)
    axes.vlines(frame.ceiling, where - 0.18, where + 0.18, color="0.5", linewidth=0.8, linestyle=":")
    for _, one in drawn[drawn.about != ""].iterrows():
        axes.annotate(
            one.about, (one["shown"], one["where"]), (0, -9), textcoords="offset points", fontsize=6,
            ha="right" if one["shown"] > 0.5 else "left",
        )  # fmt: skip
    axes.set(xlabel="", ylabel="", xlim=(LANE - 0.08, 1.04), ylim=(-0.6, len(lines) - 0.4))
    axes.set_xticks([LANE, 0, 0.5, 1], ["not\ntested", "0", "0.5", "1"])
    axes.set_yticks(range(len(lines)), list(reversed(lines)))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
