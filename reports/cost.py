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


def cost_table(rows: Sequence[Row], title: str) -> Table:
    """One line per number of items and system; client phases of the busiest and of the mean client.

    Rows hold ``items``, ``ratings``, ``system``, the phases' ``seconds_...``, ``bytes_sent``,
    ``bytes_sent_mean``, ``ciphertexts``, ``peak_bytes``, ``slowest`` (seconds in paper 001's accounting),
    ``server_share`` (of them, without the transfer: its Figures 2 and 3), the same if the server subtracts
    and by counts, and ``paper`` (its number, or None).
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


def fedmf_paper(items: int, upload: str) -> float | None:
    """Look up the seconds of one iteration in paper 001's Table 1.

    Parameters
    ----------
    items : int
        Most rated ones.
    upload : str
        ``part-text`` or ``full-text``.

    Returns
    -------
    float or None
        None where the table has no such row.
    """
    pair = FEDMF.get(items)
    return None if pair is None else pair[0 if upload == "part-text" else 1]


def privmvmf_lines() -> list[str]:
    """Paper 000's Table 5 in words."""
    lines = []
    for name, phases in PRIVMVMF.items():
        local, adding, opening, update = (number(value, 4) for value in phases)
        lines.append(
            f"paper 000, Table 5, {name}, 1024 bit, ML-1M: local update with encryption {local} s, "
            f"aggregation {adding} s, decryption {opening} s, server update {update} s"
        )
    return lines
