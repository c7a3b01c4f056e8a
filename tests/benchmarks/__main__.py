"""Measure how far each path is from its floor.

    python -m tests.benchmarks [--data FOLDER] [--large] [--note]

Seconds are processor time, the least of some repetitions after one that compiles; floors are measured beside
them in the same process. Beside each ratio stands that of the last run in the ledger; nothing is asserted.

Without ``--data`` the ratings are synthetic, of the size of MovieLens 100K, which takes a minute; those of
MovieLens 1M take 3 GB of disk. ``--large`` records, opens and reads 25 million ratings of 160,000
clients instead. ``--note`` appends to the ledger, ``docs/research/rows/speed-ledger.csv``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks import ledger
from tests.benchmarks.timing import Line


def lines_of(given: argparse.Namespace, folder: Path) -> tuple[str, Iterator[Line]]:
    """What the ratings are called, and what is measured on them."""
    if given.large:
        from tests.benchmarks.large import all_lines as large_lines

        return "synthetic, 25 million", large_lines(folder / "t")
    from tests.benchmarks.lines import all_lines
    from victims.data.loaders import load
    from victims.data.synthetic import Synthetic, generate

    if given.data:
        ratings = load(given.data)
        return ratings.name, all_lines(ratings, folder / "t", quick=False)
    ratings = generate(Synthetic(users=943, items=1682, ratings_per_user=106.0))
    return "synthetic, 100,000", all_lines(ratings, folder / "t", quick=True)


def main() -> None:
    """Measure, print, and note where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="a folder of ratings, such as ../shared/data/ml-1m")
    parser.add_argument("--large", action="store_true", help="25 million ratings; 3 GB of disk")
    parser.add_argument("--note", action="store_true", help="append to the ledger")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        ratings, lines = lines_of(given, Path(folder))
        before, rows = ledger.last(ratings), []
        where = (ledger.commit(), ledger.machine(), ratings)
        print(f"{', '.join(where)}: processor time over its floor")
        for line in lines:
            rows.append(ledger.row_of(line, *where))
            known = before.get(line.name)
            was = f"   {known['ratio']:>7} at {known['commit']}" if known else ""
            print(f"{line.name:40} {line.seconds:9.3f} s {line.seconds / line.floor:9.1f}{was}", flush=True)
    if given.note:
        ledger.note(rows)


if __name__ == "__main__":
    main()
