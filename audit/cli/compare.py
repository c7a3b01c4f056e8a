"""``factorleak compare``."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.build import AgainstOption, JunitOption, as_records, build_of
from audit.cli.campaign import run_campaign
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
from audit.experiments.plan import Comparison
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable

EXAMPLES = examples(
    "factorleak compare --defense none --defense laplace:scale=2 --defense privmvmf",
    "factorleak compare --defense none --defense gaussian:sigma=1 --adversary server --runs 1",
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
    fail_on: FailOnOption = None,
    against: AgainstOption = None,
    junit: JunitOption = None,
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
            **changed(plan), item_components=item_components,
        )  # fmt: skip
        who = workers(jobs, distributed)
        run_campaign(campaign, out, who, fail_on, against, junit, output, estimate=estimate, dry_run=dry_run)
        return
    if dry_run:
        raise InputError("--dry-run is about the cells of a campaign file; name one")
    who = workers(jobs, distributed)
    from audit.cli.gate import OF_ATTACKS, OF_COST, OF_QUALITY, Vocabulary
    from audit.experiments.comparison import EXPERIMENT, settled, short_of_rounds
    from audit.experiments.hints import lists_named_to
    from reports.figures import comparison_figure
    from reports.tables import comparison_table, cost_of_defenses_table
    from reports.words import worse_than_mean

    refuse_unwritable(out)
    plan = settled(replace(plan, defenses=(*plan.defenses, *(more or []))))
    notes = short_of_rounds(plan)
    columns = {"defense": plan.defenses, "adversary": plan.adversaries}
    vocabulary = Vocabulary(values=(*OF_ATTACKS, *OF_QUALITY, *OF_COST), columns=columns)
    build = build_of(fail_on, vocabulary, against, junit)
    start = time.perf_counter()
    ratings = output.load(plan.data, item_components)
    rows = output.grid("compare", EXPERIMENT, plan, ratings, out, who)
    output.show(ratings.describe())
    scenario, rounds = f"{plan.update}/{plan.weighting}", f"rounds {plan.rounds[0]} to {plan.rounds[-1]}"
    title = f"Defenses of {plan.victim}, {scenario}, {rounds}"
    output.show(comparison_table(rows, title, lists_named_to(plan, ratings)))
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


def _campaign_of(words: list[str]) -> Path | None:
    """The campaign file among the arguments; None where they are defenses."""
    files = [word for word in words if word.endswith(".toml")]
    if files and len(words) > 1:
        raise InputError(f"a campaign file must stand alone, got {' '.join(words)}; it names its defenses")
    return Path(files[0]) if files else None
