"""Write the results pages from the committed rows: ``python docs/research/make.py``.

A page of ``source`` holds text, and for each table a line ``<!-- table: NAME -->``. Its rows are
``rows/NAME.csv``, and ``tables.toml`` says by which command, at which commit, seed and on which machine they
were measured, and of which command and commit a figure is. No number of a table is typed into a page.
``<!-- ledger: RATINGS -->`` stands for what ``python -m tests.benchmarks --note`` measured on some ratings.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MARK = re.compile(r"^<!-- table: ([a-z0-9-]+) -->$")
LEDGER = re.compile(r"^<!-- ledger: (.+) -->$")
SHOWN = 5  # runs, the last ones
FIGURE = re.compile(r"^!\[.*\]\(.*/reports/gallery/([\w-]+)\.png\)$")
WORDS = {  # rows say what the program that made them printed; pages have the field's words
    r"\bbest guess\b": "baseline",
    r"\b(its )?guess(?=[ ),]|$)": r"\1baseline",
    r"\bread by\b": "recovered by",
    r"\bratings read\b": "ratings recovered",
    r"\bwhat it reads\b": "recovered",
    r"^told$": "known",
    r"^read$": "recovered",
    r"^switches$": "options",
    r"\blengths of lists\b": "sizes of item sets",
    r"\b(LEAK: )lists\b": r"\1item sets",
    r"\blists say nothing\b": "nothing",
}
SAID = "<!-- written by make.py from source/ and rows/; edit those -->\n"


def said(cell: str) -> str:
    """A cell in the handbook's words."""
    for was, now in WORDS.items():
        cell = re.sub(was, now, cell)
    return cell


def table(name: str, origin: dict[str, str]) -> Iterator[str]:
    """The lines of one table: its rows, and where they come from."""
    with (HERE / "rows" / f"{name}.csv").open(newline="") as file:
        head, *rows = ([said(cell) for cell in row] for row in csv.reader(file))
    if any(len(row) != len(head) for row in rows):
        raise SystemExit(f"{name}.csv must have as many cells in each row as in its head; quote commas")
    yield f"**{origin['title']}**"
    yield ""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""
    yield (
        f"*Rows: `rows/{name}.csv`. Command: `{origin['command']}`. Commit {origin['commit']}, seed "
        f"{origin['seed']}; {origin['hardware']}.*"
    )


def ledger(ratings: str, origin: dict[str, str]) -> Iterator[str]:
    """The last run on some ratings, and the ratios of those before it."""
    runs: dict[str, dict[str, dict[str, str]]] = {}
    with (HERE / "rows" / "speed-ledger.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["ratings"] == ratings:
                runs.setdefault(row["commit"], {})[row["measured"]] = row
    (commit, now), *before = list(reversed(runs.items()))[:SHOWN]
    yield f"| measured | s | floor: s | MB above | ratio |{''.join(f' at {one} |' for one, _ in before)}"
    yield "|---" * (5 + len(before)) + "|"
    for name, row in now.items():
        was = [run[name]["ratio"] if name in run else "" for _, run in before]
        yield f"| {' | '.join([name, row['s'], row['floor: s'], row['MB above'], row['ratio'], *was])} |"
    machine = next(iter(now.values()))["machine"]
    yield ""
    yield (
        f"*Rows: `rows/speed-ledger.csv`, of {ratings}. Command: `{origin['command']}`. Commit {commit}; "
        f"{machine}; {origin['hardware']}.*"
    )


def drawn(line: str, origin: dict[str, str]) -> list[str]:
    """A figure, and where it comes from."""
    return [line, "", f"*Drawn by `{origin['command']}`. Commit {origin['commit']}.*"]


def page(text: str, origins: dict[str, Any]) -> str:
    """A page with its tables in place, and where its tables and figures come from."""
    lines: list[str] = []
    for line in text.splitlines():
        if mark := MARK.match(line):
            lines += table(mark[1], origins[mark[1]])
        elif mark := LEDGER.match(line):
            lines += ledger(mark[1], origins["speed-ledger"])
        elif figure := FIGURE.match(line):
            lines += drawn(line, origins["figures"][figure[1]])
        else:
            lines.append(line)
    return SAID + "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Every results page by its path."""
    origins = tomllib.loads((HERE / "tables.toml").read_text())
    return {
        HERE / source.name: page(source.read_text(), origins)
        for source in sorted((HERE / "source").glob("*.md"))
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
