"""``factorleak attack``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import JsonOption, QuietOption, SeedOption, asked, completing, examples
from audit.cli.output import Output
from audit.experiments import options

EXAMPLES = examples(
    "factorleak attack demo",
    "factorleak attack demo --attack likelihood --option prior=flat --out likelihood.arrow",
)

AdversaryOption = asked("adversary", options.Adversary)
OneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", help="Option of the attack, name=value; see `factorleak list attacks NAME`. Repeatable."
    ),
]
UNDER = "under the rule that the uploads show:"


def attack(
    transcript: Annotated[Path, typer.Argument(help="Transcript directory.")],
    attack: Annotated[
        str | None,
        typer.Option(
            help="See `factorleak list attacks`. Default: spectral; undeclared where clients take a step "
            "that spectral does not know; aggregate where nothing but sums is seen.",
            autocompletion=completing("attacks"),
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Reconstruction file to write.")] = Path("RECONSTRUCTION.arrow"),
    adversary: AdversaryOption = "server",
    users: Annotated[int | None, typer.Option(help="Attack a random sample of this many clients.")] = None,
    seed: SeedOption = 0,
    option: OneOption = None,
    identify: Annotated[
        bool,
        typer.Option("--identify", help="Attack under the client rule that the uploads show."),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Attack a transcript and write what was read."""
    from attacks.base import RELATIVE
    from audit import actions
    from audit.experiments.rows import ALONE
    from audit.option_texts import parse_options
    from audit.scoring.files import write_reconstruction
    from audit.scoring.verdicts import grouped
    from victims.transcript.adversaries import called_by_name

    output = Output(quiet, as_json)
    with output.progress(attack or "attack") as update_bar:
        response = actions.attack(
            transcript, attack, update_bar,
            adversary=adversary, users=users, seed=seed,
            options=parse_options(option or []), identified=identify,
        )  # fmt: skip
    found, view, seconds = response.reconstruction, response.view, response.seconds
    write_reconstruction(out, found, view.manifest, adversary=view.adversary, seconds=seconds)
    if called := called_by_name(transcript, view.adversary):
        output.show(f"{called}.")
    clients = "1 client" if found.users.size == 1 else f"{found.users.size} clients"
    output.show(
        f"{found.attack}: {clients} in {seconds:.2f} s, {len(found.abstained)} abstained; wrote {out}"
    )
    if found.scope in RELATIVE and found.applies:
        output.show(f"  {ALONE[found.scope]}")
    told = response.identification
    if told is not None:
        output.show(f"  {UNDER} {told.words()}")
    reasons = grouped(found.abstained.values())
    for reason, count in reasons[:5]:
        output.show(f"  abstained on {count}: {reason}")
    content = {
        "reconstruction": out,
        "attack": found.attack,
        "adversary": view.adversary,
        "clients": int(found.users.size),
        "about": found.scope,
        "abstained": [{"clients": count, "reason": reason} for reason, count in reasons],
        "seconds": seconds,
    }
    if told is not None:
        content["identified"] = told.summary()
    if "converged" in found.diagnostics:
        converged = found.diagnostics["converged"]
        content["converged"] = int(converged.sum())
        output.show(f"  the solver converged for {int(converged.sum())} of {converged.size} clients")
    output.finish(content)
