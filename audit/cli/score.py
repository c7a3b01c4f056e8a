"""``factorleak score``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import FailOnOption, JsonOption, NamesOption, QuietOption, SeedOption, examples
from audit.cli.output import Output, judge
from victims.common.errors import InputError

EXAMPLES = examples(
    "factorleak score RECONSTRUCTION.arrow --truth demo.truth.arrow",
    "factorleak score theirs.parquet --truth demo.truth.arrow --transcript demo --json",
)


def score(
    reconstruction: Annotated[Path, typer.Argument(help="File that `factorleak attack` wrote.")],
    truth: Annotated[Path, typer.Option(help="NAME.truth.arrow of the transcript.")],
    transcript: Annotated[
        Path | None,
        typer.Option(
            help="Transcript directory; for reconstructions of other software, and for the ceiling "
            "of uploads under a defense."
        ),
    ] = None,
    reliability: Annotated[
        bool, typer.Option(help="Also show whether the attack's own probabilities are right.")
    ] = False,
    by_client: Annotated[
        bool, typer.Option("--by-client", help="Also show of whom how much is recovered.")
    ] = False,
    names: NamesOption = False,
    fail_on: FailOnOption = None,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Score a reconstruction against the truth, beside the best guess without the transcript."""
    from audit import actions
    from audit.cli.gate import parse
    from audit.scoring.clients import as_records
    from audit.scoring.verdicts import grouped
    from reports.tables import clients_table, reliability_table, score_table
    from victims.transcript.adversaries import names_of

    output = Output(quiet, as_json)
    bars = parse(fail_on or [])
    if names and (not by_client or transcript is None):
        raise InputError("--names is about lines of --by-client, and lies beside --transcript; give both")
    with output.progress("score"):
        found = actions.score(
            reconstruction, truth, transcript=transcript, with_reliability=reliability, seed=seed
        )
    manifest, read = found.manifest, found.reconstruction
    name = f"{read.attack} on {manifest.title}"
    output.show(score_table(found.metrics, name))
    if reliability:
        bins = [one._asdict() for one in found.bins]
        output.show(
            reliability_table(bins)
            if bins
            else "reliability: the attack gave no probabilities of what it tells"
        )
    if found.no_ceiling:
        output.show(f"no ceiling: {found.no_ceiling}")
    for reason, count in grouped(read.abstained.values())[:5]:
        output.show(f"abstained on {count} (they count with the best guess): {reason}")
    content = found.content(reliability)
    if by_client:
        content["clients"] = as_records(found.clients, names_of(transcript) if names and transcript else None)
        output.show(clients_table(content["clients"], f"Of whom {read.attack} recovers how much"))
    output.finish(content)
    judge(bars, found.rows)
