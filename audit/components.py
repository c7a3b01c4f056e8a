"""Components by name or as objects; what there are, and what their options are."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from audit.experiments.options import OPTIONS_OF_ATTACKS
from audit.factories import make_defenses, make_victim, problem_of
from audit.registry import COMBINED, Entry, adopt, entries, entry, main_name
from victims.common.errors import InputError
from victims.common.validation import require
from victims.protocols.base import Defense, Victim

GROUPS = ("victims", "defenses", "attacks", "adversaries")
SCENARIO = ("update", "weighting")  # a victim that is given as an object has one of each
PLAIN = (str, int, float, bool, type(None))


class Named(NamedTuple):
    """A component by its name in the registry, its options, and whether it is known to this process only.

    Options are those that differ from the defaults and, of a victim, its scenario.
    """

    name: str
    options: dict[str, Any]
    adopted: bool = False


def named(group: Literal["victims", "defenses", "attacks"], component: object) -> Named:
    """The registry's name of a component, given as that name or as an object.

    An object whose class nobody offers is taken up under its ``name`` (a victim: the name of its class in
    lower case), in this process only.
    """
    if isinstance(component, str):
        return Named(component, {}, entries(group).get(component, NOBODY).adopted)
    if not dataclasses.is_dataclass(component) or isinstance(component, type):
        raise InputError(
            f"{group[:-1]} must be a name or an instance of a dataclass, got {component!r:.80}; "
            "see list_components"
        )
    values = {f.name: getattr(component, f.name) for f in dataclasses.fields(component) if f.init}
    name = _registered(group, type(component), values) or adopt(group, component)
    found = entry(group, name)
    defaults = {f.name: f.default for f in dataclasses.fields(component)}
    changed = {
        key: value
        for key, value in values.items()
        if key not in ("name", *found.fixed) and (value != defaults[key] or key in SCENARIO)
    }
    for key, value in changed.items():
        if not isinstance(value, PLAIN):
            raise InputError(f"option {key} of {name} must be a number, text, true, false or none")
    return Named(name, changed, found.adopted)


NOBODY = Entry("", "")


def _registered(group: str, kind: type, values: Mapping[str, Any]) -> str:
    """The name under which a class is offered, with the fixed options that the object has."""
    location = f"{kind.__module__}:{kind.__qualname__}"
    for name, one in entries(group).items():
        fixed = all(values.get(key) == value for key, value in one.fixed.items())
        if one.location == location and fixed and not (one.refused or one.adopted):
            return name
    return ""


class NamedAttacks(NamedTuple):
    """Attacks by name, each once, and the options of each; whether any is known to this process only."""

    names: tuple[str, ...]
    options: dict[str, dict[str, Any]]
    adopted: bool


class DefenseTexts(NamedTuple):
    """Defenses as texts in order; whether any is known to this process only."""

    texts: tuple[str, ...]
    adopted: bool


def named_attacks(attacks: object, options: Mapping[str, Mapping[str, Any]] | None) -> NamedAttacks:
    """Name attacks that are given by name or as objects, and collect the options of each."""
    options = {} if options is None else options
    require("attacks", "options", options, OPTIONS_OF_ATTACKS, "give {'grid': {'steps': 3}}, say")
    found = [named("attacks", one) for one in several(attacks)]
    known = {name: dict(values) for name, values in options.items()}
    for one in found:
        if one.options:
            known[one.name] = one.options
    names = tuple(dict.fromkeys(one.name for one in found))
    return NamedAttacks(names, known, any(one.adopted for one in found))


def defense_texts(defenses: object) -> DefenseTexts:
    """Write defenses that are given as texts or as objects as texts, in order."""
    found: list[str] = []
    adopted = False
    for one in several(defenses):
        if isinstance(one, str):
            found.append(one)
            continue
        name, options, here = named("defenses", one)
        pairs = ",".join(f"{key}={as_text(value)}" for key, value in options.items())
        found.append(f"{name}:{pairs}" if pairs else name)
        adopted |= here
    return DefenseTexts(tuple(found), adopted)


def several(components: object) -> tuple[Any, ...]:
    """Make a tuple of one component or several."""
    if components is None:
        return ()
    if isinstance(components, str) or not isinstance(components, Iterable):
        return (components,)
    try:
        return tuple(components)
    except TypeError:  # an array of no dimension
        return (components,)


def victim_of(victim: object, options: Mapping[str, Any]) -> Victim:
    """Make a victim that is given as a name with options, or take it as an object."""
    if isinstance(victim, str):
        return make_victim(victim, dict(options))
    if options:
        raise InputError(f"options go into the victim that is given as an object, got {', '.join(options)}")
    if not isinstance(victim, Victim):
        raise InputError(
            f"victim must be a name or have the verbs of factorleak.plugins.Victim, got {victim!r:.80}"
        )
    return victim


def defenses_of(defenses: object) -> list[Defense]:
    """Make the defenses that are given as texts, and take those that are objects, in order."""
    found: list[Defense] = []
    for one in several(defenses):
        if isinstance(one, str):
            found += make_defenses(one)
        elif isinstance(one, Defense):
            found.append(one)
        else:
            raise InputError(
                f"defense must be a name or have the verbs of factorleak.plugins.Defense, got {one!r:.80}"
            )
    return found


def as_text(value: object) -> str:
    """Write a value as on a command line; nothing in it looks like the + between defenses.

    Examples
    --------
    >>> [as_text(value) for value in (True, None, 1e30, "fresh")]
    ['true', 'none', '1e30', 'fresh']
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value).replace("e+", "e")


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
        from victims.transcript.adversaries import ADVERSARIES

        return [Component(group, name, summary) for name, summary in ADVERSARIES.items()]
    return [
        Component(group, name, problem_of(group, name) or one.summary) for name, one in entries(group).items()
    ]


def options_of(group: str, name: str) -> list[Option]:
    """List the options of one victim, defense or attack."""
    _refuse_unknown(group)
    if group == "adversaries":
        raise InputError(
            "options of an adversary stand in its name, as active-server:targets=30; "
            "`factorleak list adversaries` has all"
        )
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
