"""What a sweep found, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from reports.layout import Sheet
from reports.verdicts import Row, number, numbers_of, verdict_of, why_not


def sweep_table(rows: Sequence[Row], title: str, attack: str) -> Sheet:
    """Tabulate scenarios, scales and numbers of rounds: value, interval, guess, ceiling and its share."""
    metric = "rating_accuracy"
    lines = []
    for row in rows:
        if row["attack"] != attack or row["metric"] != metric:
            continue
        found = numbers_of(row)
        limit = row["ceiling"]
        known = found["ceiling"] != "-" and limit > 0
        lines.append(
            (
                f"{row['update']}/{row['weighting']}",
                str(row["defense"]).rpartition("=")[2],
                str(row["rounds"]),
                *(found[name] for name in ("value", "interval", "baseline", "ceiling", "ceiling_ml")),
                number(row["value"] / limit) if known else "-",
                found["answered"],
                verdict_of(row),
                why_not(row),
            )
        )
    heads = ("scenario", "b", "rounds", metric, "95 % interval", "best guess", "ceiling", "ceiling ML")
    return Sheet(
        title=title,
        columns=(*heads, "of it", "answered", "verdict", "reason"),
        rows=tuple(lines),
        right=(*heads[1:], "of it", "answered"),
        blocks=1,
        stacks=((metric, "95 % interval"), ("ceiling", "ceiling ML")),
        note="reason",
    )
