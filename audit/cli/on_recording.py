"""``sweep`` and ``compare`` with ``--transcript``: defenses applied to recorded uploads."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.build import as_records
from audit.cli.output import Output
from victims.common.files import refuse_unwritable

if TYPE_CHECKING:
    from audit.cli.build import Build
    from audit.experiments.plan import RecordedDefenses

TranscriptOption = Annotated[
    Path | None,
    typer.Option(help="Apply the defenses to the uploads of this recording, of any origin; nothing is run."),
]
TruthOption = Annotated[
    Path | None, typer.Option(help="With --transcript. Default: the file beside it, if there is one.")
]
NO_TRUTH = (
    "There is no truth to score against: clients_answered is what attacks claim, agreement how many of their "
    "answers are those of the undefended recording, right or wrong."
)


def on_recording(
    output: Output, plan: RecordedDefenses, out: Path, jobs: int, build: Build | None = None, swept: str = ""
) -> None:
    """Run a settled plan, and show what each defense leaves and costs; ``swept`` draws strengths of it."""
    from audit.experiments.recorded_defenses import EXPERIMENT, NOT_SIMULATED, seen
    from reports.figures import comparison_figure, strength_figures
    from reports.tables import recorded_table
    from reports.verdicts import DISTORTION

    refuse_unwritable(out)
    start = time.perf_counter()
    rows = output.grid("sweep" if swept else "compare", EXPERIMENT, plan, plan, out, jobs)
    output.show(repr(seen(plan).transcript))
    title = f"What the {plan.adversary} reads from {plan.transcript.name} under {swept or 'defenses'}"
    output.show(recorded_table(rows, title))
    output.failures(rows)
    notes = [NOT_SIMULATED, *([] if plan.truth is not None else [NO_TRUTH])]
    for note in notes:
        output.show(note)
    if swept or plan.truth is None:
        figures = strength_figures(rows, out, swept or "defenses")
    else:
        figures = comparison_figure(rows, out, DISTORTION)
    for path in figures:
        output.show(f"figure {path}")
    changes = [] if build is None else build.changes(rows)
    if build is not None:
        build.show(output, changes)
    seconds = time.perf_counter() - start
    output.results(rows, out, seconds, figures=figures, notes=notes, changes=as_records(changes))
    if build is not None:
        build.judge(rows, changes)
