"""Prediction error of private matrix factorisation: a table beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from reports.verdicts import Row

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
OF_PAPER = {"dpmf-program": "dpmf"}  # what a method stands for there
VARIED = {
    "user_low": "least weight of conservative users",
    "user_conservative": "share of conservative users",
    "fraction": "share of the training ratings",
    "epsilon": "largest budget",
}


def prediction_table(
    rows: Sequence[Row],
    data: str,
    title: str,
    vary: str = "nothing",
    over_users: Mapping[tuple[str, str], tuple[float, float]] | None = None,
) -> Table:
    """Mean (standard deviation) over seeds of both errors; Table 3's are beside them where nothing varies."""
    plain = vary == "nothing"
    table = Table(title=title, title_justify="left")
    place = [] if plain else [VARIED[vary]]
    paper, users = ["paper"] if plain else [], " [95 % over users]" if over_users else ""
    for name in (
        "K",
        *place,
        "method",
        f"MSE (sd){users}",
        *paper,
        f"MAE (sd){users}",
        *paper,
        "seeds",
        "s a seed",
    ):
        table.add_column(name, justify="left" if name == "method" else "right")
    frame = frame_of(rows, vary)
    for _, errors in frame.groupby(["K", "place"], sort=False):
        factors, x = int(errors["K"].iloc[0]), float(errors["place"].iloc[0])
        table.add_section()
        head = [str(factors)] if plain else [str(factors), f"{x:g}"]
        for method, found in errors.groupby("method", sort=False):
            paper_has = PAPER.get((data, OF_PAPER.get(str(method), str(method))))
            intervals = {
                name: (over_users or {}).get((f"{method} K={factors}", name)) for name in ("mse", "mae")
            }
            table.add_row(*head, *_cells(str(method), found, paper_has, factors, plain, intervals))
        ran = errors[errors["status"] == "ran"].drop_duplicates(["seed", "metric"])
        mean = [_spread(ran.loc[ran["metric"] == name, "baseline"]) for name in ("mse", "mae")]
        beside = ["-"] if plain else []
        table.add_row(*head, "training mean", mean[0], *beside, mean[1], *beside, "", "")
    return table


def _cells(
    method: str,
    found: pd.DataFrame,
    paper: Any,
    factors: int,
    plain: bool,
    intervals: Mapping[str, tuple[float, float] | None],
) -> list[str]:
    """One line of the table, from its method on."""
    ran = found[found["status"] == "ran"]
    if ran.empty:
        return [method, found["reason"].iloc[0], *[""] * (3 if plain else 1), "0", ""]
    known = (
        [f"{value:.3f}" for value in paper[0 if factors == 10 else 1]]
        if paper and factors in (10, 5)
        else ["-"] * 2
    )
    cells = [method]
    for name, value in zip(("mse", "mae"), known, strict=True):
        over_users = intervals[name]
        beside = "" if over_users is None else f" [{over_users[0]:.3f}, {over_users[1]:.3f}]"
        cells += [_spread(ran.loc[ran["metric"] == name, "value"]) + beside, *([value] if plain else [])]
    return [*cells, str(ran["seed"].nunique()), f"{ran['seconds'].mean():.1f}"]


def _spread(values: pd.Series) -> str:
    if values.empty:
        return "-"
    deviation = values.std()
    return f"{values.mean():.3f} ({deviation:.3f})" if np.isfinite(deviation) else f"{values.mean():.3f}"


def frame_of(rows: Sequence[Row], vary: str) -> pd.DataFrame:
    """Put rows into a frame with columns ``method``, ``K`` and ``place``, the value of what is varied."""
    frame = pd.DataFrame(rows)
    words = frame["victim"].str.split(" K=", expand=True)
    frame = frame.assign(method=words[0], K=words[1].astype(int), place=0.0)
    if vary == "nothing":
        return frame
    text = frame["data" if vary == "fraction" else "defense"]
    frame["place"] = text.str.extract(rf"{vary}=([-+.e\d]+)")[0].astype(float)
    # a method without budgets is the same at every place
    same = frame[frame["place"].isna()].drop_duplicates(["method", "K", "seed", "metric"])
    placed = frame.dropna(subset="place")
    places = placed["place"].unique()
    return pd.concat([placed, *(same.assign(place=x) for x in places)]).sort_values(
        ["K", "place"], ascending=[False, True], kind="stable"
    )
