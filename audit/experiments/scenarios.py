"""The scenarios and options of a grid, with what was left empty filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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
    """Choose the scenarios that are asked for, by name or as the victim's options, each once; else all.

    Parameters
    ----------
    victim : str
        In the registry.
    updates : iterable
        Names of updates; empty leaves the choice to ``options``.
    weightings : iterable
        Names of weightings; empty leaves the choice to ``options``.
    options : mapping of str to Any
        Of the victim; ``update`` and ``weighting`` in it are choices, too.

    Returns
    -------
    Scenarios
        Its options are without ``update`` and ``weighting``.

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
    """Choose one scenario: as given, else the victim's first update, and include-unrated where it has that.

    Parameters
    ----------
    victim : str
        In the registry.
    update : str or None
        None, or an empty text, leaves the choice open.
    weighting : str or None
        None, or an empty text, leaves the choice open.

    Returns
    -------
    str
        The update.
    str
        The weighting.

    Raises
    ------
    InputError
        If the victim is unknown.
    """
    updates, weightings = scenarios_of(victim)
    usual = PREFERRED if PREFERRED in weightings else weightings[0]
    return update or updates[0], weighting or usual
