"""``factorleak record``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.accounts import accounts_as_json, show_accounts
from audit.cli.option_values import parse_rounds
from audit.cli.options import (
    WATCHED,
    CommunityOption,
    ComponentsOption,
    DataOption,
    DefenseOption,
    JsonOption,
    QuietOption,
    RoundsOption,
    SeedOption,
    UpdateOption,
    UsersOption,
    VictimOption,
    VictimOptions,
    WeightingOption,
    examples,
)
from audit.cli.output import Output

EXAMPLES = examples(
    "factorleak record demo --update sgd",
    "factorleak record demo --data ml-100k --victim mf --rounds 0-4 --defense laplace:scale=1",
)


def record(
    out: Annotated[Path, typer.Argument(help="Transcript directory to create.")],
    data: DataOption = "synthetic",
    victim: VictimOption = "fedmvmf",
    update: UpdateOption = None,
    weighting: WeightingOption = None,
    rounds: RoundsOption = WATCHED,
    users: UsersOption = None,
    defense: DefenseOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    community: CommunityOption = None,
    item_components: ComponentsOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run one victim and keep its transcript; truth and factors (and the clients' key) go beside it."""
    from audit.epsilon.accounts import accounts_of
    from audit.factories import make_victim, scenarios_of
    from audit.option_texts import parse_options
    from audit.requests.components import defenses_of
    from audit.requests.recording import RecordRequest
    from audit.requests.recording import record as answer
    from victims.transcript.writer import truth_path

    output = Output(quiet, as_json)
    updates, weightings = scenarios_of(victim)
    scenario = {"update": update or updates[0], "weighting": weighting or weightings[0]}
    scenario = {name: str(value) for name, value in scenario.items()}
    request = RecordRequest(
        out=out,
        victim=make_victim(victim, {**parse_options(set_ or []), **scenario}),
        rounds=tuple(parse_rounds(rounds)),
        users=users,
        defenses=tuple(defenses_of(defense)),
        seed=seed,
    )
    with output.progress("round") as update_bar:
        ratings = answer(request, lambda: output.load(data, item_components, community, seed), update_bar)
    output.show(ratings.describe())
    output.show(f"transcript {out}, truth {truth_path(out)}")
    accounts = accounts_of(
        victim,
        [request.victim],
        request.defenses,
        ratings,
        n_rounds=max(request.rounds) + 1,
        seed=seed,
    )
    show_accounts(output, accounts)
    output.finish({"transcript": out, "truth": truth_path(out), "accounts": accounts_as_json(accounts)})
