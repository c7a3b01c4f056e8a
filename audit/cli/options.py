"""The options that commands share.

How their values are read: ``audit.cli.option_values``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from victims.common.errors import InputError

if TYPE_CHECKING:
    from audit.experiments.cluster import Cluster

WATCHED = ["4,5"]  # rounds, where nothing is said


class Update(StrEnum):
    """How clients update their factor."""

    SEMI_ALS = "semi-als"
    SGD = "sgd"


class Weighting(StrEnum):
    """Which rows clients upload."""

    OBSERVED_ONLY = "observed-only"
    INCLUDE_UNRATED = "include-unrated"


def completing(group: str) -> Callable[[str], list[tuple[str, str]]]:
    """Make the shell completion of an option that takes a component."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        from audit.requests.component_lists import components

        return [(one.name, one.summary) for one in components(group) if one.name.startswith(incomplete)]

    return complete


QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print no tables, lines or progress; errors are still said.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of tables and lines.")]
DataOption = Annotated[
    str,
    typer.Option(
        help="synthetic, synthetic:users=500,items=800,seed=1, ml-100k or filmtrust (fetched), or a path"
    ),
]
VictimOption = Annotated[
    str, typer.Option(help="See `factorleak list victims`.", autocompletion=completing("victims"))
]
AttacksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--attack",
        "--attacks",
        help="Attack to run; see `factorleak list attacks`. Repeatable. Default: those that adapt to the "
        "victim and its defenses.",
        autocompletion=completing("attacks"),
    ),
]
ALL_CORES = -1  # what --jobs means by default
JobsOption = Annotated[int, typer.Option(min=-1, help="Parallel processes; -1 is one per core.")]
DistributedOption = Annotated[
    str | None,
    typer.Option(
        "--distributed",
        metavar="ADDRESS",
        help="Work on the workers of this Dask scheduler, tcp://HOST:8786, in place of processes here "
        "(extra distributed).",
    ),
]
SeedOption = Annotated[int, typer.Option(help="Every random choice derives from it.")]
RoundsOption = Annotated[
    list[str], typer.Option("--rounds", help="Rounds to record, counted from 0: 4,5 or 0-9. Repeatable.")
]
VictimOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Hyper-parameter of the victim, name=value; see `factorleak list victims NAME`. Repeatable.",
    ),
]
AttackOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option", help="Option of the attack, name=value; see `factorleak list attacks NAME`. Repeatable."
    ),
]
ComponentsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Replace item features by their first principal components."),
]
TagsOption = Annotated[
    Path | None,
    typer.Option(help="Replace item features by the tag genome in this directory (MovieLens)."),
]
UpdatesOption = Annotated[list[Update] | None, typer.Option(help="Restrict the scenarios. Repeatable.")]
WeightingsOption = Annotated[list[Weighting] | None, typer.Option(help="Restrict the scenarios. Repeatable.")]
UpdateOption = Annotated[Update | None, typer.Option(help="Default: the victim's first.")]
WeightingOption = Annotated[Weighting | None, typer.Option(help="Default: the victim's first.")]
PreferredWeightingOption = Annotated[
    Weighting | None, typer.Option(help="Default: include-unrated where the victim has it.")
]
OneAttackOption = Annotated[
    list[str] | None, typer.Option(help="Option of one attack, ATTACK.name=value. Repeatable.")
]
DefenseOption = Annotated[
    list[str] | None,
    typer.Option(
        help="As laplace:scale=2,clip=10,known=false. Repeatable: several are applied in order.",
        autocompletion=completing("defenses"),
    ),
]
AdversaryOption = Annotated[
    str,
    typer.Option(
        help="Whose view is attacked; see `factorleak list adversaries`.",
        autocompletion=completing("adversaries"),
    ),
]
SplitOption = Annotated[
    str,
    typer.Option(
        "--split", help="How ratings are held out: random, time (the latest), last:3 (of each client)."
    ),
]
TestFractionOption = Annotated[float, typer.Option(help="Share of ratings held out by random and time.")]
UsersOption = Annotated[int | None, typer.Option(help="Record a random sample of this many clients.")]
SampleOption = Annotated[int, typer.Option(help="Clients for attacks that solve client by client (root-*).")]
EstimateOption = Annotated[
    bool,
    typer.Option(
        "--estimate",
        help="Say about how long it will take, from one cell of each kind that was never timed; stop there.",
    ),
]
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


def examples(*lines: str) -> str:
    """Write the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def workers(jobs: int, distributed: str | None) -> int | Cluster:
    """Choose who works: processes of this machine, or the workers of a scheduler."""
    if distributed is None:
        return jobs
    from audit.experiments.cluster import Cluster

    if jobs != ALL_CORES:
        raise InputError(f"--distributed has workers of its own; leave --jobs {jobs} out")
    return Cluster(distributed)


def refuse_idle(why: str, **given: object) -> None:
    """Refuse options that mean nothing beside others."""
    for name, value in given.items():
        if value:
            raise InputError(f"--{name.replace('_', '-')} {why}; leave it out")
