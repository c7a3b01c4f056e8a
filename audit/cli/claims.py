"""``factorleak claims``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.option_values import names, parse_floats
from audit.cli.options import (
    DataOption,
    DistributedOption,
    EstimateOption,
    FailOnOption,
    JobsOption,
    JsonOption,
    QuietOption,
    SeedOption,
    VictimOptions,
    examples,
    workers,
)
from audit.cli.output import Output, judge
from victims.common.files import refuse_unwritable

EXAMPLES = examples(
    "factorleak claims --protocol hdpmf --noise once --noise fresh --epochs 20",
    "factorleak claims --data filmtrust --epsilon 0.1 --epsilon 1 --fail-on refuted",
)

EPSILONS = ["1"]


def claims(
    data: DataOption = "synthetic",
    out: Annotated[Path, typer.Option(help="Directory for results; cells in it are reused.")] = Path(
        "CLAIMS"
    ),
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            help="hdpmf, pdpmf, dpmf, mf, hdpmf-r, each with an option if wanted, as hdpmf:mixing=draw. "
            "Repeatable; the first four by default."
        ),
    ] = None,
    noise: Annotated[
        list[str] | None, typer.Option(help="once, fresh, composed. Repeatable; all by default.")
    ] = None,
    epsilons: Annotated[
        list[str],
        typer.Option(
            "--epsilon",
            "--epsilons",
            help="Largest budgets, as 0.1,1,10; several draw the figure. Repeatable.",
        ),
    ] = EPSILONS,
    rounds: Annotated[int, typer.Option(help="Rounds that the recommender watches, from the first.")] = 12,
    epochs: Annotated[int, typer.Option(help="Epochs of the whole training.")] = 100,
    repetitions: Annotated[
        int,
        typer.Option(help="Runs in each of two worlds for a second bound, of one client; 0: none."),
    ] = 0,
    bounds: Annotated[
        bool, typer.Option(help="Plant ratings for lower bounds; without, what is read and the error alone.")
    ] = True,
    jobs: JobsOption = -1,
    distributed: DistributedOption = None,
    fail_on: FailOnOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    estimate: EstimateOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """A claimed epsilon against what the recommender sees, reads and can prove."""
    from audit.cli.gate import OF_CLAIMS, Vocabulary, parse
    from audit.epsilon.claim_cells import PROTOCOLS, Plan
    from audit.epsilon.claims import EXPERIMENT, budget_quantiles, settled
    from audit.option_texts import parse_options
    from defenses.noise.objective_noise import NOISES
    from reports.claims import budgets_line, claims_table
    from reports.claims_figure import claims_figure

    output = Output(quiet, as_json, estimate)
    refuse_unwritable(out)
    who = workers(jobs, distributed)
    plan = settled(
        Plan(
            protocols=names(protocol) or PROTOCOLS,
            noises=names(noise) or NOISES,
            epsilons=parse_floats("--epsilons", epsilons, "0.1,1,10"),
            data=data,
            rounds=rounds,
            epochs=epochs,
            repetitions=repetitions,
            bounds=bounds,
            seed=seed,
            victim_options=parse_options(set_ or []),
        )
    )
    bars = parse(fail_on or [], Vocabulary(("leak", "refuted"), OF_CLAIMS, {"victim": plan.protocols}))
    start = time.perf_counter()
    ratings = output.load(data)
    rows = output.grid("claims", EXPERIMENT, plan, ratings, out, who)
    output.show(ratings.describe())
    for epsilon in plan.epsilons:
        output.show(budgets_line(budget_quantiles(epsilon, ratings, seed), epsilon))
    output.show(claims_table(rows, f"Claims and what the recommender sees in {rounds} rounds"))
    figures = claims_figure(rows, out) if len(plan.epsilons) > 1 else []
    for path in figures:
        output.show(f"figure {path}")
    output.results(rows, out, time.perf_counter() - start, figures=figures)
    judge(bars, rows)
