"""``factorleak papers cost``."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.options import (
    DataOption,
    EstimateOption,
    JsonOption,
    PreferredWeightingOption,
    QuietOption,
    SeedOption,
    UpdateOption,
    VictimOption,
    VictimOptions,
    completing,
    examples,
)
from audit.cli.output import Output
from audit.option_texts import parse_numbers
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable

if TYPE_CHECKING:
    from audit.experiments.results import Row
    from reports.layout import Sheet as Printed

EXAMPLES = examples(
    "factorleak papers cost --victim dpmf-yang",
    "factorleak papers cost --items 40 --key-bits 1024 --no-phe",
    "factorleak papers cost --victim fedmvmf --defense unrated-sampling:rho=1",
)

KEY_BITS = ["1024,2048"]
GIGABITS = 1.0
BOTH = ("part-text", "full-text")  # uploads of the figure


def cost(
    out: Annotated[
        Path, typer.Option(help="Directory for results; what this machine measured in it is not repeated.")
    ] = Path("COST"),
    data: DataOption = "synthetic",
    victim: VictimOption = "fedmf",
    update: UpdateOption = None,
    weighting: PreferredWeightingOption = None,
    items: Annotated[
        list[str] | None,
        typer.Option(
            "--items", help="Numbers of most rated items, as 40,2560. Repeatable. Default: all items."
        ),
    ] = None,
    key_bits: Annotated[
        list[str],
        typer.Option("--key-bits", help="Lengths of Paillier's keys: 1024,2048. Repeatable."),
    ] = KEY_BITS,
    phe: Annotated[bool, typer.Option(help="Also measure phe as it comes, one number a ciphertext.")] = True,
    defense: Annotated[
        str,
        typer.Option(
            help="What goes before encryption, as unrated-sampling:rho=1, or none.",
            autocompletion=completing("defenses"),
        ),
    ] = "none",
    sample: Annotated[int, typer.Option(help="Rows that are encrypted, added and decrypted.")] = 256,
    gigabits: Annotated[float, typer.Option(help="Gigabits a second of the network.")] = GIGABITS,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Draw the server's share against the number of items in this directory, full-text and "
            "part-text (fedmf: Figures 2 and 3 of paper 001)."
        ),
    ] = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    estimate: EstimateOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Processor seconds in each phase of an encrypted round, bytes and memory, beside the papers' numbers.

    Where clients send to each other: messages, bytes and seconds of a round along the graph, in the clear or
    under the defense.
    """
    from audit.option_texts import parse_options
    from audit.papers.cost import EXPERIMENT, Sheet, settled, wide
    from reports.paper_figures import cost_figure
    from reports.paper_tables import published_lines

    output = Output(quiet, as_json, estimate)
    if not 0 < gigabits * 1e9 < math.inf:  # what the sheet refuses, too, in bits
        raise InputError(f"--gigabits must be > 0 and < 1e299, got {gigabits:g}; the default is {GIGABITS:g}")
    refuse_unwritable(out)
    if figure is not None:
        _refuse_undrawable(victim, set_ or [])
        refuse_unwritable(figure)
    options = parse_options(set_ or [])
    options |= {name: str(value) for name, value in (("update", update), ("weighting", weighting)) if value}
    sheet = Sheet(
        victim=victim,
        data=data,
        options=options,
        items=parse_numbers("--items", items) if items else (),
        key_bits=parse_numbers("--key-bits", key_bits),
        phe=phe,
        defense=defense,
        sample=sample,
        bits_per_second=gigabits * 1e9,
        seed=seed,
    )
    start = time.perf_counter()
    ways: list[dict[str, str]] = [{}] if figure is None else [{"upload": name} for name in BOTH]
    sheets = settled(tuple(replace(sheet, options={**sheet.options, **how}) for how in ways))
    ratings = output.load(data)
    output.show(ratings.describe())
    found = output.grid("cost", EXPERIMENT, sheets, ratings, out)
    by_upload = {}
    for upload in (str(one.options.get("upload", "")) for one in sheets):
        rows = wide([row for row in found if row["upload"] == upload])
        if rows:
            output.show(_table(victim, rows, upload))
        by_upload[upload] = rows
    figures = []
    if figure is not None and all(by_upload.values()):
        system = next(row["system"] for row in rows if row["system"] != "in the clear")
        figures = cost_figure(by_upload, system, figure)
        for path in figures:
            output.show(f"figure {path}")
    rows = [row for some in by_upload.values() for row in some]
    for note in dict.fromkeys(f"{row['system']}: {row['note']}" for row in rows):
        output.show(f"  {note}")
    for line in published_lines(victim):
        output.show(line)
    output.failures(found)
    output.results(found, out, time.perf_counter() - start, told=rows, figures=figures)


def _table(victim: str, rows: Sequence[Row], upload: str) -> Printed:
    """The rows of one kind of upload, with the papers' numbers."""
    from reports.paper_tables import of_the_upload, published_seconds
    from reports.tables import cost_table, graph_cost_table

    if "messages" in rows[0]:
        return graph_cost_table(rows, f"One round of {victim}: processor seconds; of clients: busiest / mean")
    for row in rows:
        row["paper"] = published_seconds(victim, row, upload)
    said = of_the_upload(victim, upload)
    return cost_table(rows, f"One round of {victim}{said}: processor seconds; of clients: busiest / mean")


def _refuse_undrawable(victim: str, pairs: Sequence[str]) -> None:
    """The figure is of FedMF's two uploads."""
    if victim != "fedmf":
        raise InputError(f"--figure draws fedmf alone, got {victim}; leave it out")
    if any(pair.startswith("upload=") for pair in pairs):
        raise InputError("--figure draws both uploads; leave --set upload out")
