"""``factorleak papers predict``."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.options import (
    DataOption,
    DistributedOption,
    EstimateOption,
    JobsOption,
    JsonOption,
    QuietOption,
    SeedOption,
    TestFractionOption,
    VictimOptions,
    examples,
    refuse_idle,
    workers,
)
from audit.cli.output import Output
from audit.option_texts import names, parse_floats, parse_numbers
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable

if TYPE_CHECKING:
    from audit.experiments.cluster import Cluster


def predict_trusted(
    output: Output,
    data: str,
    out: Path,
    method: list[str] | None,
    factors: tuple[int, ...],
    rounds: int,
    runs: int,
    vary: str,
    who: int | Cluster,
    seed: int,
    set_: list[str],
) -> None:
    """Train and show.

    References
    ----------
    Paper 004, doi:10.3390/app122111118.
    """
    from audit.option_texts import parse_options
    from audit.papers.yang import EXPERIMENT, TrustedPlan, settled
    from reports.paper_figures import trusted_figures
    from reports.paper_tables import error_table, recommendation_table, traffic_table

    refuse_unwritable(out)
    plan = settled(
        TrustedPlan(
            systems=names(method),
            data=data,
            factors=factors,
            rounds=rounds,
            runs=runs,
            seed=seed,
            vary=vary,
            victim_options=parse_options(set_),
        )
    )
    begin = time.perf_counter()
    ratings = output.load(data)
    rows = output.grid("predict", EXPERIMENT, plan, ratings, out, who)
    output.show(f"{ratings.describe()}, {len(ratings.trust):,} statements of trust")
    output.show(error_table(rows, "Held-out RMSE, units of 0..1, mean and 95 % interval over seeds"))
    if vary == "nothing":
        title = "Recommended items, mean and 95 % interval over seeds"
        output.show(recommendation_table(rows, ratings.name, title))
    output.show(traffic_table(rows, "Sent in a round"))
    figures = trusted_figures(rows, vary, out)
    for path in figures:
        output.show(f"figure {path}")
    for reason in dict.fromkeys(row["reason"] for row in rows if row["status"] != "ran"):
        output.show(f"not measured: {reason}")
    output.results(rows, out, time.perf_counter() - begin, figures=figures)


EXAMPLES = examples(
    "factorleak papers predict --method mf --method hdpmf --epochs 20 --runs 2",
    "factorleak papers predict --data filmtrust --vary user_low --noise once",
    "factorleak papers predict --victim pdmfrec --data ml-100k --set weight=once",
    "factorleak papers predict --victim dpmf-yang --data FILMTRUST:trust=trust.txt --factors 3 --runs 2",
)

NOISE, NOTHING, SPLIT, TEST_FRACTION = "fresh", "nothing", "paper", 0.2  # where nothing is said
FACTORS = ["10,5"]
PRIVATE_MF, PEERS, TRUSTED = "mf", "pdmfrec", "dpmf-yang"
FACTORS_OF_TRUSTED = ["3,6,12"]


def predict(
    data: DataOption = "synthetic",
    victim: Annotated[
        str,
        typer.Option(
            help="mf (paper 002, Table 3), or pdmfrec (paper 003, Table 2: five parts, rotated; --method "
            "pdmfrec, pdmfrec-sim, pdmfrec-sim-all, pmf; --epochs, --runs and --set apply), or dpmf-yang "
            "(paper 004, Table 4; --method dpmf-yang, dmf, implicit-pmf, svd++, wrmf, gaussian-pmf; "
            "--factors, --epochs, --runs, --vary and --set apply)."
        ),
    ] = PRIVATE_MF,
    out: Annotated[Path, typer.Option(help="Directory for results; cells in it are reused.")] = Path(
        "PREDICT"
    ),
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="mf, hdpmf, pdpmf, dpmf, hdpmf-r (all by default), dpmf-program (dpmf as the authors' "
            "program has it), pdpmf-all-pairs (t over all pairs). Repeatable."
        ),
    ] = None,
    noise: Annotated[
        str,
        typer.Option(help="When noise is drawn: once, fresh (every epoch) or composed (every epoch, eps/T)."),
    ] = NOISE,
    factors: Annotated[
        list[str] | None,
        typer.Option("--factors", help="Numbers of factors, 10,5 or 3,6,12 (dpmf-yang). Repeatable."),
    ] = None,
    rates: Annotated[
        list[str] | None,
        typer.Option("--rates", help="With pdmfrec: learning rates to choose from. Repeatable."),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Epochs, or rounds, of training.")] = 100,
    runs: Annotated[int, typer.Option(help="Seeds.")] = 5,
    vary: Annotated[
        str,
        typer.Option(
            help="nothing (Table 3, Fig. 8), user_low (Fig. 2, 3), user_conservative (4, 5), "
            "fraction (6, 7), epsilon; of dpmf-yang nothing (Table 4, Fig. 4, 6), weights (Fig. 5), degree, "
            "users"
        ),
    ] = NOTHING,
    points: Annotated[
        list[str] | None,
        typer.Option("--points", help="Values of what varies: 1,1.5,2. Repeatable. Default: the paper's."),
    ] = None,
    clip: Annotated[bool, typer.Option(help="Clip predictions to the rating grid.")] = True,
    split: Annotated[
        str,
        typer.Option(
            help="How ratings are held out: paper (the published split, else ten of each client), random, "
            "time (the latest), last:3 (of each client)."
        ),
    ] = SPLIT,
    test_fraction: TestFractionOption = TEST_FRACTION,
    weights: Annotated[
        Path | None,
        typer.Option(help="Privacy weights in place of drawn ones: a table kind (user, item), id, weight."),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="First choose learning rate and regularization of each method by so many folds of the "
            "training ratings, as paper 002 does with 5; what was trained is reused.",
        ),
    ] = None,
    jobs: JobsOption = -1,
    distributed: DistributedOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    estimate: EstimateOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Held-out error over seeds: paper 002, Table 3 and Figures 2 to 8; 003, Table 2; 004, Table 4."""
    if victim not in (PRIVATE_MF, PEERS, TRUSTED):
        raise InputError(f"--victim must be {PRIVATE_MF}, {PEERS} or {TRUSTED}, got {victim!r:.40}")
    who = workers(jobs, distributed)
    idle = f"means nothing with --victim {victim}"
    of_others = {
        "noise": noise != NOISE, "points": points, "clip": not clip, "split": split != SPLIT,
        "test_fraction": test_fraction != TEST_FRACTION, "weights": weights, "tune": tune,
    }  # fmt: skip
    if victim == PEERS:
        refuse_idle(idle, **of_others, factors=factors, vary=vary != NOTHING)
        chosen_from = parse_floats("--rates", rates, "0.01,0.05") if rates else ()
        _among_peers(
            Output(quiet, as_json, estimate),
            data,
            out,
            method,
            chosen_from,
            epochs,
            runs,
            set_ or [],
            who,
            seed,
        )
        return
    if victim == TRUSTED:
        refuse_idle(idle, **of_others, rates=rates)
        sizes = parse_numbers("--factors", factors or FACTORS_OF_TRUSTED)
        predict_trusted(
            Output(quiet, as_json, estimate),
            data,
            out,
            method,
            sizes,
            epochs,
            runs,
            vary,
            who,
            seed,
            set_ or [],
        )
        return
    refuse_idle(idle, rates=rates)
    from audit.option_texts import parse_options
    from audit.papers.hu_fang import EXPERIMENT, METHODS, Plan, settled, user_errors
    from audit.papers.tuned_mf import best
    from audit.papers.tuned_mf import tune as search
    from audit.scoring.prediction_errors import comparisons, intervals_of
    from reports.paper_figures import prediction_figure
    from reports.paper_tables import paired_table, prediction_table

    output = Output(quiet, as_json, estimate)
    refuse_unwritable(out)
    plan = settled(
        Plan(
            methods=names(method) or METHODS,
            data=data,
            noise=noise,
            factors=parse_numbers("--factors", factors or FACTORS),
            epochs=epochs,
            runs=runs,
            seed=seed,
            vary=vary,
            points=parse_floats("--points", points, "1,1.5,2") if points else (),
            clip=clip,
            split=split,
            test_fraction=test_fraction,
            victim_options=parse_options(set_ or []),
            weights="" if weights is None else str(weights),
        )
    )
    start = time.perf_counter()
    ratings = output.load(data)
    if tune is not None:
        with output.progress("tune") as update_bar:
            trials = search(plan, ratings, out, tune, jobs=who, report=update_bar)
        plan = replace(plan, chosen=best(trials))
    rows = output.grid("predict", EXPERIMENT, plan, ratings, out, who)
    output.show(ratings.describe())
    title = f"Held-out error, noise {noise}, {epochs} epochs"
    kept = user_errors(plan, ratings, out) if vary == "nothing" else {}
    output.show(prediction_table(rows, ratings.name, title, vary, intervals_of(kept)))
    for (name, size), options in plan.chosen.items():
        output.show(f"chosen by {tune} folds: {name} K={size}: " + ", ".join(map("=".join, options.items())))
    if vary == "nothing" and runs > 1:
        output.show(paired_table(comparisons(rows, kept)))
    figures = prediction_figure(rows, vary, out)
    for path in figures:
        output.show(f"figure {path}")
    output.failures(rows)
    output.results(rows, out, time.perf_counter() - start, figures=figures)


def _among_peers(
    output: Output,
    data: str,
    out: Path,
    method: list[str] | None,
    rates: tuple[float, ...],
    epochs: int,
    runs: int,
    set_: list[str],
    who: int | Cluster,
    seed: int,
) -> None:
    """Paper 003."""
    from audit.option_texts import parse_options
    from audit.papers.pdmfrec import EXPERIMENT, METHODS, RATES, ROUNDS, PartsPlan, settled
    from reports.paper_tables import parts_table, rounds_table

    refuse_unwritable(out)
    rounds = tuple(sorted({n_rounds for n_rounds in ROUNDS if n_rounds < epochs} | {epochs}))
    plan = settled(
        PartsPlan(
            methods=names(method) or tuple(METHODS),
            data=data,
            rates=rates or RATES,
            rounds=rounds,
            runs=runs,
            seed=seed,
            victim_options=parse_options(set_),
        )
    )
    begin = time.perf_counter()
    ratings = output.load(data)
    rows = output.grid("predict", EXPERIMENT, plan, ratings, out, who)
    output.show(ratings.describe())
    if any(row["status"] == "ran" for row in rows):
        output.show(parts_table(rows, ratings.name, "Held-out error, rate and rounds by validation MAE"))
        output.show(rounds_table(rows, "MAE after rounds, rate by validation MAE"))
    output.failures(rows)
    output.results(rows, out, time.perf_counter() - begin)
