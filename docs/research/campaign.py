"""The table of a campaign: ``python docs/research/campaign.py RESULTS``, a folder that ``compare`` wrote.

Writes ``rows/campaign.csv``: for each system the verdict of its worst tested adversary, the strongest answer
about ratings and about the rated set over all adversaries, the worst-off tenth, usefulness on both axes, and
who was not tested. A system without any row of an attack is not there.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from audit.experiments.results import file_of, rows_of
from reports.page.frontier import AXES, frontier_frame
from reports.page.systems import systems_of
from reports.verdicts import NOT_TESTED, WORST_OFF, Row, System, best, number, of_group

ROWS = Path(__file__).parent / "rows" / "campaign.csv"
READ = ("rated_rating_accuracy", "rated_set_auc")
HEAD = (
    "victim", "defense", "verdict", "ratings right (best guess)", "worst-off tenth (its guess)",
    "rated set, AUC (best guess)", "usefulness by ranking (sd)", "by rating error (sd)", "not tested",
)  # fmt: skip


def line(system: System, useful: dict[tuple[str, str], str]) -> list[str]:
    """One system in words."""
    attacked = [row for row in system.rows if isinstance(row["adversary"], str)]
    strongest = {metric: best(attacked, metric) for metric in READ}
    ratings = strongest[READ[0]]
    worst = None if ratings is None else of_group(ratings, attacked, WORST_OFF)
    first = system.rows[0]
    untested = [who for one in system.adversaries if one.verdict == NOT_TESTED for who in one.alike]
    return [
        str(first["victim"]),
        str(first["defense"]),
        system.verdict,
        _read(ratings),
        _tenth(worst),
        _read(strongest[READ[1]]),
        *(useful.get((system.short, axis), "-") for axis in AXES),
        ", ".join(untested) or "-",
    ]


def _read(row: Row | None) -> str:
    if row is None:
        return NOT_TESTED
    interval = f"[{number(row['ci_low'])}, {number(row['ci_high'])}]"
    verdict = f"{row['verdict']}, {row['adversary']}, `{row['attack']}`"
    return f"{number(row['value'])} {interval} ({number(row['baseline'])}) {verdict}"


def _tenth(row: Row | None) -> str:
    return "-" if row is None else f"{number(row['value'])} ({number(row['baseline'])})"


def main(results: Path) -> None:
    """Write the rows."""
    systems = [one for one in systems_of(rows_of(file_of(results))) if one.adversaries]
    frame = frontier_frame(systems)
    useful = {
        (one["system"], one["axis"]): f"{one['useful']:.3f} ({one['spread']:.3f})"
        for one in frame.to_dict("records")
    }
    with ROWS.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(HEAD)
        out.writerows(line(one, useful) for one in systems)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
