"""Figures that reproduce those of papers: of the commands that predict and count, and of the handbook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.figures import (
    BASELINE,
    MARKERS,
    MEAN,
    NOISE,
    draw_line,
    legend,
    line_of,
    log_ticks,
    mean_lines,
    panels,
    save,
    scale_of,
    scenario_panels,
    shares,
)
from reports.paper_tables import VARIED, last_rounds, over_weights, prediction_frame, trusted_frame
from reports.verdicts import Row, grouped

# Figures 1 to 3 of Mai & Pang 2022 (arXiv:2210.07775), as published: Eq. (43) against the scale of Laplace
# noise. The paper draws its own procedure and the expected accuracy of a random guess. Here the best guess
# without the transcript stands beside it: Eq. (43) counts unrated items and zero attributes, and answering
# nothing but those is right far more often than a random guess.

PUBLISHED = {"rating_accuracy": "ratings right (Eq. 43)", "attribute_accuracy": "attributes right (Eq. 43)"}
RANDOM = "guess-uniform"
SOLVERS = {  # Table 6 of the paper, in bold
    ("semi-als", "observed-only"): "hybr",
    ("semi-als", "include-unrated"): "scalar Jacobian",
    ("sgd", "observed-only"): "Anderson",
    ("sgd", "include-unrated"): "hybr",
}
SOLVER_COLOUR, RANDOM_COLOUR = "#33508a", "#b3552a"
WIDEST = 10.0  # the largest scale of a linear axis


def published_figures(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw both figures, ratings and attributes, as SVG and PNG."""
    written = []
    for metric in PUBLISHED:
        usable = [row for row in rows if row["metric"] == metric and row["status"] == "ran"]
        if any(row["attack"].startswith("root-") for row in usable):
            written += save(published_noise(usable, metric), directory / f"published_{metric}_under_noise")
    return written


def published_noise(rows: Sequence[Row], metric: str) -> Figure:
    """Draw a panel per scenario: the solver that ran, a random guess and the best guess."""
    scales = [scale_of(row) for row in rows]
    with scenario_panels(rows, more=0.95) as (figure, scenarios):
        for scenario, axes in scenarios.items():
            shown = grouped(rows, "update", "weighting")[scenario]
            solver = next(row["attack"] for row in shown if row["attack"].startswith("root-"))
            line = line_of(shown, solver, scale_of)
            draw_line(axes, line, SOLVER_COLOUR, "o", limits=False)
            if drawn := line_of(shown, RANDOM, scale_of):
                draw_line(axes, drawn, RANDOM_COLOUR, "", dashed=True, limits=False)
            axes.plot([x for x, _ in line], [row["baseline"] for _, row in line], **BASELINE)
            paper = SOLVERS.get(scenario, "none")
            axes.set_title(f"{' / '.join(scenario)}\nsolver {solver} (paper: {paper})")
            if max(scales) > WIDEST:
                log_ticks(axes, sorted(set(scales) - {0}), "{:,g}")
            else:
                axes.set_xlim(left=0)
        clients = max(row["n_users"] for row in rows)
        label = f"paper's procedure, {clients} clients, 95 % band"
        handles = [
            Line2D([], [], color=SOLVER_COLOUR, marker="o", label=label),
            Line2D([], [], color=RANDOM_COLOUR, linestyle="--", label="random guess (the paper's baseline)"),
            Line2D([], [], **BASELINE, label="best guess without the transcript"),
        ]
        shares(figure, scenarios, PUBLISHED[metric], NOISE, handles)
    return figure


# Figures 2 and 3 of Chai et al. 2021: the server's share of an encrypted iteration against the number of
# items

UPLOADS = {"full-text": "Figure 2, full-text", "part-text": "Figure 3, part-text"}
PAPER_SHARE = 0.95
SHARES = {
    "server_share": "adds negated gradients, seconds",
    "server_share_subtracting": "subtracts, seconds",
    "server_share_counted": "adds, by counts of operations",
    "server_share_counted_subtracting": "subtracts, by counts",
}


def cost_figure(rows: Mapping[str, Sequence[Row]], system: str, directory: Path) -> list[Path]:
    """Draw the server's share: a panel for each upload, measured and counted, adding and subtracting."""
    uploads = [upload for upload in UPLOADS if upload in rows]
    colours = sns.color_palette("colorblind")
    with panels(len(uploads), height=3.1) as (figure, grid):
        for axes, upload in zip(grid[0], uploads, strict=True):
            shown = [row for row in rows[upload] if row["system"] == system]
            items = [row["items"] for row in shown]
            for rank, (name, words) in enumerate(SHARES.items()):
                look: Any = {
                    "color": colours[rank % 2],
                    "linestyle": "-" if rank < len(SHARES) // 2 else "--",
                }
                values = [row[name] for row in shown]
                axes.plot(items, values, **look, marker=MARKERS[rank], label=f"server {words}")
            axes.axhline(PAPER_SHARE, color="0.5", linestyle="-.", linewidth=0.9, label='paper: "about 95 %"')
            log_ticks(axes, items, "{:,}")
            axes.set(ylim=(0, 1), title=UPLOADS[upload], xlabel="most rated items")
        grid[0][0].set_ylabel(f"server's share of an iteration\n({system})")
        legend(figure, grid[0][0], 2)
        return save(figure, directory / "server_share_against_items")


# Figures 2 to 8 of Hu & Fang 2023: prediction error of private matrix factorisation

METHODS = ("hdpmf", "pdpmf", "mf", "dpmf", "hdpmf-r", "dpmf-program")  # in the order of their colours


def prediction_figure(rows: Sequence[Row], vary: str, directory: Path) -> list[Path]:
    """Draw the MSE of every method, or against what is varied; a panel per K, bars of one deviation."""
    frame = prediction_frame(rows, vary)
    frame = frame[(frame["metric"] == "mse") & (frame["status"] == "ran")]
    if frame.empty:
        return []
    sizes = list(frame["K"].unique())
    with panels(len(sizes), height=2.9) as (figure, grid):
        for axes, factors in zip(grid[0], sizes, strict=True):
            errors = frame[frame["K"] == factors]
            if vary == "nothing":
                _error_bars(axes, errors)
            else:
                mean_lines(axes, errors, "place", "method", METHODS)
                mean = errors.groupby("place")["baseline"].mean()
                axes.plot(mean.index, mean, **MEAN, label="training mean")
                axes.set(xlabel=VARIED[vary], xscale="log" if vary == "epsilon" else "linear")
            axes.set_title(f"K = {factors}")
        grid[0][0].set_ylabel("MSE on held-out ratings (stars²)")
        legend(figure, grid[0][-1], 3 if len(sizes) > 1 else 2)
        return save(figure, directory / ("mse_of_methods" if vary == "nothing" else f"mse_against_{vary}"))


def _error_bars(axes: Axes, errors: pd.DataFrame) -> None:
    """Figure 8."""
    spread = errors.groupby("method", sort=False)["value"].agg(["mean", "std"])
    bars = None if spread["std"].isna().any() else spread["std"]  # one seed has no spread
    colour = sns.color_palette("colorblind")[0]
    axes.bar(spread.index, spread["mean"], yerr=bars, capsize=2, color=colour)
    axes.axhline(errors["baseline"].mean(), **MEAN, label="training mean")


# MAE against rounds, beside that of Duriakova et al. 2019


def rounds_figure(frame: pd.DataFrame, *, mean: float, published: float) -> Figure:
    """Draw a panel for each learning rate, a line for each variant."""
    rates = sorted(frame["rate"].unique())
    variants = list(dict.fromkeys(frame["variant"]))
    colours = sns.color_palette("colorblind", len(variants))
    with panels(len(rates)) as (figure, grid):
        for axes, rate in zip(grid[0], rates, strict=True):
            axes.axhline(published, color="0.2", linestyle="--", linewidth=1, label="published, PDMFRec")
            axes.axhline(mean, **MEAN, linewidth=1, label="mean of the training ratings")
            for rank, variant in enumerate(variants):
                some = frame[(frame["rate"] == rate) & (frame["variant"] == variant)]
                look: Any = {"color": colours[rank], "marker": MARKERS[rank], "label": variant}
                axes.plot(some["rounds"], some["mae"], **look)
            axes.set(xlabel="rounds", title=f"rate {rate:g}", ylim=(0.88, 1.28))
            log_ticks(axes, [1, 2, 5, 10, 20, 50, 100, 150])
        grid[0][0].set_ylabel("MAE on held-out ratings (stars)")
        legend(figure, grid[0][0], 3)
    return figure


# Figures 4 to 6 of Yang et al. 2022: RMSE against rounds, over lambda and W, and against K

SYSTEMS = ("dpmf-yang", "dmf", "svd++", "gaussian-pmf")  # in the order of their colours
UNIT = "RMSE, units of 0..1"


def trusted_figures(rows: Sequence[Row], vary: str, directory: Path) -> list[Path]:
    """Draw what a grid shows, bars of one standard deviation over seeds."""
    frame = trusted_frame(rows)
    frame = frame[(frame["metric"] == "rmse_unit") & (frame["status"] == "ran")]
    if frame.empty or vary not in ("nothing", "weights"):
        return []
    if vary == "weights":
        return _over_weights(over_weights(frame), directory)
    written = []
    trained = frame[frame["rounds"] > 0]
    if sizes := list(trained["K"].unique()):
        with panels(len(sizes), height=2.9) as (figure, grid):
            for axes, factors in zip(grid[0], sizes, strict=True):
                some = trained[trained["K"] == factors]
                _errors_against(axes, some, "rounds")
                axes.set(xlabel="rounds", title=f"K = {factors}")
                log_ticks(axes, sorted(some["rounds"].unique()))
            grid[0][0].set_ylabel(UNIT)
            legend(figure, grid[0][0], 3)
            written += save(figure, directory / "rmse_against_rounds")
    last = last_rounds(frame)
    with panels(1, height=2.9) as (figure, grid):
        axes = grid[0][0]
        _errors_against(axes, last, "K")
        axes.set(xlabel="K", ylabel=UNIT, xticks=sorted(last["K"].unique()))
        legend(figure, axes, 3)
        return written + save(figure, directory / "rmse_against_k")


def _errors_against(axes: Axes, frame: pd.DataFrame, x: str) -> None:
    mean_lines(axes, frame, x, "system", SYSTEMS)
    axes.axhline(frame["baseline"].mean(), **MEAN, label="constant mean")


def _over_weights(mean: pd.DataFrame, directory: Path) -> list[Path]:
    with panels(1, height=2.8) as (figure, grid):
        axes = grid[0][0]
        shown = axes.imshow(mean.to_numpy(), origin="lower", aspect="auto", cmap="viridis_r")
        middle = (mean.to_numpy().min() + mean.to_numpy().max()) / 2
        for (row, column), value in np.ndenumerate(mean.to_numpy()):
            colour = "white" if value > middle else "black"
            axes.text(column, row, f"{value:.4f}", ha="center", va="center", fontsize=6, color=colour)
        axes.set_xticks(range(mean.shape[1]), [f"{weight:g}" for weight in mean.columns])
        axes.set_yticks(range(mean.shape[0]), [f"{share:g}" for share in mean.index])
        axes.set(xlabel="W", ylabel="lambda")
        figure.colorbar(shown, ax=axes, label=UNIT)
        return save(figure, directory / "rmse_over_weights")


# Bytes and seconds of a round against what grows, beside what Yang et al. 2022 claims of both

GROWS = {"users": "ratings of the clients", "degree": "receivers of each client, d", "factors": "factors, K"}
MEASURED = {"bytes": ("megabytes a round", 1e6), "seconds": ("processor seconds a round", 1.0)}


def growth_figure(frame: pd.DataFrame) -> Figure:
    """Draw a column for what grows, a row for what is measured, a line for each protocol, on log axes."""
    protocols = list(dict.fromkeys(frame["protocol"]))
    colours = sns.color_palette("colorblind", len(protocols))
    with panels(len(GROWS), len(MEASURED), height=4.6, sharex="col", sharey="row") as (figure, grid):
        for (measured, (words, unit)), row in zip(MEASURED.items(), grid, strict=True):
            for varied, axes in zip(GROWS, row, strict=True):
                here = frame[frame["varied"] == varied]
                for rank, protocol in enumerate(protocols):
                    some = here[here["protocol"] == protocol]
                    at, values = some["at"].to_numpy(float), some[measured].to_numpy(float) / unit
                    claimed = some["claimed"] / unit if measured == "bytes" else values[0] * at / at[0]
                    axes.plot(at, values, color=colours[rank], marker=MARKERS[rank], label=protocol)
                    label = f"{protocol}, as claimed"
                    axes.plot(at, np.asarray(claimed), color=colours[rank], linestyle=":", label=label)
                axes.set_yscale("log")
                log_ticks(axes, sorted(set(here["at"].astype(float))), "{:,.0f}")
                axes.minorticks_off()
                axes.yaxis.set_major_formatter("{x:g}")
            row[0].set_ylabel(words)
        for axes, words in zip(grid[-1], GROWS.values(), strict=True):
            axes.set_xlabel(words)
        legend(figure, grid[0][0], 2 * len(protocols))
    return figure


# What clients of a graph recover of each other: against degree, distance, coalition and the round watched.
# Every panel shows the advantage over the best guess, (right - guess) / (1 - guess): 0 is what anybody knows
# who saw nothing, 1 is every rating. What is not claimed counts as guessed.


PANELS = {  # what is varied -> its words, whose ratings are meant
    "degree": ("clients who send to the adversary", "a  everybody's ratings, round 0"),
    "coalition": ("members of the coalition", "b  everybody's ratings, round 0"),
    "distance": ("steps along the graph to the adversary", "c  ratings of clients so far away, round 0"),
    "round": ("the one round watched (0 is the start)", "d  ratings of those who send to the adversary"),
}
LABELS = {  # protocol and column of a line -> its words
    ("PDMFRec", "right"): "PDMFRec, no names, under pseudonyms",
    ("PDMFRec", "by name"): "PDMFRec, no names, under the right name",
    ("DMF", "right"): "DMF, names told",
    ("DPMF-Yang", "right"): "DPMF-Yang, names told",
}


def leakage_figure(frame: pd.DataFrame) -> Figure:
    """Draw four panels, a line for each protocol; bars are 95 % intervals over clients.

    Against degree a mark is one adversary, against coalition the mean of some draws of members.
    """
    with panels(2, 2, height=5.2, sharey="row") as (figure, grid):
        for (varied, (words, title)), axes in zip(PANELS.items(), grid.flat, strict=True):
            _leakage_panel(axes, varied in ("degree", "coalition"), frame[frame["panel"] == varied])
            axes.set(xlabel=words)
            axes.set_title(title, loc="left")
        for axes in grid[:, 0]:
            axes.set_ylabel("advantage over the guess")
        legend(figure, grid[0, 0], 2)
    return figure


def _leakage_panel(axes: Axes, log: bool, frame: pd.DataFrame) -> None:
    colours = sns.color_palette("colorblind", len(LABELS))
    axes.axhline(0, **MEAN, linewidth=1)
    axes.axhline(1, color="0.8", linewidth=0.8)
    for rank, ((protocol, column), words) in enumerate(LABELS.items()):
        some = frame[frame["protocol"].str.split(",").str[0] == protocol]
        if some.empty:
            continue
        shown = pd.DataFrame(
            {name: (some[name] - some["guess"]) / (1 - some["guess"]) for name in (column, "low", "high")}
        )
        found = shown.assign(x=some["x"]).groupby("x").mean()
        bars = column == "right" and not log
        apart = [found[column] - found["low"], found["high"] - found[column]] if bars else None
        look: Any = {"color": colours[rank], "marker": MARKERS[rank]}
        look["linestyle"] = "--" if column == "by name" else "-"
        error = None if apart is None else np.maximum(apart, 0)
        axes.errorbar(found.index, found[column], yerr=error, **look, capsize=2, label=words)
    at = sorted(frame["x"].unique()) if len(frame) else []
    if log:
        round_numbers = sorted({1, *(10**k * n for k in range(4) for n in (1, 2, 5))})
        log_ticks(axes, [n for n in round_numbers if at and at[0] <= n <= at[-1]])
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")  # powers of ten would be formulas
    else:
        axes.set_xticks(at, [f"{n:g}" for n in at])
        axes.set_ylim(-0.05, 1.05)
