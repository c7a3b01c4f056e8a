"""The scenarios and options of a grid, with what was left empty filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from audit.experiments.sweep_cells import PAPER
from audit.factories import scenarios_of

PREFERRED = "include-unrated"


class Scenarios(NamedTuple):
    """Updates and weightings of a grid, and the other options of its victim."""

    updates: tuple[str, ...]
    weightings: tuple[str, ...]
    options: dict[str, Any]


def scenarios(
    victim: str, updates: Iterable[object], weightings: Iterable[object], options: Mapping[str, Any]
) -> Scenarios:
    """The scenarios that are asked for, by name or as the victim's options, each once; else all.

    Raises
    ------
    InputError
        If the victim is unknown.
    """
    rest = dict(options)
    all_updates, all_weightings = scenarios_of(victim)
    update, weighting = rest.pop("update", None), rest.pop("weighting", None)
    return Scenarios(
        _chosen(updates, update, all_updates), _chosen(weightings, weighting, all_weightings), rest
    )


def _chosen(asked: Iterable[object], option: object, every: tuple[str, ...]) -> tuple[str, ...]:
    given = tuple(dict.fromkeys(map(str, asked)))
    return given or (every if option is None else (str(option),))


def scenario_of(victim: str, update: str | None, weighting: str | None) -> tuple[str, str]:
    """As given, else the victim's first update, and include-unrated where it has that."""
    updates, weightings = scenarios_of(victim)
    usual = PREFERRED if PREFERRED in weightings else weightings[0]
    return update or updates[0], weighting or usual


def sweep_options(
    attacks: tuple[str, ...], options: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Options of the attacks of a sweep; the paper's procedure takes ten solutions unless told otherwise."""
    found: dict[str, dict[str, Any]] = {PAPER: {"solutions": "10"}} if PAPER in attacks else {}
    for name, values in options.items():
        found.setdefault(name, {}).update(values)
    return found
