"""``factorleak claims``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import (
    ALL_CORES,
    DistributedOption,
    FailOnOption,
    JobsOption,
    examples,
    from_plan,
    workers,
)
from audit.cli.output import Output, judge
from audit.experiments.plan import Claims
from victims.common.files import refuse_unwritable

EXAMPLES = examples(
    "factorleak claims --protocol hdpmf --noise once --noise fresh --epochs 20",
    "factorleak claims --data filmtrust --epsilon 0.1 --epsilon 1 --fail-on refuted",
)


@from_plan(Claims)
def claims(
    *,
    output: Output,
    out: Annotated[Path, typer.Option(help="Directory for results; cells in it are reused.")] = Path(
        "CLAIMS"
    ),
    plan: Claims,
    jobs: JobsOption = ALL_CORES,
    distributed: DistributedOption = None,
    fail_on: FailOnOption = None,
) -> None:
    """A claimed epsilon against what the recommender sees, reads and can prove."""
    from audit.cli.gate import OF_CLAIMS, Vocabulary, parse
    from audit.epsilon.claims import EXPERIMENT, budget_quantiles, settled
    from reports.figures import claims_figure
    from reports.tables import claims_table
    from reports.words import budgets_line

    refuse_unwritable(out)
    who = workers(jobs, distributed)
    plan = settled(plan)
    bars = parse(fail_on or [], Vocabulary(("leak", "refuted"), OF_CLAIMS, {"victim": plan.protocols}))
    start = time.perf_counter()
    ratings = output.load(plan.data)
    rows = output.grid("claims", EXPERIMENT, plan, ratings, out, who)
    output.show(ratings.describe())
    for epsilon in plan.epsilons:
        output.show(budgets_line(budget_quantiles(epsilon, ratings, plan.seed), epsilon))
    output.show(claims_table(rows, f"Claims and what the recommender sees in {plan.rounds} rounds"))
    figures = claims_figure(rows, out) if len(plan.epsilons) > 1 else []
    for path in figures:
        output.show(f"figure {path}")
    output.results(rows, out, time.perf_counter() - start, figures=figures)
    judge(bars, rows)
