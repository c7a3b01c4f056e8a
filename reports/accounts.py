"""What a defense proves of itself, as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from reports.verdicts import Row


def account_table(lines: Sequence[Row], title: str) -> Table:
    """Tabulate a defense's privacy account."""
    table = Table(title=title, title_justify="left")
    for name in ("what", "eps, delta = 0", "eps at delta", "delta", "why"):
        table.add_column(name, overflow="fold")
    for line in lines:
        values = (_epsilon(line[name]) for name in ("epsilon", "at_delta"))
        table.add_row(line["what"], *values, f"{line['delta']:g}", line["why"])
    return table


def _epsilon(value: float) -> str:
    if math.isnan(value):
        return "nothing proved"
    return f"{value:,.4g}" if math.isfinite(value) else "none"
