"""``factorleak compare campaign.toml``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from audit.cli.build import as_records, build_of
from audit.cli.output import Output
from victims.common.files import refuse_unwritable

if TYPE_CHECKING:
    from audit.campaigns.matrix import Matrix
    from audit.cli.gate import Vocabulary
    from audit.experiments.cluster import Cluster
    from audit.experiments.results import Row


def run_campaign(
    path: Path,
    out: Path,
    jobs: int | Cluster,
    fail_on: list[str] | None,
    against: Path | None,
    junit: Path | None,
    output: Output,
    *,
    estimate: bool = False,
    dry_run: bool = False,
) -> None:
    """Run a campaign, write its page, and judge it."""
    from audit.actions import report
    from audit.campaigns.campaign_file import read_campaign
    from audit.campaigns.campaign_plans import load_data, matrix_of
    from audit.campaigns.matrix import counts_of, listed, run
    from audit.campaigns.parts import PROCEDURE
    from audit.experiments.estimates import estimated, try_out
    from reports.words import worse_than_mean

    content = read_campaign(path)
    matrix = matrix_of(content, path.parent)
    build = build_of(fail_on, _vocabulary(matrix), against, junit)
    refuse_unwritable(out)
    start = time.perf_counter()
    data = load_data(content, path.parent)
    found = listed(matrix, data, out)
    cells, counts = found.cells, counts_of(found.cells)
    words = ", ".join(f"{count} of {name}" for name, count in counts.items() if name != "kept")
    output.show(f"{path.name}: {len(cells)} cells ({words}), {counts['kept']} of them kept from before")
    for line in dict.fromkeys(map(_left_out, found.excluded)):
        output.show(line)
    if estimate:
        with output.progress("trial") as update_bar:
            try_out(cells, PROCEDURE, data, update_bar)
    expected = estimated(cells, jobs)
    if estimate or not expected.unknown:
        output.show(str(expected))
    if dry_run:
        output.finish({"cells": len(cells), **counts, **(expected.record() if estimate else {})})
        return
    with output.progress("compare") as update_bar:
        rows = run(found, data, out, jobs=jobs, report=update_bar)
    changed = build.changes(rows)
    build.show(output, changed)
    told = as_records(changed)
    taken = time.perf_counter() - start
    notes = worse_than_mean(rows)
    for note in notes:
        output.show(f"note: {note}")
    output.results(rows, out, taken, None, notes=notes, changes=told, cells=len(cells), **counts)
    page, files = report(out, title=content.title)
    for system in page.systems:
        output.show(system.sentence)
    output.show(f"page {files[0]}")
    build.judge(rows, changed)


def _left_out(row: Row) -> str:
    """What is known not to run, in words."""
    return f"not run: {row['victim']}, {row['defense']}: {row['reason']}"


def _vocabulary(matrix: Matrix) -> Vocabulary:
    """What bars may name; which defenses and adversaries there are is known before where all is compared."""
    from audit.campaigns.parts import COMPARE
    from audit.cli.gate import OF_ATTACKS, OF_CLAIMS, OF_COST, OF_QUALITY, Vocabulary

    values = (*OF_ATTACKS, *OF_QUALITY, *OF_COST)
    if any(part.preset != COMPARE for part in matrix.parts):
        return Vocabulary(("leak", "refuted"), (*values, *OF_CLAIMS))
    plans = [part.plan for part in matrix.parts]
    columns = {
        "defense": {defense for plan in plans for defense in plan.defenses},
        "adversary": {who for plan in plans for who in plan.adversaries},
    }
    return Vocabulary(values=values, columns=columns)
