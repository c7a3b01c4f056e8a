"""Tables and figures of Yang et al.'s page: ``python docs/research/paper_004.py FILMTRUST EPINIONS``.

Both are folders of ``papers predict --victim dpmf-yang``. Writes ``rows/paper-004-*.csv`` of what they
hold, and ``figures/paper-004.csv``, RMSE of every system, seed, K and round, which ``draw.py`` draws. Given
one folder, of ``--vary weights``, it writes the table of Figure 5 for its data alone.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reports.paper_tables import (
    error_table,
    last_rounds,
    mean_and_interval,
    over_weights,
    recommendation_table,
    trusted_frame,
)
from reports.verdicts import Row

HERE = Path(__file__).parent
SHOWN = ("rmse_unit", "precision_at_5_implicit", "recall_at_5_implicit")


def write(name: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write one table."""
    with (HERE / "rows" / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def recommendation(name: str, rows: Sequence[Row], data: str) -> None:
    """Table 4, with the number of seeds behind each line."""
    sheet = recommendation_table(rows, data, "")
    frame = last_rounds(trusted_frame(rows))
    ran = frame[frame["status"] == "ran"]
    seeds = ran[ran["metric"] == SHOWN[1]].groupby(["K", "system"])["seed"].nunique()
    of_size = seeds.groupby("K").max()
    head = (
        "K",
        "system",
        "P@5 implicit",
        "R@5 implicit",
        "P@5 all",
        "R@5 all",
        "paper P@5",
        "paper R@5",
        "seeds",
    )
    out = []
    for row in sheet.rows:
        known = seeds.get((int(row[0]), row[1]), of_size[int(row[0])] if row[1] == "popularity" else 0)
        if known:
            out.append([*row, str(known)])
    write(name, head, out)


def errors(name: str, rows: Sequence[Row]) -> None:
    """RMSE after the last round."""
    sheet = error_table(rows, "").without("varied")
    write(name, sheet.columns, [row for row in sheet.rows if row[-1] != "0"])


def rounds(name: str, rows: Sequence[Row]) -> None:
    """RMSE and lists after every measured round."""
    frame = trusted_frame(rows)
    frame = frame[(frame["rounds"] > 0) & (frame["status"] == "ran")]
    out = []
    for (size, number), some in frame.groupby(["K", "rounds"]):
        cells = [str(size), f"{number:g}"]
        for system, metric, column in (
            ("dpmf-yang", SHOWN[0], "value"),
            ("dmf", SHOWN[0], "value"),
            ("dpmf-yang", SHOWN[0], "baseline"),
            ("dpmf-yang", SHOWN[1], "value"),
            ("dpmf-yang", SHOWN[2], "value"),
        ):
            here = some[(some["system"] == system) & (some["metric"] == metric)]
            cells.append(mean_and_interval(here[column]))
        out.append(cells)
    head = (
        "K",
        "rounds",
        "dpmf-yang RMSE",
        "dmf RMSE",
        "constant mean",
        "dpmf-yang P@5 implicit",
        "R@5 implicit",
    )
    write(name, head, out)


def weights(folder: str) -> None:
    """RMSE over lambda and W after the last round, of one seed."""
    frame = trusted_frame(json.loads((Path(folder) / "results.json").read_text()))
    wide = over_weights(frame[(frame["metric"] == SHOWN[0]) & (frame["status"] == "ran")])
    end = "-epinions" if "epinions" in frame["data"].iloc[0] else ""
    rows = [[f"{share:g}", *(f"{value:.4f}" for value in row)] for share, *row in wide.itertuples()]
    write(f"paper-004-weights{end}", ["lambda", *(f"W = {weight:g}" for weight in wide.columns)], rows)


def figures(results: dict[str, Sequence[Row]]) -> None:
    """What the figures are drawn of."""
    parts = []
    for data, rows in results.items():
        frame = pd.DataFrame(rows)
        kept = frame[(frame["metric"] == SHOWN[0]) & (frame["status"] == "ran")]
        kept = kept[["victim", "rounds", "seed", "metric", "value", "baseline", "status"]]
        parts.append(kept.assign(data=data, value=kept["value"].round(6), baseline=kept["baseline"].round(6)))
    pd.concat(parts).to_csv(HERE / "figures" / "paper-004.csv", index=False, lineterminator="\n")


def size_of(row: Row) -> int:
    """The number of factors that a row is about."""
    return int(str(row["victim"]).split("K=")[1].split()[0])


def main(filmtrust: str, epinions: str) -> None:
    """Write everything."""
    results = {
        data: json.loads((Path(folder) / "results.json").read_text())
        for data, folder in (("filmtrust", filmtrust), ("epinions", epinions))
    }
    for data, end in (("filmtrust", ""), ("epinions", "-epinions")):
        rows = results[data] = sorted(results[data], key=size_of)
        recommendation(f"paper-004{end}" if end else "paper-004-recommendation", rows, data)
        errors(f"paper-004{end}-error", rows)
        rounds(f"paper-004{end}-rounds", rows)
    figures(results)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(*sys.argv[1:])
    else:
        weights(*sys.argv[1:])
