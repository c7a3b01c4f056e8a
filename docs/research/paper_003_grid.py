"""The rows of Table 2's grid at one alpha: ``python docs/research/paper_003_grid.py FOLDER...``.

Each folder is one of ``papers predict --victim pdmfrec``. Writes ``rows/paper-003-grid.csv``: rate and
rounds of least validation MAE, and the distance to the published numbers.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pandas as pd

from reports.paper_tables import PDMFREC, chosen, parts_frame

ROWS = Path(__file__).parent / "rows"
HEAD = (
    "", "MAE", "published", "distance", "RMSE", "published RMSE", "distance of RMSE",
    "rates tried", "rounds up to", "rates chosen", "rounds chosen",
)  # fmt: skip


def spread(values: pd.Series) -> str:
    """Mean and standard deviation over rotations."""
    return f"{values.mean():.4f} ({values.std():.4f})"


def several(values: pd.Series) -> str:
    """Distinct numbers, ascending."""
    return ", ".join(f"{value:g}" for value in sorted(values.unique()))


def main(*folders: str) -> None:
    """Write the table."""
    rows = [row for folder in folders for row in json.loads((Path(folder) / "results.json").read_text())]
    frame = parts_frame(rows)
    found, lines = chosen(frame), []
    for method, errors in found.groupby("method", sort=False):
        published = PDMFREC[str(method)]
        cells = []
        for name, number in zip(("mae", "rmse"), published, strict=True):
            cells += [spread(errors[name]), f"{number:.4f}", f"{errors[name].mean() - number:+.4f}"]
        tried = frame[frame["method"] == method]
        last = f"{tried['rounds'].max():g}"
        lines.append(
            [
                str(method),
                *cells,
                several(tried["rate"]),
                last,
                several(errors["rate"]),
                several(errors["rounds"]),
            ]
        )
    mean = found.drop_duplicates("seed")
    lines.append(
        ["training mean", spread(mean["mean_mae"]), "-", "-", spread(mean["mean_rmse"]), "-", "-", *[""] * 4]
    )
    with (ROWS / "paper-003-grid.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *lines])


if __name__ == "__main__":
    main(*sys.argv[1:])
