"""Components made from names, texts and options, and what these say of themselves: scenarios, attackers."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from attacks.base import Attack
from audit.option_texts import named_options
from audit.plugins import broken_member, offered, said
from audit.registry import COMBINED, entries, entry, main_name
from audit.shell.debugging import HINT
from victims.common.declarations import did_you_mean, first_complaint
from victims.common.errors import InputError
from victims.protocols.base import Attacker, Defense, Victim

MOST_KEPT = 256  # classes


def make_attack(name: str, options: dict[str, Any] | None = None) -> Attack:
    """Make an attack from its name and options."""
    return _make("attacks", name, options or {})


def make_victim(name: str, options: dict[str, Any] | None = None) -> Victim:
    """Make a victim from its name and hyper-parameters."""
    return _make("victims", name, options or {})


def make_served(victim: Victim, server: str) -> Any:
    """Put a victim under an active server, by the adversary's name; empty is an honest one."""
    if not server:
        return victim
    from victims.protocols.active_server import TOLD, ActiveServer

    name, options = named_options(server)
    _refuse_unknown(name, options, TOLD, sorted(TOLD))
    return _validated(name, ActiveServer, {**options, "victim": victim})


def problem_of(group: str, name: str) -> str:
    """Say why a component of another package cannot be used with its default options."""
    found = entries(group)[name]
    if found.refused or not found.package:
        return found.refused and f"refused: {found.refused}"
    try:
        _make(group, name, {})
    except InputError as error:
        return str(error)
    return ""


def scenarios_of(victim: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Say which updates and weightings a victim knows."""
    hints = _hints_of(entry("victims", victim).load(f"victim {victim!r}"))
    found = get_args(hints.get("update")), get_args(hints.get("weighting"))
    if not all(found):
        raise InputError(
            f"victim {victim!r} must have the fields update and weighting, each a Literal of its choices"
        )
    return found


def make_defenses(text: str) -> list[Defense]:
    """Make the defenses that a text stands for, in order."""
    return [make_defense(single) for single in expanded(text)]


def make_defense(text: str) -> Defense:
    """Make one defense from a text."""
    name, options = named_options(text)
    return _make("defenses", name, options)


def expanded(text: str) -> list[str]:
    """The single defenses that a text stands for, none for ``none``.

    Options of a combined name go to the parts that know them.

    Examples
    --------
    >>> expanded("privmvmf")
    ['unrated-sampling:rho=1', 'paillier']
    """
    if text == "none":
        return []
    return [single for part in text.split("+") for single in _parts(part)]


# what a defense meets that names no attack: one that estimates noise, one that takes no declared client
# update rule for granted, as the defense may break it, and one that reads lists
UNDECLARED = (Attacker("likelihood", 2), Attacker("undeclared"), Attacker("rated-set", 2))


def attackers_of(victim: str, options: dict[str, Any], defense: str = "none") -> tuple[Attacker, ...]:
    """List the attacks that a victim and its defenses say adapt to them, each once."""
    declared = [make_victim(victim, options).capabilities.attackers]
    declared += [one.attackers or UNDECLARED for one in make_defenses(defense)]
    found: dict[str, Attacker] = {}
    for attacker in (attacker for part in declared for attacker in part):
        before = found.get(attacker.name, attacker)
        found[attacker.name] = max(before, attacker, key=lambda one: one.rounds)
    return tuple(found.values())


def _parts(text: str) -> list[str]:
    name, options = named_options(text)
    if name in offered("defenses"):
        entry("defenses", name)
    name = main_name("defenses", name)
    if name not in COMBINED:
        return [text]
    known = {component: _options_of("defenses", component) for component in COMBINED[name]}
    for option in options:
        if any(option in fixed for fixed in COMBINED[name].values()):
            raise InputError(f"{name} fixes the option {option!r}; name its parts to choose another value")
        if not any(option in names for names in known.values()):
            every = sorted(set().union(*known.values()))
            meant = did_you_mean(option, every)
            raise InputError(f"{name} has no option {option!r}{meant}; it takes {', '.join(every)}")
    out = []
    for component, fixed in COMBINED[name].items():
        own = {**fixed, **{key: value for key, value in options.items() if key in known[component]}}
        pairs = ",".join(f"{key}={value}" for key, value in own.items())
        out.append(f"{component}:{pairs}" if pairs else component)
    return out


def _options_of(group: str, name: str) -> set[str]:
    found = entry(group, name)
    fields = dataclasses.fields(found.load(f"{group[:-1]} {name!r}"))
    names = {f.name for f in fields} - set(found.fixed) - {"name"}
    return names | {short for short, long in found.short.items() if long in names}


def _make(group: str, name: str, options: dict[str, Any]) -> Any:
    found, what = entry(group, name), f"{group[:-1]} {name!r}"
    factory = found.load(what)
    known = _options_of(group, name)
    _refuse_unknown(name, options, known, sorted(known - set(found.short)))
    options = {found.short.get(key, key): value for key, value in options.items()}
    values = {key: None if value == "none" else value for key, value in options.items()}
    try:
        made = _validated(name, factory, {**values, **found.fixed})
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        if not found.package:
            raise
        raise InputError(f"{what} of {found.package} cannot be made: {said(error)}; {HINT}") from error
    if found.package and (missing := broken_member(group, made)):
        raise InputError(f"{what} of {found.package} ({found.location}) {missing}")
    return made


def _refuse_unknown(name: str, options: Iterable[str], known: Collection[str], listed: list[str]) -> None:
    for option in options:
        if option not in known:
            meant = did_you_mean(option, listed)
            raise InputError(
                f"{name} has no option {option!r}{meant}; it takes {', '.join(listed) or 'none'}"
            )


def _validated(name: str, factory: type, values: dict[str, Any]) -> Any:
    try:
        return _adapter_of(factory).validate_python(values)
    except ValidationError as error:
        wrong = first_complaint(error)
        raise InputError(
            f"{name} option {wrong}, got {wrong.got!s:.80}" if wrong.where else wrong.rule
        ) from None


@lru_cache(MOST_KEPT)  # a campaign makes the same components thousands of times, and this takes milliseconds
def _adapter_of(factory: type) -> Any:
    return TypeAdapter(factory)


@lru_cache(MOST_KEPT)
def _hints_of(factory: type) -> dict[str, Any]:
    return get_type_hints(factory)
