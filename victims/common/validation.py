"""Rules of parameters, and the one message for those that break them.

A constructor states its rules as ``require_fields(self, "laplace", scale=at_least(0))``, a function checks
one argument with ``require``. Files are checked where they are read, for their messages name a row as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from victims.common.errors import InputError


class Rule(NamedTuple):
    """What a value must be.

    Attributes
    ----------
    text : str
        Completes "must be".
    holds : callable
        Whether a value obeys. One of another type may raise TypeError or ValueError and breaks the rule.
    """

    text: str
    holds: Callable[[Any], bool]


def at_least(low: int | float) -> Rule:
    """State that a value is a finite number, ``low`` or larger.

    Parameters
    ----------
    low : int or float

    Returns
    -------
    Rule
    """
    return Rule(f">= {low:g}", lambda value: low <= value < math.inf)


def above(low: int | float) -> Rule:
    """State that a value is a finite number, larger than ``low``.

    Parameters
    ----------
    low : int or float

    Returns
    -------
    Rule
    """
    return Rule(f"> {low:g}", lambda value: low < value < math.inf)


def between(low: int | float, high: int | float) -> Rule:
    """State that a value is a number in the closed interval.

    Parameters
    ----------
    low, high : int or float
        Both are allowed.

    Returns
    -------
    Rule
    """
    return Rule(f"between {_written(low)} and {_written(high)}", lambda value: low <= value <= high)


def strictly_between(low: int | float, high: int | float) -> Rule:
    """State that a value is a number in the open interval.

    Parameters
    ----------
    low, high : int or float
        Neither is allowed.

    Returns
    -------
    Rule
    """
    return Rule(f"between {_written(low)} and {_written(high)}, exclusive", lambda value: low < value < high)


def in_half_open(low: int | float, high: int | float) -> Rule:
    """State that a value is a number in ``[low, high)``.

    Parameters
    ----------
    low, high : int or float
        The first is allowed.

    Returns
    -------
    Rule
    """
    return Rule(f"in [{_written(low)}, {_written(high)})", lambda value: low <= value < high)


def positive_share() -> Rule:
    """State that a value is a number in ``(0, 1]``.

    Returns
    -------
    Rule
    """
    return Rule("in (0, 1]", lambda value: 0 < value <= 1)


def one_of(*choices: object) -> Rule:
    """State that a value is one of a short list.

    Parameters
    ----------
    *choices : object
        One or more.

    Returns
    -------
    Rule
    """
    listed = ", ".join(map(str, choices[:-1])) + " or " * (len(choices) > 1) + str(choices[-1])
    return Rule(listed, lambda value: bool(value in choices))


def or_none(rule: Rule) -> Rule:
    """State that a value obeys a rule, or is None.

    Parameters
    ----------
    rule : Rule

    Returns
    -------
    Rule
    """
    return Rule(f"{rule.text}, or none", lambda value: value is None or rule.holds(value))


def each(rule: Rule) -> Rule:
    """State that there is at least one value, and that all of them obey a rule.

    Parameters
    ----------
    rule : Rule
        Of one value.

    Returns
    -------
    Rule
    """
    return Rule(
        f"one or more, each {rule.text}", lambda values: bool(values) and all(map(rule.holds, values))
    )


def require(thing: str, name: str, value: object, rule: Rule, remedy: str = "choose another value") -> None:
    """Check one parameter.

    Parameters
    ----------
    thing : str
        What the parameter belongs to: a component, a function's subject.
    name : str
        Of the parameter.
    value : object
    rule : Rule
    remedy : str
        What to do about it.

    Raises
    ------
    InputError
        "name of thing must be rule, got value; remedy".

    Examples
    --------
    >>> require("laplace", "scale", 0.5, at_least(0))
    >>> require("laplace", "scale", -1.0, at_least(0), "the default is 1.0")
    Traceback (most recent call last):
    victims.common.errors.InputError: scale of laplace must be >= 0, got -1.0; the default is 1.0
    """
    if not _obeys(value, rule):
        raise InputError(f"{name} of {thing} must be {rule.text}, got {value!r:.80}; {remedy}")


def require_fields(component: Any, thing: str, **rules: Rule) -> None:
    """Check fields of a dataclass; the remedy names the default of the field.

    Parameters
    ----------
    component : dataclass instance
    thing : str
        Its name in the registry.
    **rules : Rule
        By name of the field; checked in this order.

    Raises
    ------
    InputError
        For the first field that breaks its rule.
    """
    defaults = {field.name: field.default for field in fields(component)}
    for name, rule in rules.items():
        default = defaults[name]
        remedy = "choose another value" if default is MISSING else f"the default is {default}"
        require(thing, name, getattr(component, name), rule, remedy)


def _obeys(value: object, rule: Rule) -> bool:
    try:
        return bool(rule.holds(value))
    except (TypeError, ValueError):  # text for a number, or an array for one value
        return False


def _written(bound: int | float) -> str:
    if isinstance(bound, int) and bound >= 10_000:
        return f"{bound:,}"
    return f"{bound:g}" if float(f"{bound:g}") == bound else f"{bound:.12g}"
