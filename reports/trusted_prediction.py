"""Prediction and recommendation among users who trust each other: tables beside paper 004's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table
from scipy import stats

from reports.verdicts import Row

# paper 004, Table 4: (data, system) -> P@5 and R@5 at K = 3, 6, 12
PAPER = {
    ("filmtrust", "implicit-pmf"): ((0.0332, 0.0711), (0.0380, 0.0771), (0.0410, 0.0831)),
    ("filmtrust", "wrmf"): ((0.0352, 0.0751), (0.0379, 0.0763), (0.0404, 0.0823)),
    ("filmtrust", "dpmf-yang"): ((0.0342, 0.0722), (0.0396, 0.0796), (0.0435, 0.0889)),
    ("epinions", "implicit-pmf"): ((0.0715, 0.1529), (0.0761, 0.1571), (0.0781, 0.1611)),
    ("epinions", "wrmf"): ((0.0717, 0.1497), (0.0760, 0.1563), (0.0789, 0.1603)),
    ("epinions", "dpmf-yang"): ((0.0716, 0.1524), (0.0781, 0.1599), (0.0821, 0.1653)),
}
SIZES = (3, 6, 12)
LISTED = ("precision_at_5_implicit", "recall_at_5_implicit", "precision_at_5_all", "recall_at_5_all")
SENT = ("rows_per_round", "messages_per_round", "bytes_per_round")
LEVEL = 0.95


def frame_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows as a frame with columns ``system``, ``K`` and ``place``, in words, of what is varied."""
    frame = pd.DataFrame(rows)
    words = frame["victim"].str.extract(r"^(\S+) K=(\d+) ?(.*)$")
    return frame.assign(system=words[0], K=words[1].astype(int), place=words[2])


def spread(values: pd.Series, digits: int = 4) -> str:
    """Write the mean over seeds, and half the width of its 95 % interval by Student's t.

    Examples
    --------
    >>> spread(pd.Series([0.1, 0.2, 0.3]))
    '0.2000 ± 0.2484'
    """
    if values.empty:
        return "-"
    if values.size < 2:
        return f"{values.mean():.{digits}f}"
    half = stats.t.ppf((1 + LEVEL) / 2, values.size - 1) * values.std() / np.sqrt(values.size)
    return f"{values.mean():.{digits}f} ± {half:.{digits}f}"


def recommendation_table(rows: Sequence[Row], data: str, title: str) -> Table:
    """P@5 and R@5 after the last round in both universes, popularity and the paper's numbers beside."""
    table = Table(title=title, title_justify="left")
    for name in ("K", "system", "P@5 implicit", "R@5 implicit", "P@5 all", "R@5 all", "paper P@5", "R@5"):
        table.add_column(name, justify="left" if name == "system" else "right")
    frame = last_rounds(frame_of(rows))
    for factors, of_size in frame.groupby("K", sort=False):
        table.add_section()
        ranked = of_size[of_size["metric"].isin(LISTED)]
        for system, found in ranked.groupby("system", sort=False):
            cells = _cells(found, "value")
            table.add_row(
                str(factors), str(system), *cells, *_published(data, str(system), int(str(factors)))
            )
        best = ranked[ranked["status"] == "ran"].drop_duplicates(["seed", "metric"])
        table.add_row(str(factors), "popularity", *_cells(best, "baseline"), "-", "-")
    return table


def error_table(rows: Sequence[Row], title: str) -> Table:
    """RMSE in units of 0..1 after the last round, with U^ and with U, and the constant mean."""
    table = Table(title=title, title_justify="left")
    for name in ("K", "varied", "system", "RMSE", "RMSE with U alone", "constant mean", "seeds"):
        table.add_column(name, justify="left" if name == "system" else "right")
    frame = last_rounds(frame_of(rows))
    for _, found in frame[frame["metric"].str.startswith("rmse")].groupby(
        ["K", "place", "system"], sort=False
    ):
        head = [str(found["K"].iloc[0]), found["place"].iloc[0], found["system"].iloc[0]]
        ran = found[found["status"] == "ran"]
        if ran.empty:
            table.add_row(*head, found["reason"].iloc[0], "", "", "0")
            continue
        main, other = (ran[ran["metric"] == name] for name in ("rmse_unit", "rmse_unit_users"))
        row = spread(main["value"]), spread(other["value"]), spread(main["baseline"])
        table.add_row(*head, *row, str(main["seed"].nunique()))
    return table


def traffic_table(rows: Sequence[Row], title: str) -> Table:
    """What is sent in a round, counted, and seconds of a training."""
    table = Table(title=title, title_justify="left")
    for name in ("K", "varied", "system", "users", "rows", "messages", "bytes", "messages / row", "s a run"):
        table.add_column(name, justify="left" if name == "system" else "right")
    frame = last_rounds(frame_of(rows))
    frame = frame[frame["metric"].isin(SENT) & (frame["status"] == "ran")]
    for _, found in frame.groupby(["K", "place", "system"], sort=False):
        head = [str(found["K"].iloc[0]), found["place"].iloc[0], found["system"].iloc[0]]
        sent, arrived, size = (found.loc[found["metric"] == name, "value"].mean() for name in SENT)
        numbers = [f"{found['n_users'].mean():,.0f}", *(f"{number:,.0f}" for number in (sent, arrived, size))]
        table.add_row(*head, *numbers, f"{arrived / sent:.3f}", f"{found['seconds'].mean():.1f}")
    return table


def over_weights(frame: pd.DataFrame) -> pd.DataFrame:
    """Spread rows of ``--vary weights`` over lambda and W, means over seeds."""
    words = frame["place"].str.extract(r"lambda=(\S+) W=(\S+)").astype(float)
    return frame.assign(share=words[0], weight=words[1]).pivot_table("value", "share", "weight")


def last_rounds(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows after each system's last measured round."""
    last = frame.groupby(["system", "K", "place"])["rounds"].transform("max")
    return frame[frame["rounds"].isna() | (frame["rounds"] == last)]


def _cells(found: pd.DataFrame, column: str) -> list[str]:
    ran = found[found["status"] == "ran"]
    if ran.empty:
        return [found["reason"].iloc[0] if len(found) else "-", "", "", ""]
    return [spread(ran.loc[ran["metric"] == name, column]) for name in LISTED]


def _published(data: str, system: str, factors: int) -> list[str]:
    known: Any = PAPER.get((data, system))
    if known is None or factors not in SIZES:
        return ["-", "-"]
    return [f"{value:.4f}" for value in known[SIZES.index(factors)]]
