"""``factorleak compare``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.build import AgainstOption, JunitOption, as_records, build_of
from audit.cli.options import (
    AttacksOption,
    ComponentsOption,
    DataOption,
    FailOnOption,
    JobsOption,
    JsonOption,
    PreferredWeightingOption,
    QuietOption,
    SeedOption,
    UpdateOption,
    UsersOption,
    VictimOption,
    VictimOptions,
    completing,
    examples,
    names,
    parse_rounds,
)
from audit.cli.output import Output
from victims.common.files import refuse_unwritable

EXAMPLES = examples(
    "factorleak compare --defense none --defense laplace:scale=2 --defense privmvmf",
    "factorleak compare --defense none --defense gaussian:sigma=1 --adversary server --runs 1",
)


def compare(
    defenses: Annotated[
        list[str] | None,
        typer.Option(
            "--defense",
            "--defenses",
            help="none, laplace:b=2, paillier, privmvmf, or several together as a+b. Repeatable.",
            autocompletion=completing("defenses"),
        ),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(help="More defenses.", show_default=False)] = None,
    out: Annotated[
        Path, typer.Option(help="Directory for results and the figure; cells in it are reused.")
    ] = (Path("COMPARE")),
    data: DataOption = "synthetic",
    victim: VictimOption = "fedmvmf",
    update: UpdateOption = None,
    weighting: PreferredWeightingOption = None,
    attack: AttacksOption = None,
    adversary: Annotated[
        list[str] | None,
        typer.Option(
            "--adversary",
            "--adversaries",
            help="See `factorleak list adversaries`. Repeatable; five by default.",
            autocompletion=completing("adversaries"),
        ),
    ] = None,
    rounds: Annotated[
        list[str] | None,
        typer.Option(
            "--rounds",
            help="Rounds that the adversaries watch, counted from 0: 4,5 or 0-9. Repeatable. Default: as "
            "many from the first as the adapted attacks use.",
        ),
    ] = None,
    users: UsersOption = 120,
    trained: Annotated[int, typer.Option(min=1, help="Rounds before the ranking is measured.")] = 50,
    runs: Annotated[int, typer.Option(min=1, help="Seeds of the ranking.")] = 3,
    fail_on: FailOnOption = None,
    against: AgainstOption = None,
    junit: JunitOption = None,
    jobs: JobsOption = -1,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    item_components: ComponentsOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Defenses side by side: leakage to each adversary, recommendation quality, cost."""
    from audit.cli.gate import OF_ATTACKS, OF_COST, OF_QUALITY, Vocabulary
    from audit.experiments.compare import ADVERSARIES, Comparison, run, settled, short_of_rounds
    from audit.factories import parse_options
    from audit.requests.grids import scenario_of
    from reports.compare import comparison_table, cost_of_defenses_table
    from reports.compare_figure import comparison_figure

    output = Output(quiet, as_json)
    refuse_unwritable(out)
    update_, weighting_ = scenario_of(victim, update, weighting)
    plan = Comparison(
        defenses=tuple(dict.fromkeys([*(defenses or []), *(more or [])])),
        victim=victim,
        data=data,
        update=update_,
        weighting=weighting_,
        adversaries=names(adversary) or ADVERSARIES,
        attacks=names(attack),
        rounds=tuple(parse_rounds(rounds)) if rounds else (),
        users=users or 120,
        trained=trained,
        runs=runs,
        seed=seed,
        victim_options=parse_options(set_ or []),
    )
    columns = {"defense": plan.defenses, "adversary": plan.adversaries}
    vocabulary = Vocabulary(values=(*OF_ATTACKS, *OF_QUALITY, *OF_COST), columns=columns)
    build = build_of(fail_on, vocabulary, against, junit)
    notes = short_of_rounds(plan)
    watched = settled(plan).rounds
    start = time.perf_counter()
    ratings = output.load(data, item_components)
    with output.progress("compare") as update_bar:
        rows = run(plan, ratings, out, jobs=jobs, report=update_bar)
    output.show(ratings.describe())
    title = f"Defenses of {victim}, {plan.update}/{plan.weighting}, rounds {watched[0]} to {watched[-1]}"
    output.show(comparison_table(rows, title))
    output.show(cost_of_defenses_table(rows, f"What they leave and cost, {trained} rounds of training"))
    for note in notes:
        output.show(f"note: {note}")
    figures = comparison_figure(rows, out)
    for path in figures:
        output.show(f"figure {path}")
    changed = build.changes(rows)
    build.show(output, changed)
    told = as_records(changed)
    output.results(rows, out, time.perf_counter() - start, figures=figures, notes=notes, changes=told)
    build.judge(rows, changed)
