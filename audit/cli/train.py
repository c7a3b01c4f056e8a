"""``factorleak train``."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from audit.cli.accounts import accounts_as_json, show_accounts
from audit.cli.options import (
    ComponentsOption,
    DataOption,
    DefenseOption,
    JsonOption,
    QuietOption,
    SeedOption,
    SplitOption,
    TestFractionOption,
    UpdateOption,
    VictimOption,
    VictimOptions,
    WeightingOption,
    examples,
    parse_rounds,
)
from audit.cli.output import Output
from victims.common.errors import InputError

EXAMPLES = examples(
    "factorleak train --rounds 20,50",
    "factorleak train --data ml-100k --victim mf --defense hdpmf",
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
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    item_components: ComponentsOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a victim without recording and show how well it predicts held-out ratings."""
    from audit.factories import make_victim, parse_options, scenarios_of
    from audit.requests.accounts import accounts_of
    from audit.requests.components import defenses_of
    from reports.learning import learning_table
    from victims.data.splits import split_by
    from victims.evaluation.rating_error import learning_curve

    output = Output(quiet, as_json)
    updates, weightings = scenarios_of(victim)
    scenario = {"update": str(update or updates[0]), "weighting": str(weighting or weightings[0])}
    model = make_victim(victim, {**parse_options(set_ or []), **scenario})
    defenses = defenses_of(defense)
    wanted = parse_rounds(rounds)
    if wanted[0] < 1:
        raise InputError("--rounds of train must be >= 1: 0 rounds train nothing")
    ratings = output.load(data, item_components)
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
    accounts = accounts_of(
        victim,
        model,
        defenses,
        ratings,
        weightings=[scenario["weighting"]],
        n_rounds=wanted[-1],
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
        {**scenario, "rows": rmse, **baselines, "accounts": accounts_as_json(accounts), "seconds": seconds}
    )
