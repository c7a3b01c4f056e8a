"""The scenarios and options of a grid, with what was left empty filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from audit.factories import scenarios_of
from victims.common.errors import InputError

PREFERRED = "include-unrated"


class Scenarios(NamedTuple):
    """Updates and weightings of a grid, and the other options of its victim."""

    updates: tuple[str, ...]
    weightings: tuple[str, ...]
    options: dict[str, Any]


def scenarios(
    victim: str, updates: Iterable[object], weightings: Iterable[object], options: Mapping[str, Any]
) -> Scenarios:
    """Choose the scenarios that are asked for, by name or as the victim's options, each once; else all."""
    all_updates, all_weightings = scenarios_of(victim)
    own, rest = _apart(options)
    first, second = tuple(dict.fromkeys(map(str, updates))), tuple(dict.fromkeys(map(str, weightings)))
    _refuse_two_choices(own, update=first, weighting=second)
    return Scenarios(
        first or ((own["update"],) if own["update"] else all_updates),
        second or ((own["weighting"],) if own["weighting"] else all_weightings),
        rest,
    )


class Scenario(NamedTuple):
    """One scenario, and the other options of its victim."""

    update: str
    weighting: str
    options: dict[str, Any]


def one_scenario(victim: str, update: str, weighting: str, options: Mapping[str, Any]) -> Scenario:
    """Choose one scenario, by name or as the victim's options."""
    own, rest = _apart(options)
    _refuse_two_choices(own, update=[update], weighting=[weighting])
    return Scenario(*scenario_of(victim, update or own["update"], weighting or own["weighting"]), rest)


def _apart(options: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Update and weighting that options name, empty where they do not or say none, and the other options."""
    rest = dict(options)
    return {name: str(rest.pop(name, None) or "") for name in ("update", "weighting")}, rest


def _refuse_two_choices(options: Mapping[str, str], **asked: Iterable[object]) -> None:
    for name, choices in asked.items():
        given = [str(choice) for choice in choices if choice]
        if given and options[name] and given != [options[name]]:
            raise InputError(
                f"{name} must be said once, got {', '.join(given)} and {name}={options[name]} in set; leave "
                "one out"
            )


def scenario_of(victim: str, update: str | None, weighting: str | None) -> tuple[str, str]:
    """Choose one scenario: as given, else the victim's first update."""
    updates, weightings = scenarios_of(victim)
    usual = PREFERRED if PREFERRED in weightings else weightings[0]
    return update or updates[0], weighting or usual
