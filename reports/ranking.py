"""Ranking quality with and without encryption, beside popularity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from reports.verdicts import Row, number


def quality_table(rows: Sequence[Row], title: str) -> Table:
    """Tabulate scenarios, readings and metrics: with and without encryption, beside popularity."""
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
        if len(systems) < 3:  # one of them failed
            continue
        plain, sealed, popular = (np.array(systems[name]) for name in ("plain", "encrypted", "popularity"))
        table.add_row(
            *key, _mean(plain), _mean(sealed), f"{np.abs(plain - sealed).max():.1e}", _mean(popular)
        )
    return table


def _mean(values: np.ndarray) -> str:
    spread = values.std(ddof=1) if values.size > 1 else float("nan")
    return f"{number(float(values.mean()), 4)} ({number(float(spread), 4)})"
