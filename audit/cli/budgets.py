"""Commands about differential privacy by stretching (paper 002): ``predict`` and ``claims``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import (
    DataOption,
    FailOnOption,
    JobsOption,
    SeedOption,
    VictimOptions,
    judge,
    load,
    parse_numbers,
    show,
)
from audit.shell.progress import progress
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable

NoiseOption = Annotated[
    str, typer.Option(help="When noise is drawn: once, fresh (every epoch) or composed (every epoch, eps/T).")
]


def predict(
    data: DataOption = "synthetic",
    out: Annotated[Path, typer.Option(help="Directory for results; cells in it are reused.")] = Path(
        "PREDICT"
    ),
    method: Annotated[
        list[str] | None, typer.Option(help="mf, hdpmf, pdpmf, dpmf, hdpmf-r. Repeatable; all by default.")
    ] = None,
    noise: NoiseOption = "fresh",
    factors: Annotated[str, typer.Option(help="Numbers of factors.")] = "10,5",
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training.")] = 100,
    runs: Annotated[int, typer.Option(min=1, help="Seeds.")] = 5,
    vary: Annotated[
        str,
        typer.Option(
            help="nothing (Table 3, Fig. 8), user_low (Fig. 2, 3), user_conservative (4, 5), "
            "fraction (6, 7), epsilon"
        ),
    ] = "nothing",
    jobs: JobsOption = -1,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
) -> None:
    """Prediction error of private matrix factorisation over seeds: paper 002, Table 3 and Figures 2 to 8."""
    from audit.experiments.prediction import METHODS, Plan, run
    from audit.registry import parse_options
    from reports.prediction import prediction_figure, prediction_table

    refuse_unwritable(out)
    plan = Plan(
        methods=tuple(method) if method else METHODS,
        data=data,
        noise=noise,
        factors=parse_numbers("--factors", factors),
        epochs=epochs,
        runs=runs,
        seed=seed,
        vary=vary,
        victim_options=parse_options(set_ or []),
    )
    begin = time.perf_counter()
    ratings = load(data, None)
    with progress("predict") as update_bar:
        rows = run(plan, ratings, out, jobs=jobs, report=update_bar)
    show(ratings.describe())
    show(prediction_table(rows, ratings.name, f"Held-out error, noise {noise}, {epochs} epochs", vary))
    for path in prediction_figure(rows, vary, out):
        show(f"figure {path}")
    for reason in dict.fromkeys(row["reason"] for row in rows if row["status"] == "failed"):
        show(f"failed: {reason}")
    show(f"{len(rows)} rows in {out}/results.json, .csv, .parquet; {time.perf_counter() - begin:.1f} s")


def claims(
    data: DataOption = "synthetic",
    out: Annotated[Path, typer.Option(help="Directory for results; cells in it are reused.")] = Path(
        "CLAIMS"
    ),
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="hdpmf, pdpmf, dpmf, mf, hdpmf-r. Repeatable; the first four by default."),
    ] = None,
    noise: Annotated[
        list[str] | None, typer.Option(help="once, fresh, composed. Repeatable; all by default.")
    ] = None,
    epsilons: Annotated[
        str, typer.Option(help="Largest budgets, as 0.1,1,10; several draw the figure.")
    ] = "1",
    rounds: Annotated[
        int, typer.Option(min=2, help="Rounds that the recommender watches, from the first.")
    ] = 12,
    epochs: Annotated[int, typer.Option(min=2, help="Epochs of the whole training.")] = 100,
    repetitions: Annotated[
        int,
        typer.Option(min=0, help="Runs in each of two worlds for a second bound, of one client; 0: none."),
    ] = 0,
    jobs: JobsOption = -1,
    fail_on: FailOnOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
) -> None:
    """A claimed epsilon against what the recommender sees, reads and can prove."""
    from audit.cli.gate import OF_CLAIMS, Vocabulary, parse
    from audit.epsilon.claim_cells import NOISES, PROTOCOLS, Plan
    from audit.epsilon.claims import budget_quantiles, run
    from audit.registry import parse_options
    from reports.claims import budgets_line, claims_figure, claims_table

    refuse_unwritable(out)
    plan = Plan(
        protocols=tuple(protocol) if protocol else PROTOCOLS,
        noises=tuple(noise) if noise else NOISES,
        epsilons=_budgets(epsilons),
        data=data,
        rounds=rounds,
        epochs=epochs,
        repetitions=repetitions,
        seed=seed,
        victim_options=parse_options(set_ or []),
    )
    bars = parse(fail_on or [], Vocabulary(("leak", "refuted"), OF_CLAIMS, {"victim": plan.protocols}))
    begin = time.perf_counter()
    ratings = load(data, None)
    with progress("claims") as update_bar:
        rows = run(plan, ratings, out, jobs=jobs, report=update_bar)
    show(ratings.describe())
    for epsilon in plan.epsilons:
        show(budgets_line(budget_quantiles(epsilon, ratings, seed), epsilon))
    show(claims_table(rows, f"Claims and what the recommender sees in {rounds} rounds"))
    for path in claims_figure(rows, out) if len(plan.epsilons) > 1 else []:
        show(f"figure {path}")
    show(f"{len(rows)} rows in {out}/results.json, .csv, .parquet; {time.perf_counter() - begin:.1f} s")
    judge(bars, rows)


def _budgets(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = (0.0,)
    if not all(0 < value < float("inf") for value in found):
        raise InputError(f"--epsilons must be numbers > 0 as in 0.1,1,10, got {text!r}")
    return found
