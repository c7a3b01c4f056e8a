"""The ledger of measurements: a line for each name and run, in ``docs/research/rows/speed-ledger.csv``."""

from __future__ import annotations

import csv
import os
import platform
import re
import subprocess
from pathlib import Path

from tests.benchmarks.timing import Line

LEDGER = Path(__file__).parents[2] / "docs" / "research" / "rows" / "speed-ledger.csv"
HEAD = ("commit", "machine", "ratings", "measured", "s", "floor: s", "ratio", "MB above")


def commit() -> str:
    """Of the checkout; ends in ``+`` where anything but the ledger is not committed."""
    folder = LEDGER.parents[3]
    others = ["status", "--porcelain", "--", ".", f":!{LEDGER.relative_to(folder)}"]
    try:
        known, edited = (
            subprocess.check_output(["git", *asked], cwd=folder, text=True, stderr=subprocess.DEVNULL).strip()
            for asked in (["rev-parse", "--short=10", "HEAD"], others)
        )
        return known + "+" * bool(edited)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> str:
    """The machine in words."""
    try:
        clock = re.search(r"cpu MHz\s*: ([\d.]+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        clock = None
    parts = [f"{os.cpu_count()} cores", *([f"{float(clock[1]) / 1000:.1f} GHz"] if clock else [])]
    return ", ".join([*parts, f"Python {platform.python_version()}"])


def last(ratings: str) -> dict[str, dict[str, str]]:
    """The newest row of each name, of runs on some ratings."""
    if not LEDGER.exists():
        return {}
    with LEDGER.open(newline="") as file:
        return {row["measured"]: row for row in csv.DictReader(file) if row["ratings"] == ratings}


def row_of(line: Line, *where: str) -> tuple[str, ...]:
    """A line as it is noted; of which commit, machine and ratings."""
    ratio, memory = (
        f"{line.seconds / line.floor:.1f}",
        "" if line.megabytes is None else f"{line.megabytes:.0f}",
    )
    numbers = (f"{line.seconds:.3g}", f"{line.floor:.3g}", ratio, memory)
    return (*where, line.name, *numbers)


def note(rows: list[tuple[str, ...]]) -> None:
    """Append a run."""
    new = not LEDGER.exists()
    with LEDGER.open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerows([HEAD, *rows] if new else rows)
