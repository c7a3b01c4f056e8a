"""A claimed epsilon beside what is proved, measured and read: one table, and privacy against utility.

Work on plain mappings with the columns of ``results.json``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure
from rich.table import Table

from reports.sweep import MARKERS, STYLE, save
from reports.tables import CLAIMED, NOT_TESTED, number, tested

Row = Mapping[str, Any]
BOUND = "empirical_epsilon"
LEAK = "rated_rating_accuracy"
CLIENTS = "share_of_clients_read"
LEGEND = (
    "empirical epsilon: one-run lower bounds at 95 %, for all planted ratings and for the third with the "
    "smallest claims, each beside its largest claim; [most that so many ratings can show]; then from "
    "repetitions for one client, if asked for"
)


def budgets_line(quantiles: Mapping[str, Sequence[float]], epsilon: float) -> str:
    """Smallest, quartiles and largest budgets of users, items and ratings.

    Examples
    --------
    >>> budgets_line({"users": [0.1, 0.3, 0.5, 0.8, 1.0]}, 1.0)
    'budgets for epsilon 1 (least, quartiles, most): users 0.1 0.3 0.5 0.8 1'
    """
    parts = [f"{who} {' '.join(f'{value:.2g}' for value in part)}" for who, part in quantiles.items()]
    return f"budgets for epsilon {epsilon:g} (least, quartiles, most): {'; '.join(parts)}"


def _grouped(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((str(row["victim"]), str(row["defense"])), []).append(row)
    return groups


def _option(defense: str, name: str) -> str:
    return defense.rpartition(f"{name}=")[2].partition(",")[0] if f"{name}=" in defense else "-"


def _claim(row: Row) -> str:
    return f"{row['baseline']:.2f}" if math.isfinite(row["baseline"]) else "none"


def claims_table(rows: Sequence[Row], title: str) -> Table:
    """One line per protocol, reading of the noise and view."""
    table = Table(title=title, title_justify="left", show_lines=True, caption=LEGEND, caption_justify="left")
    headings = ("protocol", "noise", "eps", "view", "proved for the median item", "empirical eps (claim)")
    for name in (*headings, "verdict", "ratings read: best attack", "MSE (mean)"):
        table.add_column(name, overflow="fold")
    for (protocol, defense), part in _grouped(rows).items():
        failed = [row for row in part if row["status"] == "failed"]
        mse = [row for row in part if row["metric"] == "mse"]
        error = f"{mse[0]['value']:.3f} ({mse[0]['baseline']:.3f})" if mse else "-"
        names = (protocol, _option(defense, "noise"), _option(defense, "epsilon"))
        if failed:
            table.add_row(*names, "-", failed[0]["reason"], "-", "failed", "-", error)
        views: dict[str, list[Row]] = {}
        for row in part:
            if row["metric"] == BOUND and row["status"] == "ran":
                views.setdefault(str(row["adversary"]).partition(",")[0], []).append(row)
        for place, (view, found) in enumerate(views.items()):
            bounds = "\n".join(f"{row['value']:.2f} ({_claim(row)}) [{row['ceiling']:.1f}]" for row in found)
            words = "\n".join(str(row["verdict"]) for row in found)
            read = _read(part) if view == "all rounds" else "-"
            first = names if place == 0 else ("", "", "")
            table.add_row(*first, view, found[0]["reason"], bounds, words, read, error if place == 0 else "")
        fellow = [row for row in part if str(row["adversary"]).startswith("client:")]
        if fellow:
            table.add_row("", "", "", f"V of all rounds ({fellow[0]['adversary']})", "-", "-", "-",
                          _read_by_a_fellow(fellow), "")  # fmt: skip
    return table


def _read_by_a_fellow(part: Sequence[Row]) -> str:
    """What one client reads of the others, who have no names there."""
    rows = {str(row["metric"]): row for row in part if row["status"] == "ran"}
    if CLAIMED not in rows:
        return f"NOT TESTED: {part[0]['reason']}"
    claimed, clients = rows[CLAIMED], rows[CLIENTS]
    return (
        f"{claimed['value']:.3f} [{claimed['ci_low']:.3f}, {claimed['ci_high']:.3f}]\nof what it claims of "
        f"{round(clients['value'] * clients['n_users'])} nameless clients\nguess {claimed['baseline']:.3f}\n"
        f"{claimed['attack']}, {claimed['verdict']}"
    )


def _best(part: Sequence[Row]) -> Row | None:
    answered = [row for row in part if row["metric"] == LEAK and tested(row)]
    return max(answered, key=lambda row: row["advantage"]) if answered else None


def _read(part: Sequence[Row]) -> str:
    best = _best(part)
    if best is None:
        return NOT_TESTED
    words = (
        f"{best['value']:.3f} [{best['ci_low']:.3f}, {best['ci_high']:.3f}]\nguess {best['baseline']:.3f}, "
        f"ceiling {number(best['ceiling'])}\n{best['attack']}, {best['verdict']}"
    )
    silent = int(best["n_abstained"])
    return f"{words}\nno answer for {silent} clients" if silent else words


def claims_figure(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Advantage of the best attack against the recommender's error, one line per protocol and noise."""
    lines: dict[tuple[str, str], list[tuple[float, Row, Row]]] = {}
    for (protocol, defense), part in _grouped(rows).items():
        best = _best(part)
        mse = [row for row in part if row["metric"] == "mse" and row["status"] == "ran"]
        if best is not None and mse and defense != "none":
            place = float(_option(defense, "epsilon"))
            lines.setdefault((protocol, _option(defense, "noise")), []).append((place, best, mse[0]))
    if not lines:
        return []
    protocols = list(dict.fromkeys(key[0] for key in lines))
    noises = list(dict.fromkeys(key[1] for key in lines))
    colours = dict(zip(noises, sns.color_palette("colorblind", len(noises)), strict=True))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(protocols), 3.0), layout="constrained")
        axes = figure.subplots(1, len(protocols), sharey=True, squeeze=False)[0]
        for axis, protocol in zip(axes, protocols, strict=True):
            for number, noise in enumerate(noises):
                points = sorted(lines.get((protocol, noise), []), key=lambda point: point[0])
                if not points:
                    continue
                xs = [mse["value"] for _, _, mse in points]
                ys = [best["advantage"] for _, best, _ in points]
                low = [best["advantage"] - best["advantage_low"] for _, best, _ in points]
                high = [best["advantage_high"] - best["advantage"] for _, best, _ in points]
                axis.errorbar(
                    xs,
                    ys,
                    yerr=[low, high],
                    color=colours[noise],
                    marker=MARKERS[number],
                    capsize=2,
                    label=noise,
                )
                for count, ((place, _, _), x, y) in enumerate(zip(points, xs, ys, strict=True)):
                    away = (3, 3 if (count + number) % 2 else -8)  # neighbours may lie on one another
                    axis.annotate(f"{place:g}", (x, y), away, textcoords="offset points", fontsize=6)
            guess = next(iter(lines.values()))[0][2]["baseline"]
            axis.axvline(guess, color="0.6", linestyle=":")
            axis.annotate("training mean", (guess, 0.5), rotation=90, fontsize=6, color="0.4", ha="right")
            axis.set_xlabel("MSE of the recommender (stars²)")
            axis.set_title(protocol)
        axes[0].set_ylabel("advantage of the best attack over the guess")
        axes[0].legend(frameon=False, title="noise drawn (numbers: largest budget)")
        return save(figure, directory / "privacy_against_utility")
