"""What the commands share: options, progress, and printing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.shell.notes import complain, note
from victims.common.errors import InputError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from reports.layout import Sheet


class Update(StrEnum):
    """How clients update their factor."""

    SEMI_ALS = "semi-als"
    SGD = "sgd"


class Weighting(StrEnum):
    """Which rows clients upload."""

    OBSERVED_ONLY = "observed-only"
    INCLUDE_UNRATED = "include-unrated"


DataOption = Annotated[
    str,
    typer.Option(
        help="synthetic, synthetic:users=500,items=800,seed=1, ml-100k or filmtrust (fetched), or a path"
    ),
]
JobsOption = Annotated[int, typer.Option(min=-1, help="Parallel processes; -1 is one per core.")]
SeedOption = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Every random choice derives from it.")]
RoundsOption = Annotated[str, typer.Option(help="Rounds to record, counted from 0: 4,5 or 0-9 or both.")]
VictimOptions = Annotated[
    list[str] | None,
    typer.Option("--set", help="Hyper-parameter of the victim, name=value. Repeatable."),
]
AttackOptions = Annotated[
    list[str] | None, typer.Option("--option", help="Option of the attack, name=value. Repeatable.")
]
ComponentsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Replace item features by their first principal components."),
]
UpdatesOption = Annotated[list[Update] | None, typer.Option(help="Restrict the scenarios. Repeatable.")]
WeightingsOption = Annotated[list[Weighting] | None, typer.Option(help="Restrict the scenarios. Repeatable.")]
UpdateOption = Annotated[Update | None, typer.Option(help="Default: the victim's first.")]
WeightingOption = Annotated[Weighting | None, typer.Option(help="Default: the victim's first.")]
OneAttackOption = Annotated[
    list[str] | None, typer.Option(help="Option of one attack, ATTACK.name=value. Repeatable.")
]
DefenseOption = Annotated[
    list[str] | None,
    typer.Option(help="As laplace:scale=2,clip=10,known=false; several are applied in order."),
]
AdversaryOption = Annotated[
    str, typer.Option(help="Whose view is attacked; see `factorleak list adversaries`.")
]
UsersOption = Annotated[int | None, typer.Option(min=1, help="Record a random sample of this many clients.")]
CommunityOption = Annotated[
    int | None,
    typer.Option(min=1, help="Let a random sample of this many clients be all that there are."),
]


FailOnOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Exit 1 where a bar is crossed, 3 where it was not measured: leak, METRIC=X (an advantage above "
        "X), METRIC.advantage_low>X, METRIC.value>X; @adversary=server,attack=NAME restricts it. Repeatable."
    ),
]


def parse_rounds(text: str) -> list[int]:
    """``4,5`` or ``0-9`` as ascending numbers.

    Raises
    ------
    InputError
        If it is neither, or names more than 100,000 rounds.

    Examples
    --------
    >>> parse_rounds("0-2,7")
    [0, 1, 2, 7]
    """
    rounds: set[int] = set()
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        high = high or low
        if not (low.isdigit() and high.isdigit()) or len(low) > 6 or len(high) > 6:
            raise InputError(f"--rounds must look like 4,5 or 0-9, got {text!r}")
        if int(high) < int(low) or int(high) - int(low) > 100_000:
            raise InputError(f"--rounds range must ascend and be at most 100,000 long, got {part!r}")
        rounds.update(range(int(low), int(high) + 1))
    return sorted(rounds)


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """``1024,2048`` as numbers.

    Raises
    ------
    InputError
        If it is anything else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and len(part) < 10 for part in parts):
        raise InputError(f"{option} must be numbers as in 1024,2048, got {text!r}")
    return tuple(int(part) for part in parts)


def load(data: str, components: int | None, community: int | None = None, seed: int = 0) -> Any:
    """The ratings that ``--data`` names; features replaced by their components, fewer clients if wanted.

    What the loader decided about the file is said on stderr.
    """
    from victims.common.seeds import Purpose, generator
    from victims.data import loaders as datasets
    from victims.data.ratings import of_users, with_principal_components

    ratings = datasets.load(data)
    for text in ratings.notes:
        note(f"{ratings.name}: {text}")
    if components is not None:
        ratings = with_principal_components(ratings, components)
    if community is not None and community < ratings.n_users:
        chosen = generator(seed, Purpose.COMMUNITY).choice(ratings.n_users, community, replace=False)
        ratings = of_users(ratings, chosen)
    return ratings


def judge(conditions: Sequence[Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Hold the rows against the bars of ``--fail-on``: a line on stderr for each, and the exit code.

    Raises
    ------
    typer.Exit
        With 1 where a bar is crossed, else 3 where one was not measured.
    """
    from audit.cli.gate import check

    outcome = check(conditions, rows)
    for line in outcome.lines:
        complain(line)
    if outcome.code:
        raise typer.Exit(outcome.code)


def show(what: str | Table | Sheet) -> None:
    """Print a table or a line of text: folded to the width of a terminal, plain where there is none.

    Nothing in it is obeyed: control characters are shown.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from reports.layout import on_terminal, piped, sheet_of

    console = Console()
    if isinstance(what, str):
        text = Text(printable(what))
    else:
        sheet = sheet_of(what) if isinstance(what, Table) else what
        text = on_terminal(sheet, console.width) if console.is_terminal else Text(piped(sheet))
    emit((lambda: console.print(text)) if console.is_terminal else (lambda: print(text.plain)))


def emit(write: Callable[[], None]) -> None:
    """Write to stdout; where its reader has gone, the work and its exit code still count."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
