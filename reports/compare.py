"""Defenses side by side: who reads what, what it costs, one figure; ranking with and without encryption.

Work on plain mappings with the columns of ``results.json``. What no attack answered is NOT TESTED: words in
the tables and a lane of its own in the figure, never a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.table import Table

from reports.sweep import MARKERS, STYLE, save
from reports.tables import CLAIMED, NOT_TESTED, number, tested

Row = Mapping[str, Any]
LEAKS = {
    "rated_rating_accuracy": "ratings",
    "rated_set_auc": "rated set",
    "attribute_group_accuracy": "attributes",
}
QUALITY = "ndcg_at_10"
SECONDS = ("seconds_local_update", "seconds_encryption", "seconds_decryption")
SIZES = (18.0, 160.0)  # square points of the smallest and the largest mark
LANE = -0.3  # where marks of what was not tested lie
LOWEST = -0.12  # of the axis of advantages; what is worse than the guess is drawn here


class Leak(NamedTuple):
    """What one adversary reads of one kind: the strongest answer, else why there is none."""

    kind: str
    row: Row | None
    why: str


def comparison_table(rows: Sequence[Row], title: str) -> Table:
    """One line per defense and adversary: the strongest answer to each question, and the worst of them."""
    kinds = _kinds(rows)
    table = Table(title=title, title_justify="left", show_lines=True, caption_justify="left")
    table.caption = "value (best guess without the transcript), 95 % interval, verdict, attack"
    table.add_column("defense\nadversary", overflow="fold")
    for metric in kinds:
        table.add_column(LEAKS[metric], overflow="fold", min_width=14)
    table.add_column("worst\nadvantage", overflow="fold")
    for defense, part in _grouped(rows, "defense").items():
        for number_, (who, leaks) in enumerate(_lines(part, kinds)):
            name = f"{defense}\n{who}" if number_ == 0 else who
            table.add_row(name, *(_leak_cell(leak) for leak in leaks), _worst_cell(leaks))
    return table


def cost_of_defenses_table(rows: Sequence[Row], title: str) -> Table:
    """One line per defense: how well the recommender ranks, and a client's seconds and bytes of a round."""
    table = Table(title=title, title_justify="left")
    table.add_column("defense", overflow="fold")
    for name in ("NDCG@10 (sd)", "popularity", "client: s", "MB a round"):
        table.add_column(name, justify="right", overflow="fold")
    for defense, part in _grouped(rows, "defense").items():
        table.add_row(defense, *_quality_cells(part), *_cost_cells(part))
    return table


def best(rows: Sequence[Row], metric: str) -> Row | None:
    """The strongest answer: a leak before all others, then by advantage; guesses do not count.

    Of ratings also that of nameless clients. Where an attack failed, what is no leak is no answer.
    """
    names = {metric, CLAIMED} if metric == "rated_rating_accuracy" else {metric}
    rows = [row for row in rows if not str(row["attack"]).startswith("guess")]
    found = [row for row in rows if row["metric"] in names and tested(row)]
    if any(row["status"] == "failed" for row in rows):
        found = [row for row in found if row["verdict"] == "LEAK"]
    return max(found, key=lambda row: (row["verdict"] == "LEAK", row["advantage"])) if found else None


def worst(leaks: Sequence[Leak]) -> Leak | None:
    """The kind of which most is read; None where nothing was tested."""
    found = [leak for leak in leaks if leak.row is not None]
    return max(found, key=lambda leak: leak.row["advantage"]) if found else None  # type: ignore[index]


def _kinds(rows: Sequence[Row]) -> list[str]:
    """What can be read of this victim at all."""
    metrics = {row["metric"] for row in rows if row["status"] == "ran"}
    return [name for name in LEAKS if name in metrics] or list(LEAKS)[:1]


def _lines(part: Sequence[Row], kinds: Sequence[str]) -> list[tuple[str, list[Leak]]]:
    """Adversaries and what they read; those who read the same share a line."""
    lines: dict[tuple[str, ...], tuple[list[str], list[Leak]]] = {}
    for adversary, rows in _adversaries(part).items():
        leaks = [_leak(rows, metric) for metric in kinds]
        lines.setdefault(tuple(map(_leak_cell, leaks)), ([], leaks))[0].append(adversary)
    failed = [row for row in part if row["metric"] == "leakage"]
    if failed:
        lines[("failed",)] = (["all"], [_leak(failed, metric) for metric in kinds])
    return [("\n".join(names), leaks) for names, leaks in lines.values()]


def _adversaries(part: Sequence[Row]) -> dict[str, list[Row]]:
    return _grouped([row for row in part if isinstance(row["adversary"], str)], "adversary")


def _leak(rows: Sequence[Row], metric: str) -> Leak:
    return Leak(LEAKS[metric], best(rows, metric), _why(rows))


def _grouped(rows: Sequence[Row], column: str) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def _leak_cell(leak: Leak) -> str:
    if leak.row is None:
        return f"{NOT_TESTED}\n{leak.why}"
    row = leak.row
    nameless = " (nameless)" if row["metric"] == CLAIMED else ""
    return (
        f"{number(row['value'])} ({number(row['baseline'])})\n"
        f"[{number(row['ci_low'])}, {number(row['ci_high'])}]\n"
        f"{row['verdict']}\n{row['attack']}{nameless}"
    )


def _worst_cell(leaks: Sequence[Leak]) -> str:
    found = worst(leaks)
    if found is None or found.row is None:
        return NOT_TESTED
    words = f"{number(found.row['advantage'], 2)} {found.kind}"
    open_ = [leak.kind for leak in leaks if leak.row is None]
    return words + (f"\nuntested: {', '.join(open_)}" if open_ else "")


def _why(rows: Sequence[Row]) -> str:
    """Why nothing was read: a failure, else the reason of the attack on sums, else the first one."""
    open_ = [row for row in rows if not tested(row) and row["reason"]]
    order = sorted(open_, key=lambda row: (row["status"] != "failed", row["attack"] != "aggregate"))
    if not order:
        return "no attack reads it"
    failed = "failed: " if order[0]["status"] == "failed" else ""
    return f"{failed}{order[0]['reason']}"


def _values(rows: Sequence[Row], metric: str) -> np.ndarray:
    return np.array([row["value"] for row in rows if row["metric"] == metric and row["status"] == "ran"])


def _quality_cells(rows: Sequence[Row]) -> list[str]:
    values = _values(rows, QUALITY)
    if not values.size:
        return [_why([row for row in rows if row["metric"] == "quality"]), "-"]
    beside = np.mean([row["baseline"] for row in rows if row["metric"] == QUALITY])
    spread = values.std(ddof=1) if values.size > 1 else float("nan")
    return [f"{values.mean():.3f} ({number(spread)})", f"{beside:.3f}"]


def _cost_cells(rows: Sequence[Row]) -> list[str]:
    sent = _values(rows, "bytes_sent_mean")
    if not sent.size:
        return [_why([row for row in rows if row["metric"] == "cost"]), "-"]
    seconds = sum(float(_values(rows, metric)[0]) for metric in SECONDS)
    return [f"{seconds:.3g}", f"{sent[0] / 1e6:.3g}"]


class _Mark(NamedTuple):
    """How a defense looks in every panel, and where it lies on the axis of quality."""

    name: str
    colour: tuple[float, float, float]
    marker: str
    size: float
    quality: float
    spread: float


def comparison_figure(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Leakage against quality, as SVG and PNG: a row of panels per adversary, a column per kind of leak.

    What was not tested lies in a lane below the axis, and a defense without a measured quality in one at its
    left: nothing vanishes.
    """
    kinds = _kinds(rows)
    defenses = _grouped(rows, "defense")
    lines = _panels(rows, kinds)
    sent = {name: _values(part, "bytes_sent_mean") for name, part in defenses.items()}
    known = [float(value[0]) for value in sent.values() if value.size]
    left = _left_of(
        [float(_values(part, QUALITY).mean()) for part in defenses.values() if _values(part, QUALITY).size]
    )
    colours = sns.color_palette("colorblind", max(len(defenses), 1))
    marks = [
        _mark(name, part, colours[n], MARKERS[n % len(MARKERS)], sent[name], known, left)
        for n, (name, part) in enumerate(defenses.items())
    ]
    marks.sort(key=lambda mark: -mark.size)  # small ones lie on large ones
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.1 * len(kinds) + 0.7, 1.75 * len(lines) + 1.9), layout="constrained")
        panels = figure.subplots(len(lines), len(kinds), sharex=True, sharey=True, squeeze=False)
        for line, (who, adversary) in zip(panels, lines, strict=True):
            for axes, metric in zip(line, kinds, strict=True):
                _lanes(axes, left, any(mark.quality == left for mark in marks))
                for mark in marks:
                    seen = [row for row in defenses[mark.name] if row["adversary"] == adversary]
                    _draw(axes, mark, best(seen, metric) if seen else None, bool(seen))
                axes.set_title(f"{who}\n{LEAKS[metric]}", fontsize=7)
        for axes in panels[:, 0]:
            axes.set_ylabel("advantage over the guess")
        for axes in panels[-1]:
            axes.set_xlabel("NDCG@10 (mean, sd over runs)")
        order = {name: n for n, name in enumerate(defenses)}
        handles = [_handle(mark) for mark in sorted(marks, key=lambda mark: order[mark.name])]
        figure.legend(
            handles=[*handles, *_size_key(known)], loc="outside lower center", ncols=2, frameon=False
        )
        return save(figure, directory / "leakage_against_quality")


def _panels(rows: Sequence[Row], kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Names and one adversary of each row of panels: who reads the same of every defense shares one."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for adversary in dict.fromkeys(row["adversary"] for row in rows if isinstance(row["adversary"], str)):
        seen = _grouped([row for row in rows if row["adversary"] == adversary], "defense")
        look = tuple(
            f"{name} {_leak_cell(_leak(part, metric))}" for name, part in seen.items() for metric in kinds
        )
        groups.setdefault(look, []).append(adversary)
    return [(", ".join(names), names[0]) for names in groups.values()] or [("nobody", "")]


def _left_of(qualities: Sequence[float]) -> float:
    """Place of the lane for defenses whose quality was not measured."""
    if not qualities:
        return 0.0
    return min(qualities) - 0.35 * max(max(qualities) - min(qualities), 0.02)


def _mark(
    name: str,
    part: Sequence[Row],
    colour: tuple[float, float, float],
    marker: str,
    sent: np.ndarray,
    known: Sequence[float],
    left: float,
) -> _Mark:
    quality = _values(part, QUALITY)
    spread = float(quality.std(ddof=1)) if quality.size > 1 else 0.0
    size = _area(float(sent[0]), known) if sent.size else SIZES[0]
    return _Mark(name, colour, marker, size, float(quality.mean()) if quality.size else left, spread)


def _lanes(axes: Axes, left: float, unmeasured: bool) -> None:
    """The lane of what was not tested, and where needed that of an unmeasured quality."""
    axes.axhspan(LANE - 0.1, LANE + 0.1, facecolor="0.92", zorder=0)
    axes.axhline(0, color="0.5", linewidth=0.7, zorder=0)
    axes.set_ylim(LANE - 0.1, 1.1)
    axes.set_yticks([LANE, 0, 0.5, 1], ["not\ntested", "0", "0.5", "1"])
    if unmeasured:
        axes.axvline(left, color="0.85", linewidth=8, zorder=0)
        axes.annotate("quality not measured", (left, 0.5), rotation=90, fontsize=5, ha="center", va="center")


def _draw(axes: Axes, mark: _Mark, row: Row | None, seen: bool) -> None:
    """One defense in one panel; nothing where the adversary does not exist under it."""
    if not seen:
        return
    look: dict[str, Any] = {
        "marker": mark.marker,
        "s": mark.size,
        "edgecolors": [mark.colour],
        "clip_on": False,
        "zorder": 3,
    }
    if row is None:
        axes.scatter(mark.quality, LANE, facecolors="none", linewidths=1.1, **look)
        return
    value, low, high = (
        max(float(row[name]), LOWEST) for name in ("advantage", "advantage_low", "advantage_high")
    )
    bars = [[max(value - low, 0)], [max(high - value, 0)]]
    axes.errorbar(
        mark.quality, value, xerr=mark.spread, yerr=bars, fmt="none", ecolor=mark.colour, elinewidth=0.8
    )
    axes.scatter(mark.quality, value, facecolors=[(*mark.colour, 0.45)], linewidths=1.1, **look)


def _handle(mark: _Mark) -> Line2D:
    return Line2D(
        [], [], color="none", marker=mark.marker, markerfacecolor=(*mark.colour, 0.45), markersize=5,
        markeredgecolor=mark.colour, label=mark.name,
    )  # fmt: skip


def _size_key(known: Sequence[float]) -> list[Line2D]:
    """Marks of the least and the most bytes that a mean client sends in a round, at their real sizes."""
    ends = sorted({min(known), max(known)}) if known else []
    return [
        Line2D(
            [], [], color="none", marker="o", markerfacecolor="none", markeredgecolor="0.4",
            markersize=float(np.sqrt(_area(sent, known))), label=f"{sent / 1e6:.2g} MB sent by a mean client",
        )
        for sent in ends
    ]  # fmt: skip


def _area(sent: float, known: Sequence[float]) -> float:
    low, high = np.log(min(known)), np.log(max(known))
    share = 0.5 if high == low else (np.log(sent) - low) / (high - low)
    return float(SIZES[0] + share * (SIZES[1] - SIZES[0]))


def quality_table(rows: Sequence[Row], title: str) -> Table:
    """One line per scenario, reading and metric: with and without encryption, beside popularity."""
    table = Table(title=title, title_justify="left")
    for name in ("scenario", "among", "metric"):
        table.add_column(name)
    for name in ("without encryption", "with encryption", "largest difference of a run", "popularity"):
        table.add_column(name, justify="right")
    groups: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in rows:
        key = row["scenario"], row["reading"], row["metric"]
        groups.setdefault(key, {}).setdefault(row["system"], []).append(row["value"])
    for key, systems in groups.items():
        plain, sealed, popular = (np.array(systems[name]) for name in ("plain", "encrypted", "popularity"))
        table.add_row(
            *key, _mean(plain), _mean(sealed), f"{np.abs(plain - sealed).max():.1e}", _mean(popular)
        )
    return table


def _mean(values: np.ndarray) -> str:
    spread = values.std(ddof=1) if values.size > 1 else float("nan")
    return f"{number(float(values.mean()), 4)} ({number(float(spread), 4)})"
