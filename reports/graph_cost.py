"""Messages, bytes and seconds of rounds in which clients send to each other."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from reports.verdicts import Row, number


def graph_cost_table(rows: Sequence[Row], title: str) -> Table:
    """Draw one line per number of items; bytes of the client with most, and of the mean one."""
    table = Table(title=title, title_justify="left")
    columns = (
        "users", "items", "ratings", "rows", "edges", "messages", "MB", "MB sent", "MB received",
        "seconds", "of it\nrows", "peak MB",
    )  # fmt: skip
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        counted = ("users", "items", "ratings", "rows", "edges", "messages")
        table.add_row(
            *(f"{int(row[name]):,}" for name in counted),
            f"{row['bytes'] / 1e6:.3g}",
            *(
                f"{row[f'bytes_{way}'] / 1e6:.3g} / {row[f'bytes_{way}_mean'] / 1e6:.3g}"
                for way in ("sent", "received")
            ),
            number(row["seconds_round"], 3),
            number(row["seconds_rows"], 3),
            f"{row['peak_bytes'] / 1e6:,.0f}",
        )
    return table
