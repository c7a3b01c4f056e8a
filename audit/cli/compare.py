"""``factorleak compare``, of defenses or of a campaign's file."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.build import AgainstOption, AllowOpenOption, Build, JunitOption, as_records, build_of
from audit.cli.on_recording import TranscriptOption, TruthOption, on_recording
from audit.cli.options import (
    ALL_CORES,
    ComponentsOption,
    DistributedOption,
    FailOnOption,
    JobsOption,
    changed,
    examples,
    from_plan,
    refuse_idle,
    workers,
)
from audit.cli.output import Output
from audit.experiments.plan import Comparison, RecordedDefenses
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable

if TYPE_CHECKING:
    from audit.campaigns.matrix import Matrix
    from audit.cli.gate import Vocabulary
    from audit.experiments.results import Row
    from audit.experiments.workers import Cluster


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
    from audit.campaigns.campaign_file import load_data, matrix_of, read_campaign
    from audit.campaigns.matrix import PROCEDURE, counts_of, listed, run
    from audit.experiments.runner import estimated, try_out
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
    output.results(rows, out, taken, None, (), notes=notes, changes=told, cells=len(cells), **counts)
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
    from audit.campaigns.matrix import COMPARE
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


EXAMPLES = examples(
    "factorleak compare --defense none --defense laplace:scale=2 --defense privmvmf",
    "factorleak compare --defense none --defense gaussian:sigma=1 --adversary server --runs 1",
    "factorleak compare none laplace:0.1 top-k:share=0.1,of=rows secure-sum --transcript RECORDING",
    "factorleak compare campaign.toml --dry-run --estimate",
    "factorleak compare campaign.toml --distributed tcp://10.0.0.5:8786",
)


@from_plan(Comparison, estimate=False)
def compare(
    *,
    output: Output,
    out: Annotated[
        Path, typer.Option(help="Directory for results and the figure; cells in it are reused.")
    ] = (Path("COMPARE")),
    plan: Comparison,
    more: Annotated[
        list[str] | None,
        typer.Argument(help="A campaign file (.toml), or more defenses.", show_default=False),
    ] = None,
    transcript: TranscriptOption = None,
    truth: TruthOption = None,
    fail_on: FailOnOption = None,
    against: AgainstOption = None,
    junit: JunitOption = None,
    allow_open: AllowOpenOption = False,
    jobs: JobsOption = ALL_CORES,
    distributed: DistributedOption = None,
    item_components: ComponentsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check a campaign file and count its cells; nothing is run.")
    ] = False,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="Say about how long it will take, from one cell of each kind that was never timed; stop "
            "there, but for a campaign file, which goes on unless --dry-run is given.",
        ),
    ] = False,
) -> None:
    """Defenses side by side: leakage to each adversary, recommendation quality, cost."""
    output = replace(output, estimate=estimate)
    if campaign := _campaign_of(more or []):
        refuse_idle(
            "is said by the campaign file, where it can be written",
            **changed(plan), item_components=item_components, transcript=transcript, truth=truth,
        )  # fmt: skip
        who = workers(jobs, distributed)
        run_campaign(campaign, out, who, fail_on, against, junit, output, estimate=estimate, dry_run=dry_run)
        return
    if dry_run:
        raise InputError("--dry-run is about the cells of a campaign file; name one")
    plan = replace(plan, defenses=(*plan.defenses, *(more or [])))
    if transcript is not None:
        shared = ("defenses", "attacks", "adversaries", "rounds", "seed")
        refuse_idle(
            "says what to run, and with --transcript nothing is run",
            **changed(plan, *shared), item_components=item_components, distributed=distributed,
        )  # fmt: skip
        given, build = _on_recording(plan, transcript, truth, fail_on, against, junit, allow_open)
        on_recording(output, given, out, jobs, build)
        return
    refuse_idle("is the truth of a recording, which --transcript names", truth=truth)
    who = workers(jobs, distributed)
    from audit.cli.gate import OF_ATTACKS, OF_COST, OF_QUALITY, Vocabulary
    from audit.experiments.comparison import EXPERIMENT, settled, short_of_rounds
    from reports.figures import comparison_figure
    from reports.tables import comparison_table, cost_of_defenses_table
    from reports.words import worse_than_mean

    refuse_unwritable(out)
    plan = settled(plan)
    notes = short_of_rounds(plan)
    columns = {"defense": plan.defenses, "adversary": plan.adversaries}
    vocabulary = Vocabulary(values=(*OF_ATTACKS, *OF_QUALITY, *OF_COST), columns=columns)
    build = build_of(fail_on, vocabulary, against, junit, allow_open)
    start = time.perf_counter()
    ratings = output.load(plan.data, item_components)
    rows = output.grid("compare", EXPERIMENT, plan, ratings, out, who)
    output.show(ratings.describe())
    scenario, rounds = f"{plan.update}/{plan.weighting}", f"rounds {plan.rounds[0]} to {plan.rounds[-1]}"
    title = f"Defenses of {plan.victim}, {scenario}, {rounds}"
    output.show(comparison_table(rows, title))
    output.show(cost_of_defenses_table(rows, f"What they leave and cost, {plan.trained} rounds of training"))
    notes = [*notes, *worse_than_mean(rows)]
    for note in notes:
        output.show(f"note: {note}")
    figures = comparison_figure(rows, out)
    for path in figures:
        output.show(f"figure {path}")
    changes = build.changes(rows)
    build.show(output, changes)
    told = as_records(changes)
    output.results(rows, out, time.perf_counter() - start, figures=figures, notes=notes, changes=told)
    build.judge(rows, changes)


def _on_recording(
    plan: Comparison,
    transcript: Path,
    truth: Path | None,
    fail_on: list[str] | None,
    against: Path | None,
    junit: Path | None,
    allow_open: bool,
) -> tuple[RecordedDefenses, Build]:
    """The settled plan of defenses of a recording, and what is held against its rows."""
    from audit.cli.gate import OF_ATTACKS, OF_CLAIMED, Vocabulary
    from audit.experiments.attack_cells import AGREEMENT
    from audit.experiments.recorded_defenses import DISTORTION, compared

    given = compared(plan, transcript, truth)
    columns = {"defense": given.defenses, "adversary": (given.adversary,)}
    values = (*OF_ATTACKS, *OF_CLAIMED, AGREEMENT, DISTORTION)
    return given, build_of(fail_on, Vocabulary(values=values, columns=columns), against, junit, allow_open)


def _campaign_of(words: list[str]) -> Path | None:
    """The campaign file among the arguments; None where they are defenses."""
    files = [word for word in words if word.endswith(".toml")]
    if files and len(words) > 1:
        raise InputError(f"a campaign file must stand alone, got {' '.join(words)}; it names its defenses")
    return Path(files[0]) if files else None
