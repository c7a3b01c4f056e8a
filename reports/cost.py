"""Seconds and bytes of encrypted rounds, beside what the papers report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from reports.verdicts import Row, number

# paper 001, Table 1: most rated items -> seconds of one iteration, part-text and full-text; 1024 bit, K = 100
FEDMF = {
    40: (34.39, 90.94),
    50: (44.05, 113.34),
    60: (46.34, 141.52),
    80: (52.91, 182.27),
    160: (92.81, 374.85),
    320: (140.51, 725.72),
    640: (178.24, 1479.40),
    1280: (264.10, 2919.91),
    2560: (334.79, 5786.01),
}
# paper 000, Table 5: seconds of local update with encryption, aggregation, decryption, server update
PRIVMVMF = {"plain": (0.0195, 3.2878, None, 0.1912), "unpacked": (3.0787, 239.2998, 97.5748, 0.3334)}
# the tables by the victim that they are about
PER_ITEMS = {"fedmf": FEDMF}
PER_PHASE = {"fedmvmf": PRIVMVMF}
LIKE_THE_PAPER = ("phe, 1024 bit", "packed, 1024 bit")  # systems with the papers' length of keys


def cost_table(rows: Sequence[Row], title: str) -> Table:
    """Make one line per number of items and system; client phases of the busiest and of the mean client.

    References
    ----------
    Paper 001, arXiv:1906.05108, Table 1 and Figures 2 and 3.
    """
    table = Table(title=title, title_justify="left")
    for name in ("items", "ratings", "system"):
        table.add_column(name, justify="left" if name == "system" else "right")
    seconds = ("local\nupdate", "encrypt", "transfer", "aggregate", "decrypt", "server\nupdate")
    for name in (
        *seconds,
        "MB sent",
        "cipher-\ntexts",
        "peak MB",
        "round",
        "of it\nserver",
        "if it\nsubtracts",
        "by counts",
        "paper",
        "paper /\nround",
    ):
        table.add_column(name, justify="right")
    phases = ("aggregation", "decryption", "server_update")
    before = None
    for row in rows:
        first = row["items"] != before
        before = row["items"]
        paper = row["paper"]
        table.add_row(
            f"{row['items']:,}" if first else "",
            f"{row['ratings']:,}" if first else "",
            row["system"],
            *(_both(row, f"seconds_{name}") for name in ("local_update", "encryption", "transfer")),
            *(_seconds(row[f"seconds_{name}"]) for name in phases),
            f"{row['bytes_sent'] / 1e6:.3g} / {row['bytes_sent_mean'] / 1e6:.3g}",
            f"{row['ciphertexts']:,.0f}",
            f"{row['peak_bytes'] / 1e6:,.0f}",
            _seconds(row["slowest"]),
            f"{row['server_share']:.0%}",
            f"{row['server_share_subtracting']:.0%}",
            _counted(row),
            number(paper, 2),
            "-" if paper is None else f"{paper / row['slowest']:.1f}",
        )
    return table


def _counted(row: Row) -> str:
    """The server's share by counts of operations, adding and subtracting."""
    adding, subtracting = row["server_share_counted"], row["server_share_counted_subtracting"]
    return "-" if math.isnan(adding) else f"{adding:.0%} / {subtracting:.0%}"


def _both(row: Row, name: str) -> str:
    """Seconds of the busiest client, and of the mean one."""
    busiest, mean = row[name], row[f"{name}_mean"]
    return "-" if busiest == 0 else f"{busiest:.3g} / {mean:.3g}"


def _seconds(value: float) -> str:
    return "-" if value == 0 else f"{value:.3g}"


def published_seconds(victim: str, row: Row, upload: str) -> float | None:
    """Look up what the victim's paper reports for a row."""
    found = PER_ITEMS.get(victim, {}).get(row["items"])
    if found is None or row["system"] not in LIKE_THE_PAPER:
        return None
    return found[0 if upload == "part-text" else 1]


def of_the_upload(victim: str, upload: str) -> str:
    """Say how clients upload, for a title."""
    return f" ({upload})" if victim in PER_ITEMS else ""


def published_lines(victim: str) -> list[str]:
    """Say what the victim's paper reports of a whole round.

    References
    ----------
    Paper 000, arXiv:2210.07775, Table 5.
    """
    lines = []
    for name, phases in PER_PHASE.get(victim, {}).items():
        local, adding, opening, update = (number(value, 4) for value in phases)
        lines.append(
            f"paper 000, Table 5, {name}, 1024 bit, ML-1M: local update with encryption {local} s, "
            f"aggregation {adding} s, decryption {opening} s, server update {update} s"
        )
    return lines
