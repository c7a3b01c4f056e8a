"""``factorleak sweep``."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from audit.cli.accounts import accounts_as_json, show_accounts
from audit.cli.option_values import names, options_by_attack, parse_floats, parse_rounds, texts
from audit.cli.options import (
    ComponentsOption,
    DataOption,
    DistributedOption,
    EstimateOption,
    JobsOption,
    JsonOption,
    OneAttackOption,
    QuietOption,
    SampleOption,
    SeedOption,
    UpdatesOption,
    VictimOption,
    VictimOptions,
    WeightingsOption,
    completing,
    examples,
    workers,
)
from audit.cli.output import Output
from victims.common.files import refuse_unwritable

EXAMPLES = examples(
    "factorleak sweep --update sgd --scales 0,1,10 --rounds 1,5",
    "factorleak sweep --data ml-100k --attack likelihood --attack spectral --jobs 2",
)

REDRAWN = 60.0  # seconds between two times that the figures are drawn of what is finished
ATTACKS, SCALES, WATCHES = ["likelihood,published"], ["0,0.1,0.2,0.5,1,2,5,10"], ["1,5,20"]


def sweep(
    out: Annotated[Path, typer.Option(help="Directory for results and figures; cells in it are reused.")] = (
        Path("SWEEP")
    ),
    data: DataOption = "synthetic",
    victim: VictimOption = "fedmvmf",
    update: UpdatesOption = None,
    weighting: WeightingsOption = None,
    attacks: Annotated[
        list[str],
        typer.Option(
            "--attack",
            "--attacks",
            help="Attacks: the first is drawn for all rounds, the second beside it; published is paper 000's "
            "procedure with the solver of its Table 6 for the scenario. Repeatable.",
            autocompletion=completing("attacks"),
        ),
    ] = ATTACKS,
    scales: Annotated[
        list[str],
        typer.Option("--scale", "--scales", help="Laplace scales b of the uploads; 0 is none. Repeatable."),
    ] = SCALES,
    rounds: Annotated[
        list[str],
        typer.Option("--rounds", help="Numbers of rounds that the server watches. Repeatable."),
    ] = WATCHES,
    first: Annotated[int, typer.Option(help="First round that is watched, counted from 0.")] = 4,
    users: Annotated[int, typer.Option(help="Clients to record; all take part in training.")] = 120,
    sample: SampleOption = 20,
    published: Annotated[
        bool,
        typer.Option(
            help="Draw Figures 1 to 3 of paper 000 as well; name published and guess-uniform as attacks."
        ),
    ] = False,
    jobs: JobsOption = -1,
    distributed: DistributedOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    option: OneAttackOption = None,
    item_components: ComponentsOption = None,
    estimate: EstimateOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Accuracy against noise scale and rounds watched: rows, figures, and how strong the attack is."""
    from audit.epsilon.accounts import accounts_of
    from audit.experiments.sweep import EXPERIMENT, Sweep, settled
    from audit.option_texts import parse_options
    from audit.requests.components import defenses_of
    from reports.published_noise import published_figures
    from reports.sweep import sweep_table
    from reports.sweep_figures import sweep_figures

    output = Output(quiet, as_json, estimate)
    who = workers(jobs, distributed)
    refuse_unwritable(out)
    plan = settled(
        Sweep(
            victim=victim,
            data=data,
            updates=texts(update),
            weightings=texts(weighting),
            attacks=names(attacks),
            scales=tuple(sorted(set(parse_floats("--scales", scales, "0,0.5,2")))),
            rounds=tuple(parse_rounds(rounds)),
            first=first,
            users=users,
            sample=sample,
            seed=seed,
            victim_options=parse_options(set_ or []),
            attack_options=dict(options_by_attack(option)),
        )
    )
    chosen = plan.attacks
    start = time.perf_counter()
    ratings = output.load(data, item_components)

    def draw(finished: list[dict[str, Any]]) -> list[Path]:
        return sweep_figures(plan.as_named(finished), out, *chosen)

    rows = output.grid("sweep", EXPERIMENT, plan, ratings, out, who, _every(REDRAWN, draw))
    output.show(ratings.describe())
    title = f"Ratings that {chosen[0]} reads from {victim} under Laplace noise"
    shown = plan.as_named(rows)
    output.show(sweep_table(shown, title, chosen[0]))
    accounts = accounts_of(
        victim,
        [plan.victim_of(*scenario) for scenario in product(plan.updates, plan.weightings)],
        defenses_of([f"laplace:scale={scale}" for scale in [max(plan.scales)] if scale]),
        ratings,
        n_rounds=first + max(plan.rounds),
        seed=seed,
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
