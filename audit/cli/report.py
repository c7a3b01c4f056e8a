"""``factorleak report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import JsonOption, QuietOption, examples
from audit.cli.output import Output

EXAMPLES = examples(
    "factorleak report RESULTS",
    "factorleak report COMPARE/results.json --out PAGES --title 'Ratings of the shop'",
)


def report(
    results: Annotated[Path, typer.Argument(help="Directory of results, or its results.json.")],
    out: Annotated[
        Path | None, typer.Option(help="Directory for the page. Default: beside the results.")
    ] = None,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "What the traffic gives away",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Results as one self-contained page, as Markdown, and as figures."""

    from audit import actions

    output = Output(quiet, as_json)
    page, files = actions.report(results, out, title)
    output.show(page.headline)
    for path in files:
        output.show(f"written {path}")
    output.finish(
        {
            "headline": page.headline,
            "systems": [
                {"system": one.name, "verdict": one.verdict, "sentence": one.sentence} for one in page.systems
            ],
            "files": list(files),
        }
    )
