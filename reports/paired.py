"""Which of two methods has the smaller error over the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from reports.verdicts import number


def paired_table(found: Sequence[Any]) -> Table:
    """Tabulate paired tests, the stars as in Table 3 of paper 002."""
    fewest = min((one.n_seeds for one in found), default=0)
    note = f"sign flips of {fewest} seeds: p >= {2.0**-fewest:.2g}"
    table = Table(title=f"Paired over seeds, one-sided; {note}", title_justify="left")
    numbers = ("by", "t-test p", "sign-flip p", "by, 95 % over users")
    for name in ("factors", "error", "smaller", "than", *numbers):
        table.add_column(name, justify="right" if name in numbers else "left")
    for one in found:
        by = f"{number(one.result.better_by, 4)} {one.result.stars:<3}"
        low, high = one.over_users or (float("nan"), float("nan"))
        over_users = "-" if one.over_users is None else f"[{number(low, 4)}, {number(high, 4)}]"
        cells = (by, number(one.result.t_test, 4), number(one.result.sign_flip, 4), over_users)
        table.add_row(one.factors, one.metric, one.better, one.worse, *cells)
    return table
