"""Prediction error among neighbours: paper 003's Table 2 with its numbers beside; error against rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from rich.table import Table

from reports.verdicts import Row

PAPER = {  # paper 003, Table 2, ML-100K: MAE and RMSE
    "pdmfrec": (1.0194, 1.2722),
    "pdmfrec-sim": (0.7832, 0.9975),
    "pdmfrec-sim-all": (0.7332, 0.9360),
    "pmf": (0.7286, 0.9314),
}


def frame_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows that ran, with columns ``method`` and ``rate``."""
    frame = pd.DataFrame(rows)
    frame = frame[frame["status"] == "ran"].copy()
    words = frame["victim"].str.split(" ")
    frame["method"] = words.str[0]
    frame["rate"] = words.str[1].str.removeprefix("rate=").astype(float)
    return frame


def chosen(frame: pd.DataFrame, rounds: int | None = None) -> pd.DataFrame:
    """The rate and the rounds of least validation MAE, for each method and rotation."""
    if rounds is not None:
        frame = frame[frame["rounds"] == rounds]
    keys = ["method", "seed", "rate", "rounds"]
    wide = frame.pivot_table(index=keys, columns="metric", values=["value", "baseline"], sort=False)
    flat = pd.DataFrame(
        {
            "mae": wide["value", "mae"],
            "rmse": wide["value", "rmse"],
            "mean_mae": wide["baseline", "mae"],
            "mean_rmse": wide["baseline", "rmse"],
            "validation_mae": wide["value", "validation_mae"],
        }
    ).reset_index()
    best = flat.groupby(["method", "seed"], sort=False)["validation_mae"].idxmin()
    return flat.loc[best]


def parts_table(rows: Sequence[Row], data: str, title: str, rounds: int | None = None) -> Table:
    """Mean (standard deviation) over rotations, the paper's numbers beside."""
    table = Table(title=title, title_justify="left")
    for name in ("method", "MAE (sd)", "paper", "RMSE (sd)", "paper", "rates", "rounds", "rotations"):
        table.add_column(name, justify="left" if name == "method" else "right")
    found = chosen(frame_of(rows), rounds)
    for method, errors in found.groupby("method", sort=False):
        mae, rmse = PAPER.get(str(method), (np.nan, np.nan)) if data == "ml-100k" else (np.nan, np.nan)
        table.add_row(
            str(method),
            _spread(errors["mae"]),
            _number(mae),
            _spread(errors["rmse"]),
            _number(rmse),
            _which(errors["rate"]),
            _which(errors["rounds"]),
            str(len(errors)),
        )
    mean = found.drop_duplicates("seed")
    table.add_row(
        "training mean", _spread(mean["mean_mae"]), "-", _spread(mean["mean_rmse"]), "-", "", "", ""
    )
    return table


def rounds_table(rows: Sequence[Row], title: str) -> Table:
    """MAE after each number of rounds, at the rate of least validation MAE there; mean over rotations."""
    frame = frame_of(rows)
    rounds = sorted({int(n_rounds) for n_rounds in frame["rounds"]})
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for n_rounds in rounds:
        table.add_column(str(n_rounds), justify="right")
    at = {
        n_rounds: chosen(frame, n_rounds).groupby("method", sort=False)["mae"].mean() for n_rounds in rounds
    }
    for method in dict.fromkeys(frame["method"]):
        table.add_row(method, *(_number(at[n_rounds].get(method, np.nan)) for n_rounds in rounds))
    return table


def _number(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else "-"


def _spread(values: pd.Series) -> str:
    deviation = values.std()
    return f"{values.mean():.4f} ({deviation:.4f})" if np.isfinite(deviation) else f"{values.mean():.4f}"


def _which(values: pd.Series) -> str:
    return ", ".join(f"{value:g}" for value in sorted(values.unique()))
