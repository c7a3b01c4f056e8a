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
    style: Annotated[
        str, typer.Option(help="Of the figures beside the page: screen, or paper (narrow, serif).")
    ] = "screen",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Results as one self-contained page, as Markdown, and as figures."""

    from audit import actions

    output = Output(quiet, as_json)
    page, files = actions.report(results, out, title, style)
    output.show(f"{page.summary.severity.upper()}: {page.summary.sentence}".removeprefix(": "))
    for name, words in page.summary.facts:
        output.show(f"{name}: {words}")
    for path in files:
        output.show(f"written {path}")
    output.finish(
        {
            "headline": page.summary.sentence,
            "severity": page.summary.severity,
            "summary": dict(page.summary.facts),
            "systems": [
                {
                    "system": one.name,
                    "severity": one.severity,
                    "verdict": one.verdict,
                    "sentence": one.sentence,
                }
                for one in page.systems
            ],
            "files": list(files),
        }
    )
