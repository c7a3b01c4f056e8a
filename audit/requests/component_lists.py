"""What components there are, and what the options of each one are."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_type_hints

from audit.factories import problem_of
from audit.registry import COMBINED, Entry, entries, entry, main_name
from audit.requests.components import as_text
from victims.common.errors import InputError

GROUPS = ("victims", "defenses", "attacks", "adversaries")


class Option(NamedTuple):
    """One option of a component: its type and default as text, and what its docstring says of it."""

    name: str
    type: str
    default: str
    meaning: str


class Component(NamedTuple):
    """A component as lists show it; ``summary`` says why where it cannot be used."""

    group: str
    name: str
    summary: str


def components(group: str) -> list[Component]:
    """List every component of a group."""
    _refuse_unknown(group)
    if group == "adversaries":
        from victims.transcript.reader import ADVERSARIES

        return [Component(group, name, summary) for name, summary in ADVERSARIES.items()]
    return [
        Component(group, name, problem_of(group, name) or one.summary) for name, one in entries(group).items()
    ]


def options_of(group: str, name: str) -> list[Option]:
    """List the options of one victim, defense or attack."""
    _refuse_unknown(group)
    if group == "adversaries":
        raise InputError("adversaries take no options; give one to --adversary as it is")
    name = main_name(group, name)
    if group == "defenses" and name in COMBINED:
        parts = " and ".join(COMBINED[name])
        raise InputError(f"{name} is {parts} together and takes their options; list those")
    found = entry(group, name)
    component = found.load(f"{group[:-1]} {name!r}")
    return list(_options(component, found))


def _refuse_unknown(group: str) -> None:
    if group not in GROUPS:
        raise InputError(f"components must be one of {', '.join(GROUPS)}, got {group!r}")


def _options(component: type, found: Entry) -> Iterator[Option]:
    hints = get_type_hints(component)
    told: dict[str, str] = {}
    for one in reversed(component.__mro__):
        told |= _told(inspect.cleandoc(one.__doc__ or ""))
    shorter = {long: short for short, long in found.short.items()}
    for field in dataclasses.fields(component):
        if field.name == "name" or field.name in found.fixed or not field.init:
            continue
        short = f"also {shorter[field.name]}. " if field.name in shorter else ""
        default = "required" if field.default is dataclasses.MISSING else as_text(field.default)
        yield Option(field.name, _type(hints[field.name]), default, short + told.get(field.name, ""))


def _type(hint: Any) -> str:
    """A type as a person writes it: choices, or the name.

    Examples
    --------
    >>> from typing import Literal
    >>> _type(float | None), _type(int | Literal["all"])
    ('float | none', 'int | all')
    """
    if hint is type(None):
        return "none"
    inside = get_args(hint)
    if not inside:
        return getattr(hint, "__name__", str(hint))
    return " | ".join(_type(one) if isinstance(one, type) or get_args(one) else str(one) for one in inside)


def _told(docstring: str) -> dict[str, str]:
    """What the section Attributes of a NumPy-style docstring says of each name; at least its type.

    Examples
    --------
    >>> _told("Words.\\n\\nAttributes\\n----------\\na, b : int\\n    Two of them.\\n\\nMore.")
    {'a': 'Two of them.', 'b': 'Two of them.'}
    """
    lines = docstring.splitlines()
    heads = [row for row, line in enumerate(lines[1:]) if line.startswith("---")]
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for place in [head for head in heads if lines[head].strip() == "Attributes"]:
        for line in lines[place + 2 :]:
            if line and not line.startswith(" "):
                before, colon, kind = line.partition(" : ")
                if not colon:
                    break
                names = [name.strip() for name in before.split(",")]
                found |= {name: [kind] for name in names}
            else:
                for name in names:
                    found[name].append(line.strip())
    return {name: " ".join(words[1:] or words).strip() for name, words in found.items()}
