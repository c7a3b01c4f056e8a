"""``factorleak record``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import CommunityOption, ComponentsOption, SybilsOption, examples, from_plan
from audit.cli.output import Output, accounts_as_json, show_accounts
from audit.experiments.plan import Recording

EXAMPLES = examples(
    "factorleak record demo --update sgd",
    "factorleak record demo --data ml-100k --victim mf --rounds 0-4 --defense laplace:scale=1",
)


@from_plan(Recording, estimate=False)
def record(
    *,
    output: Output,
    out: Annotated[Path, typer.Argument(help="Transcript directory to create.")],
    plan: Recording,
    community: CommunityOption = None,
    item_components: ComponentsOption = None,
    sybils: SybilsOption = None,
) -> None:
    """Run one victim and keep its transcript; truth and factors (and the clients' key) go beside it."""
    from audit import actions
    from audit.accounts import accounts_of
    from audit.factories import make_defenses, make_victim, scenarios_of
    from victims.transcript.beside import truth_path

    updates, weightings = scenarios_of(plan.victim)
    scenario = {"update": plan.update or updates[0], "weighting": plan.weighting or weightings[0]}
    victim = make_victim(plan.victim, {**plan.victim_options, **scenario})
    defenses = [one for text in plan.defenses for one in make_defenses(text)]
    with output.progress("round") as update_bar:
        ratings = actions.record(
            victim,
            lambda: output.load(plan.data, item_components, community, plan.seed, sybils=sybils),
            out, update_bar,
            rounds=plan.rounds, users=plan.users, defenses=defenses, seed=plan.seed,
        )  # fmt: skip
    output.show(ratings.describe())
    output.show(f"transcript {out}, truth {truth_path(out)}")
    n_rounds = max(plan.rounds) + 1
    accounts = accounts_of(plan.victim, [victim], defenses, ratings, n_rounds=n_rounds, seed=plan.seed)
    show_accounts(output, accounts)
    output.finish({"transcript": out, "truth": truth_path(out), "accounts": accounts_as_json(accounts)})
