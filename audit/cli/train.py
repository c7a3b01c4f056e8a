"""``factorleak papers train``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.options import (
    ComponentsOption,
    DataOption,
    DefenseOption,
    JsonOption,
    QuietOption,
    SeedOption,
    SplitOption,
    TagsOption,
    TestFractionOption,
    UpdateOption,
    VictimOption,
    VictimOptions,
    WeightingOption,
    examples,
)
from audit.cli.output import Output, accounts_as_json, show_accounts
from audit.option_texts import parse_rounds
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable

if TYPE_CHECKING:
    from audit.papers.tuning import Search
    from victims.data.ratings import Ratings

EXAMPLES = examples(
    "factorleak papers train --rounds 20,50",
    "factorleak papers train --data ml-100k --victim mf --defense hdpmf",
    "factorleak papers train --victim pdmfrec --rounds 10,20",
    "factorleak papers train --tune 20 --rounds 20",
)

MEASURED = ["10,20,50,100,200"]


def train(
    data: DataOption = "synthetic",
    victim: VictimOption = "fedmvmf",
    update: UpdateOption = None,
    weighting: WeightingOption = None,
    rounds: Annotated[
        list[str],
        typer.Option("--rounds", help="Numbers of rounds after which to measure: 20,50,100. Repeatable."),
    ] = MEASURED,
    test_fraction: TestFractionOption = 0.2,
    split: SplitOption = "random",
    defense: DefenseOption = None,
    tune: Annotated[
        int | None,
        typer.Option(min=1, help="Instead: so many trials of a k-fold search of options (fedmvmf)."),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of --tune.")] = 4,
    out: Annotated[
        Path, typer.Option(help="Directory for the journal of --tune; trials in it are reused.")
    ] = Path("TUNE"),
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    item_tags: TagsOption = None,
    item_components: ComponentsOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a victim, with a server or without, unrecorded; show how well it predicts held-out ratings."""
    from audit.components import defenses_of
    from audit.epsilon.accounts import accounts_of
    from audit.experiments.plan_rules import SEED
    from audit.factories import make_victim, scenarios_of
    from audit.option_texts import parse_options
    from audit.papers.tuning import Search
    from reports.tables import learning_table
    from victims.common.validation import require
    from victims.data.subsets import split_by
    from victims.evaluation.rating_error import learning_curve, why_poor

    require("a training", "seed", seed, SEED, "the default is 0")
    output = Output(quiet, as_json)
    updates, weightings = scenarios_of(victim)
    scenario = {"update": str(update or updates[0]), "weighting": str(weighting or weightings[0])}
    model = make_victim(victim, {**parse_options(set_ or []), **scenario})
    defenses = defenses_of(defense)
    wanted = parse_rounds(rounds)
    if wanted[0] < 1:
        raise InputError("--rounds of train must be >= 1: 0 rounds train nothing")
    ratings = output.load(data, item_components, item_tags=item_tags)
    if tune is not None:
        if victim != "fedmvmf":
            raise InputError(f"--tune knows ranges for fedmvmf alone, got {victim}; leave it out")
        text = "+".join(defense or ()) or "none"
        plan = Search(**scenario, defense=text, trials=tune, folds=folds, rounds=wanted[-1], seed=seed,
                      options=parse_options(set_ or []))  # fmt: skip
        _search(output, plan, ratings, out)
        return
    kept, held_out = split_by(split, ratings, test_fraction, seed)
    start = time.perf_counter()
    with output.progress("round") as update_bar:
        learned = learning_curve(
            model, kept, held_out, wanted, defenses=defenses, seed=seed, progress=update_bar
        )
    output.show(ratings.describe())
    under = f" under {', '.join(defense)}" if defense else ""
    name = f"{victim} {'/'.join(scenario.values())}{under}: RMSE on held-out ratings, stars"
    output.show(learning_table(learned.rounds, learned.rmse, learned.centralised, learned.bias,
                                 learned.mean, name))  # fmt: skip
    poor = why_poor(learned.rmse[-1], learned.mean, model.capabilities.centralised)
    if poor:
        output.show(f"note: {poor} (after {learned.rounds[-1]} rounds)")
    if learned.stopped:
        output.show(f"stopped after {learned.rounds[-1]} rounds, by stop_gradient")
    accounts = accounts_of(
        victim,
        [model],
        defenses,
        kept,
        n_rounds=learned.rounds[-1],
        seed=seed,
    )
    show_accounts(output, accounts)
    seconds = time.perf_counter() - start
    output.show(f"{seconds:.1f} s, seed {seed}")
    rmse = [
        {"rounds": n_rounds, "rmse": error}
        for n_rounds, error in zip(learned.rounds, learned.rmse, strict=True)
    ]
    baselines = {"centralised": learned.centralised, "bias": learned.bias, "mean": learned.mean}
    output.finish(
        {
            **scenario,
            "rows": rmse,
            **baselines,
            "notes": [poor] if poor else [],
            "accounts": accounts_as_json(accounts),
            "seconds": seconds,
        }
    )


def _search(output: Output, plan: Search, ratings: Ratings, out: Path) -> None:
    """Search, and show the best trials."""
    from audit.papers.tuning import search
    from reports.tables import tuning_table

    refuse_unwritable(out)
    start = time.perf_counter()
    with output.progress("tune") as update_bar:
        trials = search(plan, ratings, out, report=update_bar)
    output.show(ratings.describe())
    title = f"{plan.update}/{plan.weighting}, {plan.folds} folds, {plan.rounds} rounds: best of {plan.trials}"
    output.show(tuning_table(trials, plan.measure, title))
    rows = [trial._asdict() for trial in trials]
    output.finish({"measure": plan.measure, "rows": rows, "seconds": time.perf_counter() - start})
