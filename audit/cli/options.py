"""The options of commands: those of plans, made from their fields, and what is about the command itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from audit.cli.output import Output
from audit.experiments import options as declared
from audit.experiments.options import Option, options_of_plan
from victims.common.errors import InputError

if TYPE_CHECKING:
    from audit.experiments.workers import Cluster

ALL_CORES = -1  # what --jobs means by default


def completing(group: str) -> Callable[[str], list[tuple[str, str]]]:
    """Make the shell completion of an option that takes a component."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        from audit.components import components

        return [(one.name, one.summary) for one in components(group) if one.name.startswith(incomplete)]

    return complete


def _flags(name: str, option: Option) -> tuple[str, ...]:
    return option.flags or (f"--{name.replace('_', '-')}",)


def _choices(name: str, values: tuple[str, ...]) -> Any:
    return StrEnum(name.capitalize(), {one.replace("-", "_"): one for one in values})


def asked(name: str, field: Any) -> Any:
    """The type of a command's parameter for a declared field, as typer takes it."""
    hint, option = get_args(field)
    optional = type(None) in get_args(hint)
    kind: Any = get_args(hint)[0] if optional else hint
    if option.choices:
        kind = _choices(name, option.choices)
    if option.read is not None:
        kind = list[kind if option.choices else str] | None
    elif kind is not bool and (optional or option.choices):
        kind = kind | None
    flags = () if kind is bool and not option.flags else _flags(name, option)
    complete = completing(option.group) if option.group else None
    return Annotated[kind, typer.Option(*flags, help=option.help, autocompletion=complete)]


QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print no tables, lines or progress; errors are still said.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of tables and lines.")]
VictimOptions = asked("set", declared.VictimOptions)
SeedOption = asked("seed", declared.Seed)
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
ComponentsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Replace item features by their first principal components."),
]
TagsOption = Annotated[
    Path | None,
    typer.Option(help="Replace item features by the tag genome in this directory (MovieLens)."),
]
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
SybilsOption = Annotated[
    int | None,
    typer.Option(
        "--sybils",
        min=1,
        help="Clients that the server registers beside them, the last ones by number: each rates every item.",
    ),
]
NamesOption = Annotated[
    bool,
    typer.Option("--names", help="With --by-client: also the clients' names, which lie beside a recording."),
]
FailOnOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Exit 1 where a bar is crossed, 3 where it was not measured: leak, METRIC=X (an advantage above "
        "X), METRIC.advantage_low>X, METRIC.value>X; @adversary=server,attack=NAME restricts it. Repeatable."
    ),
]


def from_plan(plan: Any, *, estimate: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function of ``plan``, ``output`` and options of its own.

    The command has an option for each field of the plan that declares one, ``--quiet`` and ``--json``, and
    ``--estimate`` unless the function has its own or none.
    """
    hints = get_type_hints(plan, include_extras=True)
    options = options_of_plan(plan)
    defaults = {
        one.name: one.default if one.default_factory is MISSING else one.default_factory()
        for one in fields(plan)
        if one.name in options
    }
    output = {"quiet": QuietOption, "as_json": JsonOption} | (
        {"estimate": EstimateOption} if estimate else {}
    )

    def make(function: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for one in inspect.signature(function, eval_str=True).parameters.values():
            if one.name == "plan":
                parameters += [
                    _keyword(name, asked(name, hints[name]), _shown(options[name], default))
                    for name, default in defaults.items()
                ]
            elif one.name != "output":
                parameters.append(one)
        parameters += [_keyword(name, hint, False) for name, hint in output.items()]

        def command(**given: Any) -> None:
            said = {
                name: _read(options[name], given.pop(name), default) for name, default in defaults.items()
            }
            how = Output(**{name: given.pop(name) for name in output})
            function(plan=plan(**said), output=how, **given)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__module__ = function.__module__
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return make


def _keyword(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _shown(option: Option, default: Any) -> Any:
    """A default as typer shows it."""
    if option.read is None:
        return None if option.choices else default
    return (
        [",".join(f"{one:g}" if isinstance(one, float) else str(one) for one in default)] if default else None
    )


def _read(option: Option, given: Any, default: Any) -> Any:
    """The value of a field."""
    if given is None or (given is False and default is None):
        return default
    if option.read is not None:
        return option.read(given)
    return str(given) if option.choices else given


def changed(plan: Any, *but: str) -> dict[str, bool]:
    """Which options differ from their defaults, by their names on the command line; ``but`` some fields."""
    declared_of = options_of_plan(type(plan))
    return {
        _flags(one.name, option)[0].removeprefix("--"): getattr(plan, one.name)
        != (one.default if one.default_factory is MISSING else one.default_factory())
        for one in fields(plan)
        for option in [declared_of.get(one.name)]
        if option is not None and one.name not in but
    }


def examples(*lines: str) -> str:
    """Write the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def workers(jobs: int, distributed: str | None) -> int | Cluster:
    """Choose who works: processes of this machine, or the workers of a scheduler."""
    if distributed is None:
        return jobs
    from audit.experiments.workers import Cluster

    if jobs != ALL_CORES:
        raise InputError(f"--distributed has workers of its own; leave --jobs {jobs} out")
    return Cluster(distributed)


def refuse_idle(why: str, **given: object) -> None:
    """Refuse options that mean nothing beside others."""
    for name, value in given.items():
        if value:
            raise InputError(f"--{name.replace('_', '-')} {why}; leave it out")
