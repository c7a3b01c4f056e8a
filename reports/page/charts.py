"""Charts of a page: drawn by seaborn, kept as SVG whose marks say their numbers on hover.

Text stays text and takes the page's colour, so that it is read aloud, found and legible on dark ground.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from reports.figures import STYLE
from reports.leaks import LEAKS
from reports.page.overview import NO_TRUTH, System
from reports.page.points import blocks_frame, frontier_frame, leaks_frame, rounds_frame
from reports.verdicts import ANSWERED, NOT_TESTED

ON_PAGE: Any = {**STYLE, "svg.fonttype": "none", "font.family": "sans-serif"}
MARKS = {"LEAK": "X", "INCONCLUSIVE": "D", "NO EVIDENCE": "o", NOT_TESTED: "s"}
VERDICTS = {"LEAK": "#c0392b", "INCONCLUSIVE": "#b7791f", "NO EVIDENCE": "#2b7a4b", NOT_TESTED: "#7b5ea7"}
KINDS = {**LEAKS, ANSWERED: NO_TRUTH}
LANE = -0.18  # where marks of what was not tested lie, left of all numbers
MOST_LINES = 60  # of one panel; more are in the table
SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
INKS = re.compile(r"#(?:000000|262626|333333)\b")

ElementTree.register_namespace("", SVG.strip("{}"))
ElementTree.register_namespace("xlink", XLINK.strip("{}"))


@dataclass(frozen=True)
class Chart:
    """A figure of a page.

    Attributes
    ----------
    name : str
        Of its files.
    title : str
    caption : str
        What is drawn, in words; also read aloud in place of the picture.
    figure : Figure
    hovers : dict of str to sequence of str
        Id of a group of marks -> words of each mark, in their order.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    hovers: dict[str, Sequence[str]]


def charts_of(systems: Sequence[System]) -> list[Chart]:
    """Draw what the results hold: leakage, its price, its growth with rounds, attributes.

    Parameters
    ----------
    systems : sequence of System

    Returns
    -------
    list of Chart
    """
    drawn = (_leakage(systems), _frontier(systems), _rounds(systems), _blocks(systems))
    return [chart for chart in drawn if chart is not None]


def inline_svg(chart: Chart) -> str:
    """Put a chart into a page: no file, no colour of its own for text, words on hover.

    Parameters
    ----------
    chart : Chart

    Returns
    -------
    str
        An ``svg`` element.
    """
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


def _leakage(systems: Sequence[System]) -> Chart | None:
    """A panel for each kind: every system and adversary with interval, guess and ceiling."""
    frame = leaks_frame(systems)
    if frame.empty:
        return None
    single = frame.system.nunique() == 1
    many = frame.adversary.nunique() > 1
    names = frame.system + ": " + frame.adversary if many else frame.system
    frame = frame.assign(line=frame.adversary if single else names)
    kinds = [name for name in KINDS if name in set(frame.metric)]
    lines = list(dict.fromkeys(frame.line))[:MOST_LINES]
    frame = frame[frame.line.isin(lines)]
    hovers: dict[str, Sequence[str]] = {}
    with mpl.rc_context(ON_PAGE):
        size = (2.4 * len(kinds) + 2.6, 0.24 * len(lines) + 1.2)
        figure = Figure(figsize=size, layout="constrained", facecolor="none")
        panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for kind, axes in zip(kinds, panels, strict=True):
            shown = frame[frame.metric == kind].reset_index(drop=True)
            group = f"leak-{kinds.index(kind)}"
            _dots(axes, shown, lines, group)
            hovers[group] = list(shown.hover)
            axes.set_title(KINDS[kind])
    caption = (
        "Strongest answer to each adversary with its 95 % interval over clients; the tick is the best guess "
        "without the transcript, the dotted one the ceiling. What was not tested is in the grey lane."
    )
    return Chart("leakage", "Who reads what", caption, figure, hovers)


def _dots(axes: Axes, frame: pd.DataFrame, lines: Sequence[str], group: str) -> None:
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
    axes.set(xlabel="", ylabel="", xlim=(LANE - 0.08, 1.04), ylim=(-0.6, len(lines) - 0.4))
    axes.set_xticks([LANE, 0, 0.5, 1], ["not\ntested", "0", "0.5", "1"])
    axes.set_yticks(range(len(lines)), list(reversed(lines)))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _frontier(systems: Sequence[System]) -> Chart | None:
    """Leakage against ranking quality; area by the bytes sent, dominated systems grey."""
    frame = frontier_frame(systems)
    if frame.empty:
        return None
    floor = min(-0.05, float(np.nanmin([0.0, *frame.low.dropna()])) - 0.05)
    lane = floor - 0.12
    frame = frame.assign(
        shown=frame.advantage.fillna(lane), state=np.where(frame.dominated, "dominated", "not dominated")
    )
    with mpl.rc_context(ON_PAGE):
        figure = Figure(figsize=(6.4, 3.8), layout="constrained", facecolor="none")
        axes = figure.subplots()
        axes.axhspan(lane - 0.05, lane + 0.05, facecolor="0.5", alpha=0.15, linewidth=0)
        axes.axhline(0, color="0.5", linewidth=0.7)
        axes.axvline(frame.popularity.mean(), color="0.5", linewidth=0.9, linestyle="--")
        axes.annotate(
            "popularity ", (frame.popularity.mean(), 1.02), ha="right", fontsize=7, annotation_clip=False
        )
        tested = frame.dropna(subset=["advantage"])
        axes.errorbar(
            tested.quality, tested.advantage, xerr=tested.spread,
            yerr=[tested.advantage - tested.low, tested.high - tested.advantage],
            fmt="none", ecolor="0.5", elinewidth=0.8,
        )  # fmt: skip
        sizes = frame.megabytes.fillna(frame.megabytes.min()).fillna(1.0)
        sns.scatterplot(
            frame, x="quality", y="shown", hue="state", size=np.sqrt(sizes), sizes=(40, 220), ax=axes,
            palette={"dominated": "0.6", "not dominated": "#2c6fbb"}, legend=False, zorder=3,
        )  # fmt: skip
        axes.collections[-1].set_gid("frontier")
        for place, line in enumerate(frame.sort_values(["shown", "quality"]).to_dict("records")):
            axes.annotate(
                line["system"], (line["quality"], line["shown"]), xytext=(4, 7 if place % 2 else -13),
                textcoords="offset points", fontsize=7,
            )  # fmt: skip
        axes.set(xlabel="NDCG@10 on held-out ratings", ylabel="advantage of the worst adversary")
        axes.set_ylim(lane - 0.06, 1.1)
        ticks = [0, 0.5, 1]
        axes.set_yticks([lane, *ticks], ["not tested", *map(str, ticks)])
    caption = (
        "Largest advantage over the best guess of any adversary, against ranking quality (sd over seeds); "
        "the dashed line is ranking by popularity, which needs nobody's gradients. Area: megabytes that a "
        "client sends. Grey: another system leaks no more and ranks no worse, and in one of the two it is "
        "better beyond the bars."
    )
    return Chart("frontier", "Leakage, usefulness, cost", caption, figure, {"frontier": list(frame.hover)})


def _rounds(systems: Sequence[System]) -> Chart | None:
    frame = rounds_frame(systems)
    if frame.empty:
        return None
    with mpl.rc_context(ON_PAGE):
        figure = Figure(figsize=(6.4, 3.2), layout="constrained", facecolor="none")
        axes = figure.subplots()
        sns.lineplot(frame, x="rounds", y="value", hue="system", ax=axes, errorbar=None, legend="full")
        axes.vlines(frame.rounds, frame.low, frame.high, color="0.5", linewidth=0.8)
        sns.scatterplot(frame, x="rounds", y="value", hue="system", ax=axes, s=30, legend=False, zorder=3)
        axes.collections[-1].set_gid("rounds")
        guess = frame.guess.mean()
        axes.axhline(guess, color="0.5", linestyle="--", linewidth=0.9)
        axes.annotate("best guess", (frame.rounds.max(), guess), ha="right", va="bottom", fontsize=7)
        axes.set(xlabel="rounds watched", ylabel=LEAKS[frame.metric.iloc[0]] + " right", ylim=(-0.02, 1.05))
        axes.legend(frameon=False, title="")
    caption = "Ratings read right by the strongest attack, against how many rounds the adversary watches."
    return Chart("rounds", "Leakage by round", caption, figure, {"rounds": list(frame.hover)})


def _blocks(systems: Sequence[System]) -> Chart | None:
    frame = blocks_frame(systems)
    if frame.empty:
        return None
    lines = list(dict.fromkeys(frame.system))[:MOST_LINES]
    blocks = list(dict.fromkeys(frame.metric))
    hovers: dict[str, Sequence[str]] = {}
    with mpl.rc_context(ON_PAGE):
        size = (2.4 * len(blocks) + 2.6, 0.24 * len(lines) + 1.2)
        figure = Figure(figsize=size, layout="constrained", facecolor="none")
        panels = figure.subplots(1, len(blocks), sharey=True, squeeze=False)[0]
        for place, (block, axes) in enumerate(zip(blocks, panels, strict=True)):
            shown = frame[(frame.metric == block) & frame.system.isin(lines)].reset_index(drop=True)
            _dots(axes, shown.assign(line=shown.system), lines, f"block-{place}")
            hovers[f"block-{place}"] = list(shown.hover)
            axes.set_title(block)
    caption = (
        "Clients whose value in each block of attributes is read right, by the strongest attack of any "
        "adversary; the tick is the best guess without the transcript."
    )
    return Chart("attributes", "Attributes", caption, figure, hovers)
