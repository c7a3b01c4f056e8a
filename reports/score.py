"""What the score of one reconstruction is, and how far its probabilities can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from reports.layout import Sheet
from reports.verdicts import Row, number, numbers_of, verdict_of, why_not


def score_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate every metric of one reconstruction."""
    lines = [
        (
            row["metric"],
            *(numbers_of(row, 4)[name] for name in ("value", "interval", "baseline")),
            row["baseline_name"],
            *(numbers_of(row)[name] for name in ("ceiling", "ceiling_ml", "answered")),
            verdict_of(row),
            numbers_of(row)["advantage"],
            why_not(row),
        )
        for row in ({"status": "ran", "reason": "", **row} for row in rows)
    ]
    heads = ("metric", "value", "95 % interval", "best guess", "which", "ceiling", "ceiling ML", "answered")
    return Sheet(
        title=title,
        columns=(*heads, "verdict", "advantage", "reason"),
        rows=tuple(lines),
        right=heads[1:4] + heads[5:] + ("advantage",),
        stacks=(
            ("metric", "answered"),
            ("value", "95 % interval"),
            ("best guess", "which"),
            ("ceiling", "ceiling ML"),
            ("verdict", "advantage"),
        ),
        note="reason",
    )


def reliability_table(bins: Sequence[Row]) -> Table:
    """Tabulate what an attack claimed of its answers, beside the share that is right."""
    table = Table(title="Reliability of the attack's probabilities", title_justify="left")
    for name in ("answers about", "probability", "answers", "clients", "claimed", "right", "95 % interval"):
        table.add_column(name, justify="left" if name == "answers about" else "right")
    for row in bins:
        table.add_row(
            row["what"],
            f"{row['least']:g} to {row['below']:g}",
            f"{row['answers']:,}",
            str(row["clients"]),
            number(row["claimed"]),
            number(row["right"]),
            f"[{number(row['right_low'])}, {number(row['right_high'])}]",
        )
    return table
