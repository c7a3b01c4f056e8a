"""``factorleak papers``: what reproduces tables and figures of the five papers."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.options import (
    ALL_CORES,
    ComponentsOption,
    DistributedOption,
    JobsOption,
    TagsOption,
    changed,
    examples,
    from_plan,
    refuse_idle,
    workers,
)
from audit.cli.output import Output, accounts_as_json, show_accounts
from audit.option_texts import parse_floats
from audit.papers.plans import (
    PEER_ROUNDS,
    Learning,
    Lists,
    PartsPlan,
    Prediction,
    Quality,
    Search,
    Sheet,
    TrustedPlan,
)
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable

if TYPE_CHECKING:
    from audit.experiments.results import Row
    from audit.experiments.workers import Cluster
    from reports.layout import Sheet as Printed


PRIVATE_MF, PEERS, TRUSTED = "mf", "pdmfrec", "dpmf-yang"  # of ``predict``
UPLOADS = ("part-text", "full-text")  # of the figure of ``cost``
GIGABITS = 1.0
Out = Annotated[Path, typer.Option(help="Directory for results and figures; cells in it are reused.")]


def _end(
    output: Output, rows: Sequence[Row], out: Path, begin: float, figures: Sequence[Path] = (), **more: Any
) -> None:
    """Name the figures, why cells failed, and where the rows are."""
    for path in figures:
        output.show(f"figure {path}")
    output.failures(rows)
    output.results(rows, out, time.perf_counter() - begin, figures=list(figures), **more)


@from_plan(Prediction)
def predict(
    *,
    output: Output,
    victim: Annotated[
        str,
        typer.Option(
            help="mf (Hu & Fang 2023, Table 3), or pdmfrec (Duriakova et al. 2019, Table 2: five parts, "
            "rotated; --method pdmfrec, pdmfrec-sim, pdmfrec-sim-all, pmf; --epochs, --runs and --set "
            "apply), or dpmf-yang (Yang et al. 2022, Table 4; --method dpmf-yang, dmf, implicit-pmf, svd++, "
            "wrmf, gaussian-pmf; --factors, --epochs, --runs, --vary and --set apply)."
        ),
    ] = PRIVATE_MF,
    out: Out = Path("PREDICT"),
    plan: Prediction,
    rates: Annotated[
        list[str] | None,
        typer.Option("--rates", help="With pdmfrec: learning rates to choose from. Repeatable."),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="First choose learning rate and regularization of each method by so many folds of the "
            "training ratings, as Hu & Fang 2023 do with 5; what was trained is reused.",
        ),
    ] = None,
    jobs: JobsOption = ALL_CORES,
    distributed: DistributedOption = None,
) -> None:
    """Held-out error over seeds: Hu & Fang 2023, Duriakova et al. 2019, Yang et al. 2022."""
    if victim not in (PRIVATE_MF, PEERS, TRUSTED):
        raise InputError(f"--victim must be {PRIVATE_MF}, {PEERS} or {TRUSTED}, got {victim!r:.40}")
    who = workers(jobs, distributed)
    refuse_unwritable(out)
    idle = f"means nothing with --victim {victim}"
    if victim != PEERS:
        refuse_idle(idle, rates=rates)
    if victim == PRIVATE_MF:
        _private(output, plan, out, tune, who)
        return
    applies = ["data", "methods", "epochs", "runs", "seed", "victim_options"]
    applies += ["factors", "vary"] if victim == TRUSTED else []
    refuse_idle(idle, **changed(plan, *applies), tune=tune)
    if victim == PEERS:
        _among_peers(output, plan, out, parse_floats("--rates", rates, "0.01,0.05") if rates else (), who)
    else:
        _among_trusted(output, plan, out, who)


def _private(output: Output, plan: Prediction, out: Path, tune: int | None, who: int | Cluster) -> None:
    """Hu & Fang 2023, Table 3 and Figures 2 to 8."""
    from audit.papers.hu_fang import EXPERIMENT, settled, user_errors
    from audit.papers.tuned_mf import best
    from audit.papers.tuned_mf import tune as search
    from audit.scoring.prediction_errors import comparisons, intervals_of
    from reports.paper_figures import prediction_figure
    from reports.paper_tables import paired_table, prediction_table

    plan = settled(plan)
    begin = time.perf_counter()
    ratings = output.load(plan.data)
    if tune is not None:
        with output.progress("tune") as update_bar:
            trials = search(plan, ratings, out, tune, jobs=who, report=update_bar)
        plan = replace(plan, chosen=best(trials))
    rows = output.grid("predict", EXPERIMENT, plan, ratings, out, who)
    output.show(ratings.describe())
    title = f"Held-out error, noise {plan.noise}, {plan.epochs} epochs"
    kept = user_errors(plan, ratings, out) if plan.vary == "nothing" else {}
    output.show(prediction_table(rows, ratings.name, title, plan.vary, intervals_of(kept)))
    for (name, size), options in plan.chosen.items():
        output.show(f"chosen by {tune} folds: {name} K={size}: " + ", ".join(map("=".join, options.items())))
    if plan.vary == "nothing" and plan.runs > 1:
        output.show(paired_table(comparisons(rows, kept)))
    _end(output, rows, out, begin, prediction_figure(rows, plan.vary, out))


def _among_peers(
    output: Output, asked: Prediction, out: Path, rates: tuple[float, ...], who: int | Cluster
) -> None:
    """Duriakova et al. 2019, Table 2."""
    from audit.papers.pdmfrec import EXPERIMENT, settled
    from reports.paper_tables import parts_table, rounds_table

    rounds = (*(one for one in PEER_ROUNDS if one < asked.epochs), asked.epochs)
    plan = settled(
        PartsPlan(asked.methods, asked.data, rates, rounds, asked.runs, asked.seed, asked.victim_options)
    )
    begin = time.perf_counter()
    ratings = output.load(plan.data)
    rows = output.grid("predict", EXPERIMENT, plan, ratings, out, who)
    output.show(ratings.describe())
    if any(row["status"] == "ran" for row in rows):
        output.show(parts_table(rows, ratings.name, "Held-out error, rate and rounds by validation MAE"))
        output.show(rounds_table(rows, "MAE after rounds, rate by validation MAE"))
    _end(output, rows, out, begin)


def _among_trusted(output: Output, asked: Prediction, out: Path, who: int | Cluster) -> None:
    """Yang et al. 2022, Table 4 and Figures 4 to 6."""
    from audit.papers.yang import EXPERIMENT, settled
    from reports.paper_figures import trusted_figures
    from reports.paper_tables import error_table, recommendation_table, traffic_table

    plan = settled(
        TrustedPlan(
            asked.methods, asked.data, asked.factors, asked.epochs, asked.runs, asked.seed, asked.vary,
            asked.victim_options,
        )
    )  # fmt: skip
    begin = time.perf_counter()
    ratings = output.load(plan.data)
    rows = output.grid("predict", EXPERIMENT, plan, ratings, out, who)
    output.show(f"{ratings.describe()}, {len(ratings.trust):,} statements of trust")
    output.show(error_table(rows, "Held-out RMSE, units of 0..1, mean and 95 % interval over seeds"))
    if plan.vary == "nothing":
        title = "Recommended items, mean and 95 % interval over seeds"
        output.show(recommendation_table(rows, ratings.name, title))
    output.show(traffic_table(rows, "Sent in a round"))
    for reason in dict.fromkeys(row["reason"] for row in rows if row["status"] == "not applicable"):
        output.show(f"not measured: {reason}")
    _end(output, rows, out, begin, trusted_figures(rows, plan.vary, out))


@from_plan(Quality)
def quality(
    *,
    output: Output,
    out: Out = Path("QUALITY"),
    plan: Quality,
    k: Annotated[int, typer.Option("--k", help="Items that are recommended to a user.")] = 10,
    relevant: Annotated[float, typer.Option(help="Smallest rating that counts as relevant, stars.")] = 4.0,
    jobs: JobsOption = ALL_CORES,
    distributed: DistributedOption = None,
    item_tags: TagsOption = None,
    item_components: ComponentsOption = None,
) -> None:
    """Ranking quality with and without encryption, for known and new users and items."""
    from audit.papers.ranking_quality import EXPERIMENT, settled, with_popularity
    from reports.tables import quality_table
    from reports.words import worse_than_mean
    from victims.evaluation.ranking import Cut

    who = workers(jobs, distributed)
    refuse_unwritable(out)
    plan = settled(replace(plan, cut=Cut(k, relevant)))
    begin = time.perf_counter()
    ratings = output.load(plan.data, item_components, item_tags=item_tags)
    found = output.grid("quality", EXPERIMENT, plan, ratings, out, who)
    rows = with_popularity(found)
    output.show(ratings.describe())
    under = f"under {plan.defense}, {plan.rounds} rounds, mean of {plan.runs} runs (sd)"
    output.show(quality_table(rows, f"Ranking at {k}, relevant {relevant:g}, {under}"))
    notes = worse_than_mean(found)
    for note in notes:
        output.show(f"note: {note}")
    _end(output, found, out, begin, told=rows, notes=notes)


@from_plan(Sheet)
def cost(
    *,
    output: Output,
    out: Annotated[
        Path, typer.Option(help="Directory for results; what this machine measured in it is not repeated.")
    ] = Path("COST"),
    plan: Sheet,
    gigabits: Annotated[float, typer.Option(help="Gigabits a second of the network.")] = GIGABITS,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Draw the server's share against the number of items in this directory, full-text and "
            "part-text (fedmf: Figures 2 and 3 of Chai et al. 2020)."
        ),
    ] = None,
) -> None:
    """Processor seconds in each phase of an encrypted round, bytes and memory, beside the papers' numbers.

    Where clients send to each other: messages, bytes and seconds of a round along the graph, in the clear or
    under the defense.
    """
    from audit.papers.cost import EXPERIMENT, settled, wide
    from reports.paper_figures import cost_figure
    from reports.paper_tables import published_lines

    if not 0 < gigabits * 1e9 < math.inf:  # what the sheet refuses, too, in bits
        raise InputError(f"--gigabits must be > 0 and < 1e299, got {gigabits:g}; the default is {GIGABITS:g}")
    refuse_unwritable(out)
    if figure is not None:
        _refuse_undrawable(plan)
        refuse_unwritable(figure)
    plan = replace(plan, bits_per_second=gigabits * 1e9, uploads=UPLOADS if figure is not None else ())
    begin = time.perf_counter()
    plan = settled(plan)
    ratings = output.load(plan.data)
    output.show(ratings.describe())
    found = output.grid("cost", EXPERIMENT, plan, ratings, out)
    by_upload = {}
    for upload in plan.uploads or (str(plan.victim_options.get("upload", "")),):
        by_upload[upload] = wide([row for row in found if row["upload"] == upload])
        if by_upload[upload]:
            output.show(_costs(plan.victim, by_upload[upload], upload))
    rows = [row for some in by_upload.values() for row in some]
    for note in dict.fromkeys(f"{row['system']}: {row['note']}" for row in rows):
        output.show(f"  {note}")
    for line in published_lines(plan.victim):
        output.show(line)
    figures = []
    if figure is not None and all(by_upload.values()):
        system = next(row["system"] for row in rows if row["system"] != "in the clear")
        figures = cost_figure(by_upload, system, figure)
    _end(output, found, out, begin, figures, told=rows)


def _costs(victim: str, rows: Sequence[Row], upload: str) -> Printed:
    """The rows of one kind of upload, with the papers' numbers."""
    from reports.paper_tables import of_the_upload, published_seconds
    from reports.tables import cost_table, graph_cost_table

    if "messages" in rows[0]:
        return graph_cost_table(rows, f"One round of {victim}: processor seconds; of clients: busiest / mean")
    for row in rows:
        row["paper"] = published_seconds(victim, row, upload)
    said = of_the_upload(victim, upload)
    return cost_table(rows, f"One round of {victim}{said}: processor seconds; of clients: busiest / mean")


def _refuse_undrawable(plan: Sheet) -> None:
    """The figure is of FedMF's two uploads."""
    if plan.victim != "fedmf":
        raise InputError(f"--figure draws fedmf alone, got {plan.victim}; leave it out")
    if "upload" in plan.victim_options:
        raise InputError("--figure draws both uploads; leave --set upload out")


@from_plan(Lists, estimate=False)
def lists(
    *,
    output: Output,
    out: Out = Path("LISTS"),
    plan: Lists,
    items: Annotated[
        int | None, typer.Option(min=1, help="Keep this many of the most rated items. Default: all.")
    ] = None,
    jobs: JobsOption = ALL_CORES,
) -> None:
    """FedMF between part-text and full-text: which items clients rated, against the cost of hiding them."""
    from audit.papers.list_privacy import EXPERIMENT, settled
    from reports.figures import list_privacy_figure
    from reports.tables import list_privacy_table
    from victims.data.subsets import most_rated

    refuse_unwritable(out)
    plan = settled(plan)
    begin = time.perf_counter()
    ratings = output.load(plan.data)
    if items is not None:
        ratings = most_rated(ratings, items)
        plan = replace(plan, data=f"{plan.data}, {items} most rated items")
    rows = output.grid("lists", EXPERIMENT, plan, ratings, out, jobs)
    output.show(ratings.describe())
    output.show(list_privacy_table(rows, f"Rated items told by encrypted uploads, {plan.key_bits} bit"))
    _end(output, rows, out, begin, list_privacy_figure(rows, out))


@from_plan(Search, estimate=False)
def tune(
    *,
    output: Output,
    out: Annotated[
        Path, typer.Option(help="Directory for the journal of the search; trials in it are reused.")
    ] = Path("TUNE"),
    plan: Search,
    item_tags: TagsOption = None,
    item_components: ComponentsOption = None,
) -> None:
    """Search options of FedMVMF by k folds, as Mai & Pang 2022 do: the best trials."""
    from audit.papers.tuning import measure_of, search, settled
    from reports.tables import tuning_table

    plan = settled(plan)
    ratings = output.load(plan.data, item_components, item_tags=item_tags)
    refuse_unwritable(out)
    begin = time.perf_counter()
    with output.progress("tune") as update_bar:
        trials = search(plan, ratings, out, report=update_bar)
    output.show(ratings.describe())
    title = f"{plan.update}/{plan.weighting}, {plan.folds} folds, {plan.rounds} rounds: best of {plan.trials}"
    output.show(tuning_table(trials, measure_of(plan), title))
    rows = [trial._asdict() for trial in trials]
    output.finish({"measure": measure_of(plan), "rows": rows, "seconds": time.perf_counter() - begin})


@from_plan(Learning, estimate=False)
def train(
    *,
    output: Output,
    plan: Learning,
    item_tags: TagsOption = None,
    item_components: ComponentsOption = None,
) -> None:
    """Train a victim, with a server or without, unrecorded; show how well it predicts held-out ratings."""
    from audit.accounts import accounts_of
    from audit.components import defenses_of
    from audit.experiments.options import check
    from audit.factories import make_victim, scenarios_of
    from reports.tables import learning_table
    from victims.data.subsets import split_by
    from victims.evaluation.rating_error import learning_curve, why_poor

    check(plan, "a training")
    updates, weightings = scenarios_of(plan.victim)
    scenario = {"update": plan.update or updates[0], "weighting": plan.weighting or weightings[0]}
    model = make_victim(plan.victim, {**plan.victim_options, **scenario})
    defenses = defenses_of(plan.defenses)
    ratings = output.load(plan.data, item_components, item_tags=item_tags)
    kept, held_out = split_by(plan.split, ratings, plan.test_fraction, plan.seed)
    begin = time.perf_counter()
    with output.progress("round") as update_bar:
        learned = learning_curve(
            model, kept, held_out, plan.rounds, defenses=defenses, seed=plan.seed, progress=update_bar
        )
    output.show(ratings.describe())
    under = f" under {', '.join(plan.defenses)}" if plan.defenses else ""
    name = f"{plan.victim} {'/'.join(scenario.values())}{under}: RMSE on held-out ratings, stars"
    baselines = {"centralised": learned.centralised, "bias": learned.bias, "mean": learned.mean}
    output.show(learning_table(learned.rounds, learned.rmse, **baselines, title=name))
    last = learned.rounds[-1]
    poor = why_poor(learned.rmse[-1], learned.mean, model.capabilities.centralised)
    if poor:
        output.show(f"note: {poor} (after {last} rounds)")
    if learned.stopped:
        output.show(f"stopped after {last} rounds, by stop_gradient")
    accounts = accounts_of(plan.victim, [model], defenses, kept, n_rounds=last, seed=plan.seed)
    show_accounts(output, accounts)
    seconds = time.perf_counter() - begin
    output.show(f"{seconds:.1f} s, seed {plan.seed}")
    pairs = zip(learned.rounds, learned.rmse, strict=True)
    output.finish(
        {
            **scenario,
            "rows": [{"rounds": n_rounds, "rmse": error} for n_rounds, error in pairs],
            **baselines,
            "notes": [poor] if poor else [],
            "accounts": accounts_as_json(accounts),
            "seconds": seconds,
        }
    )


EXAMPLES = {
    predict: examples(
        "factorleak papers predict --method mf --method hdpmf --epochs 20 --runs 2",
        "factorleak papers predict --data filmtrust --vary user_low --noise once",
        "factorleak papers predict --victim pdmfrec --data ml-100k --set weight=once",
        "factorleak papers predict --victim dpmf-yang --data FILMTRUST:trust=trust.txt --factors 3 --runs 2",
    ),
    quality: examples(
        "factorleak papers quality --rounds 50 --runs 2",
        "factorleak papers quality --data ml-100k --scenario existing --scenario 'new user'",
    ),
    cost: examples(
        "factorleak papers cost --victim dpmf-yang",
        "factorleak papers cost --items 40 --key-bits 1024 --no-phe",
        "factorleak papers cost --victim fedmvmf --defense unrated-sampling:rho=1",
    ),
    lists: examples(
        "factorleak papers lists --rho 1,4 --rounds 1,5",
        "factorleak papers lists --data ml-100k --set factors=20 --key-bits 2048",
    ),
    tune: examples(
        "factorleak papers tune --trials 20 --rounds 20",
        "factorleak papers tune --data ml-100k --update sgd --set factors=5",
    ),
    train: examples(
        "factorleak papers train --rounds 20,50",
        "factorleak papers train --data ml-100k --victim mf --defense hdpmf",
        "factorleak papers train --victim pdmfrec --rounds 10,20",
    ),
}  # command -> the end of its help
