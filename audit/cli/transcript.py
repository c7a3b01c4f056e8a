"""``factorleak transcript``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import JsonOption, QuietOption, completing, examples
from audit.cli.output import Output

CHECK_EXAMPLES = examples(
    "factorleak transcript check demo",
    "factorleak transcript check demo --no-identify",
    "factorleak transcript check demo --json",
)
SCHEMA_EXAMPLES = examples("factorleak transcript schema", "factorleak transcript schema --version 1")


def check(
    transcript: Annotated[Path, typer.Argument(help="Directory of a recording of any origin.")],
    adversary: Annotated[
        str,
        typer.Option(
            help="Whose view attacks are asked about. Default: the one who recorded, or the server.",
            autocompletion=completing("adversaries"),
            show_default=False,
        ),
    ] = "",
    identify: Annotated[
        bool,
        typer.Option(help="Ask the uploads which rule they follow, which may take minutes."),
    ] = True,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a recording holds, what its rule is taken to be, and which attacks apply."""
    from audit.transcript_check import check_transcript
    from reports.tables import attacks_table, facts_table, families_table, rule_table

    output = Output(quiet, as_json)
    with output.progress("transcript check"):  # which rule the uploads follow may take a minute
        found = check_transcript(transcript, adversary, identified=identify)
    attacks = [one._asdict() for one in found.attacks]
    facts, rule = dict(found.facts), [one._asdict() for one in found.rule]
    output.show(facts_table(facts, transcript.name))
    output.show(rule_table(rule))
    if families := found.identified.families():
        output.show(families_table(families))
    output.show(attacks_table(attacks, found.adversary))
    if identify and found.identified.obstacle:
        output.show(f"The uploads tell no rule: {found.identified.obstacle}.")
    for undecided in found.identified.undecided:
        output.show(f"The uploads leave open: {undecided}.")
    if found.hint:
        output.show(found.hint)
    identified = found.identified.summary()
    content = {"adversary": found.adversary, "holds": facts, "rule": rule, "identified": identified}
    output.finish({**content, "attacks": attacks})


def schema(
    version: Annotated[int, typer.Option(min=1, max=2, help="Of the format.")] = 2,
    quiet: QuietOption = False,
    as_json: JsonOption = True,
) -> None:
    """Print the JSON Schema of manifest.json, with or without --json."""
    from victims.transcript.manifest import schema_of

    Output(quiet, as_json=True).finish(schema_of(version))
