"""Prediction error of private matrix factorisation: a table beside the paper's, and one figure per sweep.

Work on plain mappings with the columns of ``results.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.figure import Figure
from rich.table import Table

from reports.figures import MARKERS, STYLE, save

Row = Mapping[str, Any]

# paper 002, Table 3: (data, method) -> MSE and MAE at K = 10, at K = 5
PAPER = {
    ("ml-100k", "mf"): ((0.9269, 0.7617), (0.9231, 0.7609)),
    ("ml-100k", "hdpmf"): ((1.4690, 0.9356), (1.2257, 0.8606)),
    ("ml-100k", "pdpmf"): ((1.5623, 0.9664), (1.2475, 0.8715)),
    ("ml-100k", "dpmf"): ((4.9264, 1.8811), (4.4484, 1.7685)),
    ("ml-1m", "mf"): ((0.7906, 0.7027), (0.8067, 0.7104)),
    ("ml-1m", "hdpmf"): ((1.0262, 0.7869), (0.9174, 0.7501)),
    ("ml-1m", "pdpmf"): ((1.0801, 0.8136), (0.9399, 0.7635)),
    ("ml-1m", "dpmf"): ((1.8032, 1.0350), (1.3912, 0.9166)),
}
WORDS = {
    "user_low": "least weight of conservative users",
    "user_conservative": "share of conservative users",
    "fraction": "share of the training ratings",
    "epsilon": "largest budget",
}


def prediction_table(rows: Sequence[Row], data: str, title: str) -> Table:
    """Mean (standard deviation) over seeds of both errors, the paper's beside them."""
    table = Table(title=title, title_justify="left")
    for name in ("K", "method", "MSE (sd)", "paper", "MAE (sd)", "paper", "seeds", "s a seed"):
        table.add_column(name, justify="left" if name == "method" else "right")
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        method, factors = _method(row)
        groups.setdefault((factors, method), []).append(row)
    for factors in dict.fromkeys(key[0] for key in groups):
        table.add_section()
        part = {method: found for (k, method), found in groups.items() if k == factors}
        for method, found in part.items():
            ran = [row for row in found if row["status"] == "ran"]
            if not ran:
                table.add_row(str(factors), method, found[0]["reason"], "", "", "", "0", "")
                continue
            paper = PAPER.get((data, method), (("-", "-"),) * 2)[0 if factors == 10 else 1]
            known = [f"{p:.3f}" if isinstance(p, float) and factors in (10, 5) else "-" for p in paper]
            cells = [_spread([r["value"] for r in ran if r["metric"] == name]) for name in ("mse", "mae")]
            seconds = np.mean([row["seconds"] for row in ran])
            count = len({row["seed"] for row in ran})
            table.add_row(
                str(factors), method, cells[0], known[0], cells[1], known[1], str(count), f"{seconds:.1f}"
            )
        everything = [row for found in part.values() for row in found if row["status"] == "ran"]
        cells = [
            _spread(list({r["seed"]: r["baseline"] for r in everything if r["metric"] == name}.values()))
            for name in ("mse", "mae")
        ]
        table.add_row(str(factors), "training mean", cells[0], "-", cells[1], "-", "", "")
    return table


def _method(row: Row) -> tuple[str, int]:
    method, _, factors = str(row["victim"]).partition(" K=")
    return method, int(factors)


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    deviation = np.std(values, ddof=1) if len(values) > 1 else float("nan")
    return f"{np.mean(values):.3f} ({deviation:.3f})" if np.isfinite(deviation) else f"{np.mean(values):.3f}"


def _place(row: Row, vary: str) -> float:
    text = str(row["data"] if vary == "fraction" else row["defense"])
    return float(text.rpartition(f"{vary}=")[2].partition(",")[0])


def prediction_figure(rows: Sequence[Row], vary: str, directory: Path) -> list[Path]:
    """MSE against what is varied, one panel per K, a bar of one standard deviation over seeds."""
    usable = [row for row in rows if row["metric"] == "mse" and row["status"] == "ran"]
    if not usable:
        return []
    sizes = sorted({_method(row)[1] for row in usable}, reverse=True)
    methods = list(dict.fromkeys(_method(row)[0] for row in usable))
    colours = dict(zip(methods, sns.color_palette("colorblind", len(methods)), strict=True))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(sizes), 2.6), layout="constrained")
        for axis, factors in zip(np.atleast_1d(figure.subplots(1, len(sizes))), sizes, strict=True):
            part = [row for row in usable if _method(row)[1] == factors]
            for number, method in enumerate(methods):
                lines: dict[float, list[float]] = {}
                for row in part:
                    if _method(row)[0] == method:
                        x = _place(row, vary) if row["defense"] != "none" or vary == "fraction" else None
                        places = (
                            {_place(r, vary) for r in part if r["defense"] != "none"} if x is None else {x}
                        )
                        for place in places:
                            lines.setdefault(place, []).append(row["value"])
                xs = sorted(lines)
                axis.errorbar(
                    xs,
                    [np.mean(lines[x]) for x in xs],
                    yerr=[np.std(lines[x], ddof=1) if len(lines[x]) > 1 else 0 for x in xs],
                    color=colours[method],
                    marker=MARKERS[number % len(MARKERS)],
                    capsize=2,
                    label=method,
                )
            means: dict[float, list[float]] = {}
            for row in part:
                if row["defense"] != "none" or vary == "fraction":
                    means.setdefault(_place(row, vary), []).append(row["baseline"])
            xs = sorted(means)
            axis.plot(xs, [np.mean(means[x]) for x in xs], color="0.5", linestyle=":", label="training mean")
            if vary == "epsilon":
                axis.set_xscale("log")
            axis.set_xlabel(WORDS[vary])
            axis.set_ylabel("MSE on held-out ratings (stars$^2$)")
            axis.set_title(f"K = {factors}")
        axis.legend(frameon=False)
        return save(figure, directory / f"mse_against_{vary}")
