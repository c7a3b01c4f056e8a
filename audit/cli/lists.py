"""``factorleak papers lists``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import (
    DataOption,
    JobsOption,
    JsonOption,
    QuietOption,
    SeedOption,
    VictimOptions,
    examples,
)
from audit.cli.output import Output
from audit.option_texts import parse_floats, parse_numbers
from victims.common.files import refuse_unwritable

EXAMPLES = examples(
    "factorleak papers lists --rho 1,4 --rounds 1,5",
    "factorleak papers lists --data ml-100k --set factors=20 --key-bits 2048",
)

RHOS, ROUNDS = ["0.5,1,2,4"], ["1,2,5,10"]


def lists(
    data: DataOption = "synthetic",
    out: Annotated[
        Path, typer.Option(help="Directory for results and the figure; cells in it are reused.")
    ] = Path("LISTS"),
    rho: Annotated[
        list[str], typer.Option("--rho", help="Sampled unrated items per rated one. Repeatable.")
    ] = RHOS,
    rounds: Annotated[
        list[str], typer.Option("--rounds", help="Numbers of rounds that the server watches. Repeatable.")
    ] = ROUNDS,
    items: Annotated[
        int | None, typer.Option(min=1, help="Keep this many of the most rated items. Default: all.")
    ] = None,
    key_bits: Annotated[int, typer.Option(help="Length of Paillier's key.")] = 1024,
    jobs: JobsOption = -1,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """FedMF between part-text and full-text: which items clients rated, against the cost of hiding them."""
    from audit.experiments.plan_rules import SEED
    from audit.option_texts import parse_options
    from audit.papers.list_privacy import Plan, run
    from reports.figures import list_privacy_figure
    from reports.tables import list_privacy_table
    from victims.common.validation import require
    from victims.data.subsets import most_rated

    require("lists", "seed", seed, SEED, "the default is 0")
    output = Output(quiet, as_json)
    refuse_unwritable(out)
    plan = Plan(
        data=data if items is None else f"{data}, {items} most rated items",
        rhos=tuple(dict.fromkeys(parse_floats("--rho", rho, "0.5,1,4"))),
        rounds=parse_numbers("--rounds", rounds),
        key_bits=key_bits,
        victim_options=parse_options(set_ or []),
        seed=seed,
    )
    start = time.perf_counter()
    ratings = output.load(data)
    ratings = ratings if items is None else most_rated(ratings, items)
    with output.progress("lists") as update_bar:
        rows = run(plan, ratings, out, jobs=jobs, report=update_bar)
    output.show(ratings.describe())
    output.show(list_privacy_table(rows, f"Rated items told by encrypted uploads, {key_bits} bit"))
    figures = list_privacy_figure(rows, out)
    for path in figures:
        output.show(f"figure {path}")
    output.results(rows, out, time.perf_counter() - start, figures=figures)
