"""``factorleak papers quality``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import (
    ComponentsOption,
    DataOption,
    DistributedOption,
    EstimateOption,
    JobsOption,
    JsonOption,
    PreferredWeightingOption,
    QuietOption,
    SeedOption,
    SplitOption,
    TagsOption,
    UpdateOption,
    VictimOption,
    VictimOptions,
    completing,
    examples,
    workers,
)
from audit.cli.output import Output
from audit.option_texts import names
from victims.common.files import refuse_unwritable

EXAMPLES = examples(
    "factorleak papers quality --rounds 50 --runs 2",
    "factorleak papers quality --data ml-100k --defense privmvmf --scenario existing --scenario 'new user'",
)


def quality(
    out: Annotated[Path, typer.Option(help="Directory for results; cells in it are reused.")] = Path(
        "QUALITY"
    ),
    data: DataOption = "synthetic",
    defense: Annotated[
        str,
        typer.Option(
            help="As for compare; encryption is replaced by its ideal stand-in.",
            autocompletion=completing("defenses"),
        ),
    ] = "privmvmf",
    victim: VictimOption = "fedmvmf",
    update: UpdateOption = None,
    weighting: PreferredWeightingOption = None,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = 200,
    runs: Annotated[int, typer.Option(help="Seeds of start, split and sample.")] = 5,
    scenario: Annotated[
        list[str] | None, typer.Option(help="existing, 'new user' or 'new item'. Repeatable; all by default.")
    ] = None,
    k: Annotated[int, typer.Option("--k", help="Items that are recommended to a user.")] = 10,
    relevant: Annotated[float, typer.Option(help="Smallest rating that counts as relevant, stars.")] = 4.0,
    split: SplitOption = "random",
    jobs: JobsOption = -1,
    distributed: DistributedOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    item_tags: TagsOption = None,
    item_components: ComponentsOption = None,
    estimate: EstimateOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Ranking quality with and without encryption, for known and new users and items."""
    from audit.option_texts import parse_options
    from audit.papers.ranking_quality import EXPERIMENT, Plan, settled, with_popularity
    from reports.tables import quality_table
    from reports.words import worse_than_mean
    from victims.evaluation.ranking import SCENARIOS, Cut

    output = Output(quiet, as_json, estimate)
    who = workers(jobs, distributed)
    refuse_unwritable(out)
    plan = settled(
        Plan(
            victim=victim,
            data=data,
            update=update or "",
            weighting=weighting or "",
            defense=defense,
            rounds=rounds,
            runs=runs,
            scenarios=names(scenario) or SCENARIOS,
            cut=Cut(k, relevant),
            seed=seed,
            split=split,
            victim_options=parse_options(set_ or []),
        )
    )
    start = time.perf_counter()
    ratings = output.load(data, item_components, item_tags=item_tags)
    found = output.grid("quality", EXPERIMENT, plan, ratings, out, who)
    rows = with_popularity(found)
    output.show(ratings.describe())
    title = (
        f"Ranking at {k}, relevant {relevant:g}, under {defense}, {rounds} rounds, mean of {runs} runs (sd)"
    )
    output.show(quality_table(rows, title))
    notes = worse_than_mean(found)
    for note in notes:
        output.show(f"note: {note}")
    output.failures(found)
    output.results(found, out, time.perf_counter() - start, told=rows, notes=notes)
