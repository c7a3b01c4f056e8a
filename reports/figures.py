"""The figures of the commands, in one style; the same rows give files of the same bytes.

Those that only reproduce figures of papers are in ``paper_figures``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.tables import LISTS, best_answer, by_rounds, costs_of, option_of
from reports.verdicts import (
    AGREEMENT,
    ANSWERED,
    DISTORTION,
    LEAKS,
    NOT_TESTED,
    QUALITY,
    SENT,
    Row,
    answered_share,
    best,
    by_adversary,
    grouped,
    is_guess,
    kinds_of,
    leak_cell,
    leak_of,
    strongest,
    values_of,
)
from victims.common.files import replacing

# What all figures share

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
MEAN: Any = {"color": "0.4", "linestyle": ":"}  # a constant predictor
BASELINE: Any = {"color": "0.15", "linestyle": (0, (7, 2, 1, 2)), "linewidth": 1.0}
CEILING: Any = {"linestyle": (0, (1, 1.5)), "linewidth": 0.9, "marker": "_", "markersize": 7}


def save(figure: Figure, path: Path, *, pdf: bool = False) -> list[Path]:
    """Write a figure as SVG and PNG, and as PDF where asked; the same bytes for the same figure."""
    svg, png, print_ = (path.with_name(f"{path.name}.{kind}") for kind in ("svg", "png", "pdf"))
    with mpl.rc_context(STYLE):
        with replacing(svg) as partial:
            FigureCanvasSVG(figure).print_svg(partial, metadata={"Date": None, "Creator": "factorleak"})
        FigureCanvasAgg(figure)
        with replacing(png) as partial:
            figure.savefig(partial, dpi=200, format="png", metadata={"Software": "factorleak"})
        if pdf:
            with replacing(print_) as partial:
                figure.savefig(
                    partial, format="pdf", metadata={"CreationDate": None, "Creator": "factorleak"}
                )
    return [svg, png, print_] if pdf else [svg, png]


@contextmanager
def panels(
    columns: int, rows: int = 1, *, width: float | None = None, height: float = 3.0, **shared: Any
) -> Iterator[tuple[Figure, np.ndarray]]:
    """Lay out panels in the style of all figures, for as long as something is drawn."""
    with mpl.rc_context(STYLE):
        size = (ONE_PANEL * columns if width is None else width, height)
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, **{"sharey": True, **shared})


def legend(
    figure: Figure,
    of: Axes | Sequence[Line2D],
    ncols: int,
    where: Any = "outside lower center",
    title: str = "",
) -> None:
    """Say what lines are, where none of them runs."""
    handles = of.get_legend_handles_labels()[0] if isinstance(of, Axes) else of
    labels = [str(handle.get_label()) for handle in handles]
    figure.legend(handles, labels, loc=where, ncols=ncols, frameon=False, title=title or None)


def log_ticks(axes: Axes, values: Sequence[Any], words: str = "{:g}") -> None:
    """Mark values on a logarithmic axis by themselves: powers of ten would be formulas."""
    axes.set_xscale("log")
    axes.set_xticks(list(values), [words.format(value) for value in values])
    axes.set_xticks([], minor=True)


def mean_lines(axes: Axes, frame: pd.DataFrame, x: str, by: str, order: Sequence[str]) -> None:
    """Draw means of ``value`` against ``x``, bars of one standard deviation; colours by ``order``."""
    colours = sns.color_palette("colorblind", len(order))
    for rank, name in enumerate(order):
        some = frame[frame[by] == name]
        if some.empty:
            continue
        found = some.groupby(x)["value"].agg(["mean", "std"])
        look: Any = {"color": colours[rank], "marker": MARKERS[rank], "capsize": 2, "label": name}
        axes.errorbar(found.index, found["mean"], yerr=found["std"].fillna(0), **look)


def look_of(rank: int, values: Sequence[object]) -> dict[str, Any]:
    """A colour and a marker for each of some ordered values, from dark to light, without the lightest."""
    colours = sns.color_palette("viridis", len(values) + 1)
    return {"color": colours[rank], "marker": MARKERS[rank % len(MARKERS)]}


# A sweep: accuracy against noise scale, and against rounds watched

METRICS = {
    "rating_accuracy": "ratings right (Eq. 43)",
    "rated_rating_accuracy": "rated items right",
    "attribute_group_accuracy": "attributes right (blocks)",
}
NOISE = "noise scale b (stars²)"
SHARE: Any = {"linestyle": (0, (4, 2)), "linewidth": 0.8, "marker": ""}
PAPER: Any = {"color": "0.35", "marker": "x"}
Scenarios = dict[tuple[str, str], Axes]  # (update, weighting) -> panel
Line = list[tuple[float, Row]]


def sweep_figures(rows: Sequence[Row], directory: Path, strongest: str, *paper: str) -> list[Path]:
    """Draw all figures of a sweep as SVG and PNG."""
    written = []
    for metric in METRICS:
        usable = [row for row in rows if row["metric"] == metric and row["status"] == "ran"]
        drawn = [row for row in usable if row["attack"] == strongest]
        if not drawn:
            continue
        by_scale = accuracy_against_scale(usable, metric, strongest, *paper)
        written += save(by_scale, directory / f"{metric}_against_scale")
        if len({row["rounds"] for row in drawn if scale_of(row) > 0}) > 1:
            by_rounds = accuracy_against_rounds(usable, metric, strongest)
            written += save(by_rounds, directory / f"{metric}_against_rounds")
    return written


def accuracy_against_scale(rows: Sequence[Row], metric: str, strongest: str, *paper: str) -> Figure:
    """Draw a panel per scenario; a colour per number of rounds watched, the paper's procedure dashed grey."""
    counts = sorted({row["rounds"] for row in rows if row["attack"] == strongest})
    scales = sorted({scale_of(row) for row in rows})
    positive = [np.log10(b) for b in scales if b > 0]
    zero = positive[0] - 0.5 if positive else 0.0  # one step to the left of the smallest

    def place(scale: float) -> float:
        return float(np.log10(scale)) if scale > 0 else zero

    def x_of(row: Row) -> float:
        return place(scale_of(row))

    shown = list(scales)
    while len(shown) > 9:  # keep ends and every other label
        shown = [*shown[:-1:2], shown[-1]]
    with scenario_panels(rows) as (figure, scenarios):
        for scenario, axes in scenarios.items():
            here = grouped(rows, "update", "weighting")[scenario]
            for rank, count in enumerate(counts):
                draw_line(axes, line_of(here, strongest, x_of, rounds=count), **look_of(rank, counts))
            ran = {row["attack"] for row in here}
            if attack := next((attack for attack in paper if attack in ran), None):
                fewest = min(row["rounds"] for row in here if row["attack"] == attack)
                line = line_of(here, attack, x_of, rounds=fewest)
                draw_line(axes, line, **PAPER, dashed=True, limits=False)
            draw_baseline(axes, line_of(here, strongest, x_of, rounds=counts[0]))
            axes.set_xticks([place(b) for b in shown], [f"{b:g}" for b in shown])
        handles = [
            Line2D(
                [], [], **look_of(n, counts), label=f"{strongest}, {count} round{'s' if count > 1 else ''}"
            )
            for n, count in enumerate(counts)
        ]
        handles += [Line2D([], [], **PAPER, linestyle="--", label="paper's procedure, fewest rounds")]
        finish(figure, scenarios, METRICS[metric], NOISE, handles, any(map(fell_back, rows)))
    return figure


def accuracy_against_rounds(rows: Sequence[Row], metric: str, strongest: str) -> Figure:
    """Draw a panel per scenario, with a line per noise scale."""
    rows = [row for row in rows if row["attack"] == strongest]
    scales = [b for b in sorted({scale_of(row) for row in rows}) if b > 0]
    with scenario_panels(rows) as (figure, scenarios):
        for scenario, axes in scenarios.items():
            here = grouped(rows, "update", "weighting")[scenario]
            for rank, scale in enumerate(scales):
                line = line_of(here, strongest, _rounds_of, scale=scale)
                draw_line(axes, line, **look_of(rank, scales))
            draw_baseline(axes, line_of(here, strongest, _rounds_of, scale=scales[0]))
            log_ticks(axes, sorted({row["rounds"] for row in rows}))
        handles = [Line2D([], [], **look_of(n, scales), label=f"b = {b:g}") for n, b in enumerate(scales)]
        finish(figure, scenarios, METRICS[metric], "rounds watched", handles, any(map(fell_back, rows)))
    return figure


def _rounds_of(row: Row) -> float:
    return float(row["rounds"])


@contextmanager
def scenario_panels(rows: Sequence[Row], more: float = 0.7) -> Iterator[tuple[Figure, Scenarios]]:
    """Lay out a panel for each scenario."""
    scenarios = list(grouped(rows, "update", "weighting"))
    columns = min(2, len(scenarios))
    lines = -(-len(scenarios) // columns)
    with panels(columns, lines, height=2.2 * lines + more, sharex=True) as (figure, grid):
        for axes in grid.ravel()[len(scenarios) :]:
            axes.set_visible(False)
        yield figure, dict(zip(scenarios, grid.ravel(), strict=False))


def line_of(
    rows: Sequence[Row],
    attack: str,
    x_of: Callable[[Row], float],
    *,
    rounds: int | None = None,
    scale: float | None = None,
) -> Line:
    """Choose the rows of one line."""
    points = [
        (x_of(row), row)
        for row in rows
        if row["attack"] == attack
        and (rounds is None or row["rounds"] == rounds)
        and (scale is None or scale_of(row) == scale)
    ]
    return sorted(points, key=lambda point: point[0])


def scale_of(row: Row) -> float:
    """Read the noise scale b from the text of a row's defense."""
    return float(option_of(str(row["defense"]), "scale"))


def fell_back(row: Row) -> bool:
    """Say whether most clients got no answer, so that they count with the baseline."""
    most = (row["n_abstained"] or 0) > (row["n_users"] or 0) / 2
    return row["verdict"] == NOT_TESTED or bool(most)


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)


def draw_line(
    axes: Axes, line: Line, color: Any, marker: str, *, dashed: bool = False, limits: bool = True
) -> None:
    """Draw a line with its band, hollow marks where it fell back on the baseline, and its ceiling."""
    x = [where for where, _ in line]
    y = [row["baseline"] if fell_back(row) else row["value"] for _, row in line]
    axes.plot(x, y, "--" if dashed else "-", color=color)
    for hollow in (False, True):
        chosen = [n for n, (_, row) in enumerate(line) if fell_back(row) == hollow]
        shape = "o" if hollow and marker == "x" else marker
        axes.plot([x[n] for n in chosen], [y[n] for n in chosen], linestyle="", color=color, marker=shape,
                  markerfacecolor="white" if hollow else color, zorder=3)  # fmt: skip
    low, high = ([_float(row[name]) for _, row in line] for name in ("ci_low", "ci_high"))
    axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
    if limits:
        axes.plot(x, [_float(row["ceiling"]) for _, row in line], color=color, **CEILING)


def draw_baseline(axes: Axes, line: Line) -> None:
    """Draw the best guess without the transcript, and name it in the panel."""
    x, y = [where for where, _ in line], [_float(row["baseline"]) for _, row in line]
    axes.plot(x, y, **BASELINE)
    if x:
        axes.annotate("best guess", (x[0], y[0]), (0, -2), textcoords="offset points", va="top", fontsize=6)


def finish(
    figure: Figure, scenarios: Scenarios, metric: str, unit: str, handles: list[Line2D], hollow: bool
) -> None:
    """Name panels and axes, and add the legend."""
    for (update, weighting), axes in scenarios.items():
        axes.set_title(f"{update} / {weighting}")
    handles = [
        *handles,
        Line2D([], [], color="0.4", **CEILING, label="ceiling"),
        Line2D([], [], **BASELINE, label="best guess"),
    ]
    if hollow:
        marks: Any = {"color": "0.4", "linestyle": "", "marker": "o", "markerfacecolor": "white"}
        handles.append(Line2D([], [], **marks, label="hollow: most clients unanswered, so the guess"))
    shares(figure, scenarios, metric, unit, handles)


def shares(figure: Figure, scenarios: Scenarios, metric: str, unit: str, handles: Sequence[Line2D]) -> None:
    """Axes of shares, and a legend above the panels."""
    for axes in scenarios.values():
        axes.set_ylim(0, 1.02)
        axes.grid(axis="y", color="0.92", linewidth=0.6)
    figure.supxlabel(unit, fontsize=8)
    figure.supylabel(f"share of {metric}", fontsize=8)
    widest = 3 if figure.get_figwidth() > ONE_PANEL else 1
    legend(figure, handles, min(widest, len(handles)), "outside upper center")


# Defenses of a recording: leakage and distortion against strength

SHARES = {
    "rated_rating_accuracy": "share of ratings right",
    "rated_set_auc": "AUC of the rated set",
    "attribute_group_accuracy": "share of attributes right",
    ANSWERED: "share of clients answered",
    AGREEMENT: "share of answers as undefended",
}


def _about(rows: Sequence[Row]) -> str:
    """Data, adversary, and how many clients are attacked."""
    data = ", ".join(dict.fromkeys(str(row["data"]).rstrip("/").rpartition("/")[2] for row in rows))
    n_users = max((int(row["n_users"]) for row in rows if (row["n_users"] or 0) > 0), default=0)
    return f"{data}, {rows[0]['adversary']}; n = {n_users:,} clients"


def strength_figures(rows: Sequence[Row], directory: Path, defense: str) -> list[Path]:
    """Draw leakage above the distortion of the sums, against the strength of one defense, from none on."""
    known = [row for row in rows if row["status"] == "ran"]
    kinds = [kind for kind in SHARES if any(row["metric"] == kind for row in known)]
    texts = list(grouped(rows, "defense"))
    bent = {text: values_of([row for row in rows if row["defense"] == text], DISTORTION) for text in texts}
    texts.sort(key=lambda text: (text != "none", bent[text].mean() if bent[text].size else 0.0))
    written = []
    for kind in kinds:
        figure = against_strength(rows, kind, texts, defense)
        written += save(figure, directory / f"{kind}_against_{defense.partition(':')[0]}")
    return written


def against_strength(rows: Sequence[Row], kind: str, texts: Sequence[str], defense: str) -> Figure:
    """Draw one kind of leak, a colour per number of rounds watched; what no attack answers is hollow."""
    counts = sorted({row["rounds"] for row in rows})
    guesses = [row["baseline"] for row in rows if row["metric"] == kind and row["status"] == "ran"]
    guess = float(np.nanmean(guesses)) if np.isfinite(guesses).any() else 0.0
    nothing: Any = dict.fromkeys(("value", "ci_low", "ci_high", "ceiling"))
    positive: list[float] = []
    unanswered: Row = {**nothing, "baseline": guess, "verdict": NOT_TESTED, "n_users": 0, "n_abstained": 0}
    with panels(1, 2, width=ONE_PANEL, height=4.2, sharex=True, sharey=False) as (figure, grid):
        above, below = grid[:, 0]
        for rank, count in enumerate(counts):
            here = grouped([row for row in rows if row["rounds"] == count], "defense")
            look = look_of(rank, counts)
            found = [(at, strongest(here[text], kind)) for at, text in enumerate(texts) if text in here]
            draw_line(above, [(float(at), row or unanswered) for at, row in found], **look)
            share = [0.0 if row is None else answered_share(row) for _, row in found]
            if kind != ANSWERED:
                above.plot([at for at, _ in found], share, color=look["color"], **SHARE)
            bent = [(at, values_of(here[text], DISTORTION)) for at, text in enumerate(texts) if text in here]
            places, values = [at for at, one in bent if one.size], [one[0] for _, one in bent if one.size]
            below.plot(places, values, "-", **look)
            positive += [value for value in values if value > 0]
        draw_baseline(above, [(float(at), {"baseline": guess}) for at in range(len(texts))])
        above.set_ylim(0, 1.04)
        above.set_ylabel(SHARES[kind])
        below.set_ylabel("distortion of the sums")
        if len(positive) > 1:  # what bends nothing, as none, is left out
            below.set_yscale("log", nonpositive="mask")
            below.yaxis.set_major_formatter("{x:g}")
            below.yaxis.set_minor_formatter("")
        ticks = [text.rpartition("=")[2] for text in texts]
        below.set_xticks(range(len(texts)), ticks)
        below.set_xlabel(f"{defense}, {texts[-1].rpartition('=')[0].rpartition(',')[2].rpartition(':')[2]}")
        for axes in (above, below):
            axes.grid(axis="y", color="0.92", linewidth=0.6)
        handles = [
            Line2D([], [], **look_of(n, counts), label=f"{count} round{'s' if count > 1 else ''} watched")
            for n, count in enumerate(counts)
        ]
        if kind != ANSWERED:
            handles.append(Line2D([], [], color="0.4", **SHARE, label="clients answered"))
        limited = {
            row["defense"] for row in rows if row["metric"] == kind and np.isfinite(_float(row["ceiling"]))
        }
        if len(limited) > 1:  # a line has two ends
            handles.append(Line2D([], [], color="0.4", **CEILING, label="ceiling"))
        marks: Any = {"color": "0.4", "linestyle": "", "marker": "o", "markerfacecolor": "white"}
        handles.append(Line2D([], [], **BASELINE, label="best guess"))
        handles.append(Line2D([], [], **marks, label="hollow: (most) clients unanswered"))
        legend(figure, handles, 2, "outside upper center")
        figure.supxlabel(_about(rows), fontsize=6)
    return figure


# A comparison of defenses: leakage against ranking quality, or the distortion of recorded sums

TITLES = {**LEAKS, "rated_rating_accuracy": "ratings of rated items"}
COSTS = {QUALITY: "NDCG@10 (mean, sd over runs)", DISTORTION: "distortion of the sums"}
LANE = -0.3  # where marks of what was not tested lie
LOWEST = -0.12  # of the axis of advantages; what is worse than the baseline is drawn here
AREAS = (18.0, 160.0)  # square points of the smallest and the largest mark


class Mark(NamedTuple):
    """How a defense looks in every panel, and where it lies on the axis of quality."""

    name: str
    colour: tuple[float, float, float]
    marker: str
    area: float  # by the bytes that a mean client sends in a round
    quality: float  # NaN where it was not measured
    spread: float


def comparison_figure(rows: Sequence[Row], directory: Path, cost: str = QUALITY) -> list[Path]:
    """Draw leakage against quality, or distortion: a row of panels per adversary, a column per kind of leak.

    What was not tested lies in a lane below the axis, and a defense without a measured quality in one at its
    left: nothing vanishes.
    """
    kinds, defenses = kinds_of(rows), grouped(rows, "defense")
    adversaries, marks = _adversaries(rows, kinds), _marks(defenses, cost)
    measured = [mark.quality for mark in marks if not np.isnan(mark.quality)]
    left = min(measured) - 0.35 * max(max(measured) - min(measured), 0.02) if measured else 0.0
    size: Any = {"width": 2.1 * len(kinds) + 0.7, "height": 1.75 * len(adversaries) + 1.9}
    with panels(len(kinds), len(adversaries), **size, sharex=True) as (figure, grid):
        for alike, line in zip(adversaries, grid, strict=True):
            for metric, axes in zip(kinds, line, strict=True):
                _lanes(axes, left if len(measured) < len(marks) else None)
                for mark in sorted(marks, key=lambda mark: -mark.area):  # small marks on large ones
                    seen = [row for row in defenses[mark.name] if row["adversary"] == alike[0]]
                    if seen:  # else the adversary does not exist under the defense
                        _draw_mark(axes, mark, left, best(seen, metric))
                axes.set_title(f"{', '.join(alike)}\n{TITLES[metric]}", fontsize=7)
        for axes in grid[:, 0]:
            axes.set_ylabel("advantage over the guess")
        for axes in grid[-1]:
            axes.set_xlabel(COSTS[cost])
        legend(figure, [*map(_handle, marks), *_size_key(defenses)], 2)
        written = save(figure, directory / f"leakage_against_{'quality' if cost == QUALITY else cost}")
    return written + attack_map(rows, directory, kinds)


def attack_map(rows: Sequence[Row], directory: Path, kinds: Sequence[str]) -> list[Path]:
    """Draw which attack reads what under which defense, by the adversary who reads most."""
    tried = [row for row in rows if not is_guess(row) and row["status"] != "null"]
    defenses = grouped(tried, "defense")
    attacks = {
        name: of_attack
        for name, of_attack in grouped(tried, "attack").items()
        if any(best(of_attack, kind) for kind in kinds)
    }
    if not attacks:
        return []
    shape = len(attacks), len(defenses)
    size: Any = {"width": 1.5 + len(kinds) * (0.55 * shape[1] + 0.5), "height": 1.5 + 0.24 * shape[0]}
    with panels(len(kinds), **size) as (figure, grid):
        for kind, axes in zip(kinds, grid[0], strict=True):
            value, words = np.full(shape, -1.0), np.full(shape, "-", object)
            for i, of_attack in enumerate(attacks.values()):
                for j, of_both in enumerate(grouped(of_attack, "defense").get(name, ()) for name in defenses):
                    if row := best(of_both, kind):
                        value[i, j], words[i, j] = max(row["advantage"], 0.0), f"{row['value']:.2f}"
            sns.heatmap(
                pd.DataFrame(value, list(attacks), list(defenses)), annot=words, fmt="", ax=axes, cbar=False,
                vmin=0.0, vmax=1.0, linewidths=0.8, annot_kws={"fontsize": 6},
                cmap=sns.color_palette("rocket_r", as_cmap=True).with_extremes(under="0.9"),
            )  # fmt: skip
            axes.tick_params(axis="y", rotation=0)
            axes.set_title(TITLES[kind])
            axes.tick_params(axis="x", rotation=40)
            for label in axes.get_xticklabels():
                label.set_horizontalalignment("right")
        note = (
            "value, the darker the more it is above the guess; grey: no answer, not applicable or not needed"
        )
        figure.supxlabel(note, fontsize=7)
        return save(figure, directory / "attacks_against_defenses")


def _adversaries(rows: Sequence[Row], kinds: Sequence[str]) -> list[list[str]]:
    """Adversaries who read the same of every defense share a row of panels."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for adversary, seen in by_adversary(rows).items():
        look = tuple(
            f"{defense} {leak_cell(leak_of(of_defense, metric))}"
            for defense, of_defense in grouped(seen, "defense").items()
            for metric in kinds
        )
        groups.setdefault(look, []).append(adversary)
    return list(groups.values()) or [["nobody"]]


def _sent(defenses: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    """Bytes that a mean client sends in a round, where that was measured."""
    found = {name: values_of(rows, SENT) for name, rows in defenses.items()}
    return {name: float(values[0]) for name, values in found.items() if values.size}


def _area(size: float, sent: Mapping[str, float]) -> float:
    low, high = np.log(min(sent.values())), np.log(max(sent.values()))
    share = 0.5 if high == low else (np.log(size) - low) / (high - low)
    return float(AREAS[0] + share * (AREAS[1] - AREAS[0]))


def _marks(defenses: Mapping[str, Sequence[Row]], cost: str) -> list[Mark]:
    """Give every defense a mark."""
    colours = sns.color_palette("colorblind", max(len(defenses), 1))
    sent = _sent(defenses)
    marks = []
    for rank, (name, rows) in enumerate(defenses.items()):
        quality = values_of(rows, cost)
        mean = float(quality.mean()) if quality.size else np.nan
        spread = float(quality.std(ddof=1)) if quality.size > 1 else 0.0
        area = _area(sent[name], sent) if name in sent else AREAS[0]
        marks.append(Mark(name, colours[rank], MARKERS[rank % len(MARKERS)], area, mean, spread))
    return marks


def _lanes(axes: Axes, unmeasured: float | None) -> None:
    """The lane of what was not tested, and where needed that of an unmeasured quality."""
    axes.axhspan(LANE - 0.1, LANE + 0.1, facecolor="0.92", zorder=0)
    axes.axhline(0, color="0.5", linewidth=0.7, zorder=0)
    axes.set_ylim(LANE - 0.1, 1.1)
    axes.set_yticks([LANE, 0, 0.5, 1], ["not\ntested", "0", "0.5", "1"])
    if unmeasured is not None:
        axes.axvline(unmeasured, color="0.85", linewidth=8, zorder=0)
        place: Any = {"rotation": 90, "fontsize": 5, "ha": "center", "va": "center"}
        axes.annotate("quality not measured", (unmeasured, 0.5), **place)


def _draw_mark(axes: Axes, mark: Mark, left: float, row: Row | None) -> None:
    """One defense in one panel, hollow in the lane where nothing was tested."""
    x = left if np.isnan(mark.quality) else mark.quality
    look: Any = {"marker": mark.marker, "s": mark.area, "edgecolors": [mark.colour], "linewidths": 1.1}
    look |= {"clip_on": False, "zorder": 3}
    if row is None:
        axes.scatter(x, LANE, facecolors="none", **look)
        return
    value, low, high = (
        max(float(row[name]), LOWEST) for name in ("advantage", "advantage_low", "advantage_high")
    )
    bars: Any = {"xerr": mark.spread, "yerr": [[max(value - low, 0)], [max(high - value, 0)]]}
    axes.errorbar(x, value, **bars, fmt="none", ecolor=mark.colour, elinewidth=0.8)
    axes.scatter(x, value, facecolors=[(*mark.colour, 0.45)], **look)


def _handle(mark: Mark) -> Line2D:
    return Line2D(
        [], [], color="none", marker=mark.marker, markerfacecolor=(*mark.colour, 0.45), markersize=5,
        markeredgecolor=mark.colour, label=mark.name,
    )  # fmt: skip


def _size_key(defenses: Mapping[str, Sequence[Row]]) -> Iterator[Line2D]:
    """The least and the most bytes at their real sizes."""
    sent = _sent(defenses)
    for size in sorted({min(sent.values()), max(sent.values())}) if sent else ():
        yield Line2D(
            [], [], color="none", marker="o", markerfacecolor="none", markeredgecolor="0.4",
            markersize=float(np.sqrt(_area(size, sent))), label=f"{size / 1e6:.2g} MB sent by a mean client",
        )  # fmt: skip


# Claims: the advantage of the best attack against the recommender's error


class Point(NamedTuple):
    """One budget of a protocol and reading of the noise: the best attack, and the recommender's error."""

    epsilon: float
    leak: Row
    error: Row


def claims_figure(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw a panel per protocol, with a line per reading of the noise."""
    lines: dict[tuple[str, str], list[Point]] = {}
    for (protocol, defense), of_system in grouped(rows, "victim", "defense").items():
        leak = best_answer(of_system)
        errors = [row for row in of_system if row["metric"] == "mse" and row["status"] == "ran"]
        if leak is not None and errors and defense != "none":
            point = Point(float(option_of(defense, "epsilon")), leak, errors[0])
            lines.setdefault((str(protocol), option_of(defense, "noise")), []).append(point)
    if not lines:
        return []
    protocols, noises = (list(dict.fromkeys(key[place] for key in lines)) for place in (0, 1))
    mean = next(iter(lines.values()))[0].error["baseline"]
    with panels(len(protocols), height=3.3) as (figure, grid):
        for axes, protocol in zip(grid[0], protocols, strict=True):
            for rank, noise in enumerate(noises):
                points = sorted(lines.get((protocol, noise), ()), key=lambda point: point.epsilon)
                if points:
                    _claims_line(axes, points, rank, noise, sns.color_palette("colorblind")[rank])
            axes.axvline(mean, color="0.6", linestyle=":")
            axes.annotate("training mean", (mean, 0.5), rotation=90, fontsize=6, color="0.4", ha="right")
            axes.set(xlabel="MSE of the recommender (stars²)", title=protocol)
        grid[0][0].set_ylabel("advantage of the best attack over the guess")
        handles = [
            Line2D([], [], color=sns.color_palette("colorblind")[rank], marker=MARKERS[rank], label=noise)
            for rank, noise in enumerate(noises)
        ]
        legend(figure, handles, 3, title="noise drawn (numbers: largest budget)")
        return save(figure, directory / "privacy_against_utility")


def _claims_line(axes: Axes, points: Sequence[Point], rank: int, label: str, colour: Any) -> None:
    x = [point.error["value"] for point in points]
    y, low, high = (
        np.array([point.leak[name] for point in points])
        for name in ("advantage", "advantage_low", "advantage_high")
    )
    look: Any = {"color": colour, "marker": MARKERS[rank], "capsize": 2, "label": label}
    axes.errorbar(x, y, yerr=[y - low, high - y], **look)
    for count, point in enumerate(points):
        away = (3, 3 if (count + rank) % 2 else -8)  # neighbours may lie on one another
        axes.annotate(
            f"{point.epsilon:g}", (x[count], y[count]), away, textcoords="offset points", fontsize=6
        )


# Which items clients rated, against what hiding them costs

ONCE, EVERYTHING, NOTHING = ",redrawn=false", "full-text", "part-text"


def list_privacy_figure(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw what is read of the rated set against the bytes of a mean client, a line per number of rounds.

    Part-text, whose lists are the rated items, is where the lines begin; a dotted line stands where full-text
    is, whose lists say nothing; between them rho, the sampled unrated items per rated one. Samples that are
    drawn once tell for ever what one round tells: dashed.
    """
    hidden = grouped(rows, "defense")
    sizes = {label: costs_of(of_label).get(SENT, float("nan")) / 1e6 for label, of_label in hidden.items()}
    ticks = {sizes[label]: label for label in hidden if not label.endswith(ONCE)}
    words = [
        f"{size:.3g}\n{label.replace('unrated-sampling:rho=', '').replace('-text', '')}"
        for size, label in ticks.items()
    ]
    with panels(len(LISTS), height=3.1, sharey=False) as (figure, grid):
        for axes, (metric, title) in zip(grid[0], LISTS.items(), strict=True):
            lines = _list_lines(metric, hidden, sizes)
            for rank, (name, found) in enumerate(lines.items()):
                size, value, low, high = np.array(sorted(found)).T
                look: Any = {"linestyle": "-" if rank else "--", "marker": MARKERS[rank % len(MARKERS)]}
                look["color"] = sns.color_palette("viridis", len(lines))[rank]
                bars = np.maximum([value - low, high - value], 0)
                axes.errorbar(size, value, yerr=bars, label=name, **look)
            guesses = [row["baseline"] for row in rows if row["metric"] == metric]
            if guesses:
                axes.axhline(max(guesses), color="0.5", linestyle="-.", linewidth=0.9, label="best guess")
            if EVERYTHING in hidden:
                axes.axvline(sizes[EVERYTHING], color="0.5", linestyle=":", label="full-text: nothing told")
            log_ticks(axes, list(ticks))
            axes.set_xticks(list(ticks), words)
            axes.set_ylim(top=1.03)
            axes.set(ylabel=title, xlabel="MB that the mean client sends in a round; below: rho")
        legend(figure, grid[0][0], 3)
        return save(figure, directory / "list_privacy_against_cost")


def _list_lines(
    metric: str, hidden: Mapping[str, Sequence[Row]], sizes: Mapping[str, float]
) -> dict[str, list[tuple[float, ...]]]:
    """Sizes, values and their intervals by the name of the line; lists that stay the same first, which tell
    what one round tells.
    """
    found: dict[tuple[int, str], list[tuple[float, ...]]] = {}
    for label, rows in hidden.items():
        for watched, scores in by_rounds(rows):
            row = scores.get(metric)
            if row is None:
                continue
            mark = sizes[label], *(float(row[name]) for name in ("value", "ci_low", "ci_high"))
            once, again = (0, "1 round watched, or drawn once"), (watched, f"drawn anew, {watched} rounds")
            if label == NOTHING:  # where all lines begin
                names = {once, again} if watched > 1 else {once}
            else:
                names = {once if watched == 1 or label.endswith(ONCE) else again}
            for name in names:
                here = found.setdefault(name, [])
                here += [mark] if mark not in here else []
    return {name: found[number, name] for number, name in sorted(found)}
