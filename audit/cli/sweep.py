"""``factorleak sweep``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from audit.cli.on_recording import TranscriptOption, TruthOption, on_recording
from audit.cli.options import (
    ALL_CORES,
    ComponentsOption,
    DistributedOption,
    JobsOption,
    changed,
    completing,
    examples,
    from_plan,
    refuse_idle,
    workers,
)
from audit.cli.output import Output, accounts_as_json, show_accounts
from audit.experiments.plan import Sweep
from victims.common.files import refuse_unwritable

EXAMPLES = examples(
    "factorleak sweep --update sgd --scales 0,1,10 --rounds 1,5",
    "factorleak sweep --data ml-100k --attack likelihood --attack spectral --jobs 2",
    "factorleak sweep --transcript RECORDING --defense top-k --scales 0.5,0.1,0.02",
)

LAPLACE = "laplace"
REDRAWN = 60.0  # seconds between two times that the figures are drawn of what is finished


@from_plan(Sweep)
def sweep(
    *,
    output: Output,
    out: Annotated[Path, typer.Option(help="Directory for results and figures; cells in it are reused.")] = (
        Path("SWEEP")
    ),
    plan: Sweep,
    transcript: TranscriptOption = None,
    truth: TruthOption = None,
    defense: Annotated[
        str,
        typer.Option(
            help="With --transcript: laplace, gaussian, clip, top-k, quantise, round, unrated-sampling or "
            "secure-sum, with other options if wanted; --scales are values of the one that says how strong "
            "it is.",
            autocompletion=completing("defenses"),
        ),
    ] = LAPLACE,
    adversary: Annotated[
        str, typer.Option(help="With --transcript: whose view is attacked. Default: who recorded.")
    ] = "",
    ceiling: Annotated[
        bool,
        typer.Option(
            "--ceiling",
            help="With --transcript: the highest reachable accuracy, too, a minute for each scale.",
        ),
    ] = False,
    published: Annotated[
        bool,
        typer.Option(
            help="Draw Figures 1 to 3 of Mai & Pang 2022 as well; name published and guess-uniform as "
            "attacks."
        ),
    ] = False,
    jobs: JobsOption = ALL_CORES,
    distributed: DistributedOption = None,
    item_components: ComponentsOption = None,
) -> None:
    """Accuracy against noise scale and rounds watched: rows, figures, and how strong the attack is."""
    if transcript is not None:
        shared = ("attacks", "scales", "rounds", "sample", "seed", "attack_options")
        refuse_idle(
            "says what to run, and with --transcript nothing is run",
            **changed(plan, *shared), published=published, item_components=item_components,
            distributed=distributed,
        )  # fmt: skip
        from audit.experiments.recorded_defenses import swept

        given = swept(plan, transcript, truth, defense=defense, adversary=adversary, ceiling=ceiling)
        on_recording(output, given, out, jobs, swept=defense)
        return
    refuse_idle(
        "is about a recording, which --transcript names (compare takes defenses of victims)",
        truth=truth, adversary=adversary, defense=defense != LAPLACE, ceiling=ceiling,
    )  # fmt: skip
    from audit.accounts import accounts_of
    from audit.experiments.sweep import EXPERIMENT, as_named, settled, source_of
    from audit.factories import make_defenses
    from reports.figures import sweep_figures
    from reports.paper_figures import published_figures
    from reports.tables import sweep_table

    who = workers(jobs, distributed)
    refuse_unwritable(out)
    plan = settled(plan)
    chosen = plan.attacks
    start = time.perf_counter()
    ratings = output.load(plan.data, item_components)

    def draw(finished: list[dict[str, Any]]) -> list[Path]:
        return sweep_figures(as_named(plan, finished), out, *chosen)

    rows = output.grid("sweep", EXPERIMENT, plan, ratings, out, who, _every(REDRAWN, draw))
    output.show(ratings.describe())
    title = f"Ratings that {chosen[0]} reads from {plan.victim} under Laplace noise"
    output.show(sweep_table(as_named(plan, rows), title, chosen[0]))
    accounts = accounts_of(
        plan.victim,
        [
            source_of(plan, update, weighting).make()
            for update in plan.updates
            for weighting in plan.weightings
        ],
        [one for scale in [max(plan.scales)] if scale for one in make_defenses(f"laplace:scale={scale}")],
        ratings,
        n_rounds=plan.first + max(plan.rounds),
        seed=plan.seed,
        on_received=False,
    )
    show_accounts(output, accounts)
    figures = draw(rows)
    if published:
        figures += published_figures(rows, out)
    for path in figures:
        output.show(f"figure {path}")
    seconds = time.perf_counter() - start
    output.results(rows, out, seconds, figures=figures, accounts=accounts_as_json(accounts))


def _every(
    seconds: float, do: Callable[[list[dict[str, Any]]], object]
) -> Callable[[list[dict[str, Any]]], None]:
    """Do something with all rows so far, now and then as rows come in."""
    rows: list[dict[str, Any]] = []
    last = time.monotonic()

    def take(of_cell: list[dict[str, Any]]) -> None:
        nonlocal last
        rows.extend(of_cell)
        if time.monotonic() - last > seconds:
            do(rows)
            last = time.monotonic()

    return take
