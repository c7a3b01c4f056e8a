"""The charts of a page: who reads what, its price, growth with rounds, of whom most is read, attributes.

Charts are drawn by seaborn from tidy frames, a line for each mark with the words that it says on hover. Text
stays text and takes the page's colour, so that it is read aloud, found and legible on dark ground.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from matplotlib.font_manager import FontProperties

from reports.figures import STYLE, legend
from reports.verdicts import (
    LEAKS,
    NOT_TESTED,
    OPEN,
    OUTPUTS,
    UNASKED,
    Row,
    System,
    best,
    grouped,
    interval_of,
    number,
    of_group,
    of_what,
    tested,
    verdict_of,
)

ON_PAGE: Any = {**STYLE, "svg.fonttype": "none", "font.family": "sans-serif", "axes.facecolor": "none"}
MARKS = {"LEAK": "X", OPEN: "X", "INCONCLUSIVE": "D", "NO EVIDENCE": "o", NOT_TESTED: "s"}
VERDICTS = {
    "LEAK": "#c0392b",
    OPEN: "#c0392b",
    "INCONCLUSIVE": "#b7791f",
    "NO EVIDENCE": "#2b7a4b",
    NOT_TESTED: "#7b5ea7",
}
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


@contextmanager
def page_panels(
    columns: int, width: float, height: float, systems: Sequence[System] = ()
) -> Iterator[tuple[Figure, np.ndarray]]:
    """Lay out panels beside each other, data and clients below, for as long as something is drawn."""
    with mpl.rc_context(ON_PAGE):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
        yield figure, figure.subplots(1, columns, sharey=True, squeeze=False)[0]
        if figure.legends:  # below, too, where one would lie on the other
            figure.legends[0].set_title(_about(systems), prop=FontProperties(size=7))
        else:
            figure.supxlabel(_about(systems), fontsize=7)


def _about(systems: Sequence[System]) -> str:
    """Data, and the numbers of clients that were attacked."""
    rows = [row for system in systems for row in system.rows]
    data = ", ".join(dict.fromkeys(str(row["data"]).rstrip("/").rpartition("/")[2] for row in rows))
    counts = sorted({int(row["n_users"]) for row in rows if tested(row)})
    n = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "none"
    return f"{data}; n = {n} clients"


def at_least(low: float, high: float, span: float = 0.05) -> tuple[float, float]:
    """Widen what an axis shows to a span below which differences are none.

    Examples
    --------
    >>> at_least(0.5, 0.5), at_least(0.0, 1.0)
    ((0.475, 0.525), (0.0, 1.0))
    """
    more = max(span - (high - low), 0) / 2
    return low - more, high + more


def _dot_chart(
    name: str,
    title: str,
    caption: str,
    frame: pd.DataFrame,
    titles: Mapping[str, str],
    systems: Sequence[System],
    width: float = 2.4,
) -> Chart | None:
    """Draw a panel of dots for each metric, beside each other, with the same lines."""
    if frame.empty:
        return None
    titles = {metric: words for metric, words in titles.items() if metric in set(frame.metric)}
    lines = list(dict.fromkeys(frame.line))[:MOST_LINES]
    frame = frame[frame.line.isin(lines)]
    hovers: dict[str, Sequence[str]] = {}
    size = (width * len(titles) + 2.6, 0.24 * len(lines) + 1.2)
    with page_panels(len(titles), *size, systems) as (figure, row):
        for place, ((metric, words), axes) in enumerate(zip(titles.items(), row, strict=True)):
            shown = frame[frame.metric == metric].reset_index(drop=True)
            group = f"{name}-{place}"
            _dots(axes, shown, lines, group)
            hovers[group] = list(shown.hover)
            axes.set_title(words)
    return Chart(name, title, caption, figure, hovers)


def _dots(axes: Axes, frame: pd.DataFrame, lines: Sequence[str], group: str) -> None:
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


RATINGS = "rated_rating_accuracy"
BLOCK = re.compile(r"attribute_group_accuracy/(\d+)")
COLUMNS = (
    "system", "adversary", "metric", "value", "low", "high", "guess", "ceiling", "verdict", "about", "hover",
)  # fmt: skip


def line_of(
    system: str, adversary: str, metric: str, row: Row | None, in_open: bool = False
) -> dict[str, object]:
    """Form the line of one mark; NaN where nothing was tested, all where nobody needs to."""
    if row is None and in_open:
        hover = f"{system}, {adversary}: uploads name the items"
        cells = (1.0, *[np.nan] * 4, OPEN, "in the open", hover)
    elif row is None:
        hover = f"{', '.join(filter(None, (system, adversary)))}: {NOT_TESTED}"
        cells = (*[np.nan] * 5, NOT_TESTED, "", hover)
    else:
        hover = (
            f"{system}, {adversary}, {row['attack']}{of_what(row)}: {number(row['value'])} "
            f"{interval_of(row)}, best guess {number(row['baseline'])}, ceiling {number(row['ceiling'])}, "
            f"{row['verdict']}"
        )
        numbers = (row[name] for name in ("value", "ci_low", "ci_high", "baseline", "ceiling"))
        cells = (*numbers, verdict_of(row), of_what(row, "{}"), hover)
    return dict(zip(COLUMNS, (system, adversary, metric, *cells), strict=True))


def leakage(systems: Sequence[System]) -> Chart | None:
    """Draw a panel for each kind: every system and adversary with interval, guess and ceiling."""
    lines = [
        line_of(system.short, ", ".join(seen.alike), leak.kind, leak.row, leak.in_open)
        for system in systems
        for seen in system.adversaries
        for leak in seen.leaks
        if leak.why != UNASKED
    ]
    frame = pd.DataFrame(lines, columns=list(COLUMNS))
    many = frame.adversary.nunique() > 1
    names = frame.system + ": " + frame.adversary if many else frame.system
    frame = frame.assign(line=frame.adversary if frame.system.nunique() == 1 else names)
    caption = (
        "Strongest answer to each adversary with its 95 % interval over clients; the tick is the best guess "
        "without the transcript, the dotted one the ceiling. What was not tested is in the grey lane."
    )
    if (frame.about != "").any():
        caption += " Under a mark stands what it is about, where its panel does not say that."
    titles = {leak.kind: leak.kind for one in systems for seen in one.adversaries for leak in seen.leaks}
    return _dot_chart("leakage", "Who reads what", caption, frame, titles, systems)


def growth(systems: Sequence[System]) -> Chart | None:
    """Draw what is read by how many rounds are watched, where they differ."""
    lines: list[dict[str, object]] = []
    for system in systems:
        seen = [row for row in system.rows if isinstance(row["adversary"], str)]
        watched = grouped([row for row in seen if row["adversary"] != OUTPUTS], "rounds")
        read = {int(n): best(rows, RATINGS) for n, rows in watched.items() if not np.isnan(n)}
        for n, row in sorted(read.items()) if len(read) > 1 else ():
            who = "" if row is None else str(row["adversary"])
            lines.append({**line_of(system.short, who, RATINGS, row), "rounds": n})
    frame = pd.DataFrame(lines)
    if frame.empty or frame.value.isna().all():
        return None
    frame = frame.assign(shown=frame.value.fillna(LANE))
    with page_panels(1, 8.2, 3.4, systems) as (figure, (axes,)):
        axes.axhspan(LANE - 0.08, LANE + 0.08, facecolor="0.5", alpha=0.15, linewidth=0)
        sns.lineplot(frame, x="rounds", y="value", hue="system", ax=axes, errorbar=None, legend="full")
        axes.vlines(frame.rounds, frame.low, frame.high, color="0.5", linewidth=0.8)
        sns.scatterplot(frame, x="rounds", y="shown", hue="system", ax=axes, s=30, legend=False, zorder=3)
        axes.collections[-1].set_gid("rounds")
        guess = frame.guess.mean()
        axes.axhline(guess, color="0.5", linestyle="--", linewidth=0.9)
        axes.annotate("best guess", (frame.rounds.max(), guess), ha="right", va="bottom", fontsize=7)
        axes.set(xlabel="rounds watched", ylabel=f"{LEAKS[RATINGS]} right", ylim=(LANE - 0.08, 1.05))
        axes.set_xticks(sorted(set(frame.rounds)))
        axes.set_yticks([LANE, 0, 0.5, 1], ["not tested", "0", "0.5", "1"])
        axes.get_legend().remove()
        legend(figure, axes, ncols=3)
    caption = (
        "Ratings read right by the strongest attack, against how many rounds the adversary watches. What "
        "was not tested is in the grey lane."
    )
    return Chart("rounds", "Leakage by round", caption, figure, {"rounds": list(frame.hover)})


CLIENTS = {
    "": "all clients",
    "worst_tenth": "worst-off tenth",
    "few_ratings": "few ratings",
    "some_ratings": "some ratings",
    "many_ratings": "many ratings",
}
ITEMS = {"": "all items", "rare_items": "rare items", "common_items": "common", "popular_items": "popular"}


def by_client(systems: Sequence[System]) -> Chart | None:
    """Draw what is read of the worst-off clients, and of those with few and many ratings."""
    caption = (
        "Ratings read right by the strongest attack of any adversary: of all clients, of the tenth of whom "
        "most is read, and of the clients in thirds by how many ratings they gave. The tick is the best "
        "guess for the same clients; beside the worst-off tenth it is the tenth for which a guess is most "
        "right, for such a tenth is above the mean by chance alone. Colours are the verdict on all clients: "
        "groups have none."
    )
    frame = _groups_frame(systems, CLIENTS)
    return _dot_chart("clients", "Of whom most is read", caption, frame, CLIENTS, systems, width=1.6)


def by_item(systems: Sequence[System]) -> Chart | None:
    """Draw what is read of ratings of rare and of popular items."""
    caption = (
        "Ratings read right by the strongest attack of any adversary, by how many of the scored clients "
        "rated the item: each class holds about a third of the ratings. The tick is the best guess for the "
        "same items."
    )
    frame = _groups_frame(systems, ITEMS)
    return _dot_chart("items", "By popularity of the item", caption, frame, ITEMS, systems, width=1.6)


def _groups_frame(systems: Sequence[System], groups: Mapping[str, str]) -> pd.DataFrame:
    """Collect what the strongest attack on ratings reads of groups, over all adversaries of a system."""
    lines: list[dict[str, object]] = []
    untested: list[str] = []
    for system in systems:
        row = best([one for one in system.rows if isinstance(one["adversary"], str)], RATINGS)
        if row is None:
            untested += [system.short] if system.adversaries else []
            continue
        found = {group: of_group(row, system.rows, group) for group in groups if group}
        parts = {group: part for group, part in found.items() if part is not None}
        for group, part in {"": row, **parts}.items() if parts else ():
            whole = {**part, "verdict": row["verdict"]}
            lines.append(line_of(system.short, str(row["adversary"]), group, whole))
    there = {line["metric"] for line in lines}
    lines += [line_of(name, "", group, None) for name in untested for group in groups if group in there]
    return pd.DataFrame(lines, columns=list(COLUMNS)).assign(line=lambda frame: frame.system)


def blocks(systems: Sequence[System]) -> Chart | None:
    """Draw the strongest answer about each block of attributes of the data, over all adversaries."""
    lines: list[dict[str, object]] = []
    names: dict[str, set[str]] = defaultdict(set)
    for row in (row for system in systems for row in system.rows):
        if BLOCK.fullmatch(str(row["metric"])):
            names[row["data"]].add(str(row["metric"]))
    for system in (one for one in systems if one.adversaries):
        for name in sorted(names[system.rows[0]["data"]]):
            found = [row for row in system.rows if row["metric"] == name and tested(row)]
            strongest = max(found, key=lambda row: row["advantage"], default=None)
            who = "" if strongest is None else str(strongest["adversary"])
            lines.append(line_of(system.short, who, f"block {name.rpartition('/')[2]}", strongest))
    caption = (
        "Clients whose value in each block of attributes is read right, by the strongest attack of any "
        "adversary; the tick is the best guess without the transcript."
    )
    frame = pd.DataFrame(lines, columns=list(COLUMNS)).assign(line=lambda frame: frame.system)
    titles = {block: block for block in dict.fromkeys(frame.metric)}
    return _dot_chart("attributes", "Attributes", caption, frame, titles, systems)
