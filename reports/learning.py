"""The error of a victim's model beside models that are trained in one place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from rich.table import Table

from reports.verdicts import Row, grouped, number

ERROR = "rmse"


def learning_table(
    rounds: Sequence[int],
    rmse: Sequence[float],
    centralised: float,
    bias: float,
    mean: float,
    title: str,
) -> Table:
    """Tabulate the error after each number of rounds, beside models that are trained in one place."""
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    table.add_column("RMSE", justify="right")
    for count, error in zip(rounds, rmse, strict=True):
        table.add_row(f"as trained, {count} rounds", number(error))
    table.add_row("centralised alternating least squares, best of 15 sweeps", number(centralised))
    table.add_row("centralised mean + user bias + item bias", number(bias))
    table.add_row("training mean", number(mean))
    return table


def worse_than_mean(rows: Sequence[Row]) -> list[str]:
    """Say which models predict worse than the training mean: a line for each victim and defense."""
    poor = [row for row in rows if row["metric"] == ERROR and row["status"] == "ran" and row["reason"]]
    return [
        f"{victim}, {defense or 'none'}: {reason} (RMSE {_mean(found, 'value')}, training mean "
        f"{_mean(found, 'baseline')})"
        for (victim, defense, reason), found in grouped(poor, "victim", "defense", "reason").items()
    ]


def _mean(rows: Sequence[Row], column: str) -> str:
    return number(fmean(row[column] for row in rows))


def tuning_table(trials: Sequence[Any], measure: str, title: str, most: int = 10) -> Table:
    """Tabulate the best trials of a search, and how many failed."""
    failed = sum(math.isnan(trial.value) for trial in trials)
    table = Table(title=f"{title}, {failed} failed" if failed else title, title_justify="left")
    names = list(trials[0].options)
    for name in ("trial", measure, *names):
        table.add_column(name, justify="right")
    for trial in trials[: min(most, len(trials) - failed)]:
        values = (f"{trial.options[name]:.4g}" for name in names)
        table.add_row(str(trial.number), number(trial.value, 4), *values)
    return table
