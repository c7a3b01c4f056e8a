"""Leakage against usefulness: two axes that all victims share, with both of their ends marked.

Usefulness is the share of the way from a baseline, which needs nobody's gradients, to perfection:
(NDCG@10 - that of popularity) / (1 - that of popularity), and 1 - RMSE / that of the training mean. What a
system without a defense reaches is one end; the other is a predictor that says the same of everybody and
everything: the training mean itself, and a list in random order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from reports.page.charts import Chart, at_least, page_panels
from reports.verdicts import ERROR, NOT_TESTED, QUALITY, SENT, UNDEFENDED, Row, System, number, values_of

TIED = f"{QUALITY}/constant"
AXES = {
    QUALITY: "ranking,\nbeside popularity (NDCG@10)",
    ERROR: "rating error,\nbeside the training mean (RMSE)",
}
OFFSETS = (-14, 8, -23, 17, -32, 26, -41, 35, -50)  # points from a mark to its name, tried in this order
LEAST = -1.0  # usefulness that is drawn; what lies below stands at the edge
ADVANTAGE = ("advantage", "advantage_low", "advantage_high")


def frontier_frame(systems: Sequence[System]) -> pd.DataFrame:
    """Collect leakage, usefulness and cost of each system whose usefulness was measured, by axis."""
    lines = [line for axis in AXES for system in systems if (line := _line(axis, system)) is not None]
    frame = pd.DataFrame(lines)
    if frame.empty:
        return frame
    frame["dominated"] = False
    for axis in AXES:
        mine = frame[frame.axis == axis]
        frame.loc[mine.index, "dominated"] = [_is_dominated(mine, place) for place in range(len(mine))]
    frame["hover"] = [_words(line) for line in frame.to_dict("records")]
    return frame


def frontier(systems: Sequence[System]) -> Chart | None:
    """Draw leakage against usefulness; area by the bytes sent, dominated systems grey."""
    frame = frontier_frame(systems)
    if frame.empty:
        return None
    drawn = [axis for axis in AXES if (frame.axis == axis).any()]
    floor = min(-0.05, float(np.nanmin([0.0, *frame.low.dropna()])) - 0.05)
    hovers: dict[str, Sequence[str]] = {}
    with page_panels(len(drawn), 5.6 * len(drawn), 4.8, systems) as (figure, panels):
        for place, (axis, axes) in enumerate(zip(drawn, panels, strict=True)):
            shown = frame[frame.axis == axis].reset_index(drop=True)
            marks = _panel(axes, shown, floor - 0.12, f"frontier-{place}")
            _name(figure, axes, marks)
            hovers[f"frontier-{place}"] = list(shown.hover)
            axes.set(xlabel=f"usefulness: {AXES[axis]}", ylabel="advantage of the worst adversary")
    caption = (
        "Largest advantage over the best guess of any adversary (95 % interval), against usefulness: the "
        "share of the way from a baseline that needs nobody's gradients (0) to perfection (1), with its sd "
        "over two seeds or more. Diamonds are systems without a defense, the dashed line is a constant "
        "predictor. Area: megabytes that a client sends. Grey: another system leaks no more and is no less "
        "useful, and in one of the two it is better beyond the bars; their names are on hover. What is not "
        "tested lies in the grey lane; what is worse than -1 stands at -1."
    )
    return Chart("frontier", "Leakage, usefulness, cost", caption, figure, hovers)


def _line(axis: str, system: System) -> dict[str, object] | None:
    rows = [row for row in system.rows if row["metric"] == axis and row["status"] == "ran"]
    useful = np.array([_useful(axis, row) for row in rows])
    if not useful.size:
        return None
    worst = None if system.worst is None else system.worst.row
    numbers = [np.nan] * 3 if worst is None else [float(np.clip(worst[name], -1, 1)) for name in ADVANTAGE]
    sent = values_of(system.rows, SENT)
    tied = [_useful(axis, row) for row in system.rows if row["metric"] == TIED and axis == QUALITY]
    return {
        "axis": axis,
        "system": system.short,
        **dict(zip(("advantage", "low", "high"), numbers, strict=True)),
        "useful": float(useful.mean()),
        "spread": float(useful.std(ddof=1)) if useful.size > 1 else np.nan,
        "measured": float(np.mean([row["value"] for row in rows])),
        "beside": float(np.mean([row["baseline"] for row in rows])),
        "constant": 0.0 if axis == ERROR else float(np.mean(tied)) if tied else np.nan,
        "megabytes": float(sent[0]) / 1e6 if sent.size else np.nan,
        "undefended": rows[0]["defense"] in UNDEFENDED,
    }


def _useful(axis: str, row: Row) -> float:
    if axis == ERROR:
        return float(1 - row["value"] / row["baseline"]) if row["baseline"] > 0 else np.nan
    return float((row["value"] - row["baseline"]) / max(1 - row["baseline"], 1e-12))


def _is_dominated(frame: pd.DataFrame, place: int) -> bool:
    """Another system leaks no more and is no less useful, and in one of the two is better beyond the bars."""
    one = frame.iloc[place]
    if np.isnan(one.advantage):
        return False
    no_worse = (frame.advantage <= one.advantage) & (frame.useful >= one.useful)
    spread = frame.spread.fillna(0)
    better = (frame.high < one.low) | (frame.useful - spread > one.useful + spread.iloc[place])
    return bool((no_worse & better).any())


def _panel(axes: Axes, frame: pd.DataFrame, lane: float, group: str) -> pd.DataFrame:
    """Draw the marks; return the systems with their places."""
    frame = frame.assign(
        where=frame.advantage.fillna(lane),
        shown=frame.useful.clip(lower=LEAST),
        state=np.where(frame.dominated, "dominated", "not dominated"),
    )
    axes.axhspan(lane - 0.05, lane + 0.05, facecolor="0.5", alpha=0.15, linewidth=0)
    axes.axhline(0, color="0.5", linewidth=0.7)
    axes.axvline(0, color="0.5", linewidth=0.7)
    if (constant := frame.constant.mean()) is not None and not np.isnan(constant):
        axes.axvline(max(constant, LEAST), color="0.5", linewidth=0.9, linestyle="--")
        axes.annotate(
            "constant predictor", (max(constant, LEAST), 1.08), ha="center", va="bottom", fontsize=7,
            annotation_clip=False,
        )  # fmt: skip
    tested = frame.dropna(subset=["advantage"])
    axes.errorbar(
        tested.shown, tested.advantage, xerr=tested.spread.fillna(0),
        yerr=[tested.advantage - tested.low, tested.high - tested.advantage],
        fmt="none", ecolor="0.5", elinewidth=0.8,
    )  # fmt: skip
    sizes = frame.megabytes.fillna(frame.megabytes.min()).fillna(1.0)
    sns.scatterplot(
        frame, x="shown", y="where", hue="state", size=np.sqrt(sizes), sizes=(40, 220), ax=axes,
        palette={"dominated": "0.6", "not dominated": "#2c6fbb"}, style="undefended",
        markers={True: "D", False: "o"}, legend=False, zorder=3,
    )  # fmt: skip
    axes.collections[-1].set_gid(group)
    axes.set_ylim(lane - 0.1, 1.06)
    ticks = [0, 0.5, 1]
    axes.set_yticks([lane, *ticks], ["not tested", *map(str, ticks)])
    axes.margins(x=0.2)
    axes.set_xlim(*at_least(*axes.get_xlim()))
    return frame


def _name(figure: Figure, axes: Axes, frame: pd.DataFrame) -> None:
    """Write names below or above marks, as near as none lies on another."""
    figure.draw_without_rendering()  # which settles where marks are
    taken: list[Bbox] = []
    for line in frame[~frame.dominated].sort_values(["where", "shown"]).to_dict("records"):
        for away in OFFSETS:
            text = axes.annotate(
                line["system"], (line["shown"], line["where"]), xytext=(0, away), ha="center",
                textcoords="offset points", fontsize=7,
            )  # fmt: skip
            place = text.get_window_extent()
            if away == OFFSETS[-1] or not place.count_overlaps(taken):
                break
            text.remove()
        taken.append(place)


def _words(line: dict) -> str:
    leak = NOT_TESTED
    if not np.isnan(line["advantage"]):
        leak = f"advantage {line['advantage']:.3f} [{line['low']:.3f}, {line['high']:.3f}]"
    cost = "" if np.isnan(line["megabytes"]) else f", {line['megabytes']:.3g} MB a round"
    name, guess = ("RMSE", "training mean") if line["axis"] == ERROR else ("NDCG@10", "popularity")
    runs = "one run" if np.isnan(line["spread"]) else f"sd {line['spread']:.3f}"
    return (
        f"{line['system']}: {leak}, usefulness {line['useful']:.3f} ({runs}; {name} "
        f"{number(line['measured'])}, {guess} {number(line['beside'])}){cost}"
    )
