"""Rules of parameters, and the one message for those that break them.

A constructor states its rules as ``require_fields(self, "laplace", scale=at_least(0))``, a function checks
one argument with ``require``. Files are checked where they are read, for their messages name a row as well.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from victims.common.errors import InputError


def _shown(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # a whole number of thousands of digits, which Python does not write
        return "a number of thousands of digits"


class Rule(NamedTuple):
    """What a value must be."""

    text: str  # completes "must be"
    # whether a value obeys. One of another type may raise TypeError or ValueError and breaks the rule
    holds: Callable[[Any], bool]
    shown: Callable[[Any], str] = _shown  # of a value that breaks the rule, what a message says it got


def at_least(low: int | float) -> Rule:
    """State that a value is a finite number, ``low`` or larger."""
    return Rule(f">= {low:g}", lambda value: low <= value < math.inf)


def above(low: int | float) -> Rule:
    """State that a value is a finite number, larger than ``low``."""
    return Rule(f"> {low:g}", lambda value: low < value < math.inf)


def finite() -> Rule:
    """State that a value is a finite number."""
    return Rule("a finite number", lambda value: -math.inf < value < math.inf)


def between(low: int | float, high: int | float) -> Rule:
    """State that a value is a number in the closed interval."""
    return Rule(f"between {_written(low)} and {_written(high)}", lambda value: low <= value <= high)


def strictly_between(low: int | float, high: int | float) -> Rule:
    """State that a value is a number in the open interval."""
    return Rule(f"between {_written(low)} and {_written(high)}, exclusive", lambda value: low < value < high)


def in_half_open(low: int | float, high: int | float) -> Rule:
    """State that a value is a number in ``[low, high)``."""
    return Rule(f"in [{_written(low)}, {_written(high)})", lambda value: low <= value < high)


def positive_share() -> Rule:
    """State that a value is a number in ``(0, 1]``."""
    return Rule("in (0, 1]", lambda value: 0 < value <= 1)


def one_of(*choices: object) -> Rule:
    """State that a value is one of a short list."""
    listed = ", ".join(map(str, choices[:-1])) + " or " * (len(choices) > 1) + str(choices[-1])
    return Rule(listed, lambda value: bool(value in choices))


def or_none(rule: Rule) -> Rule:
    """State that a value obeys a rule, or is None."""
    return Rule(f"{rule.text}, or none", lambda value: value is None or rule.holds(value))


def whole(low: int, high: int) -> Rule:
    """State that a value is a whole number in the closed interval; true and false are none.

    Examples
    --------
    >>> rule = whole(1, 1000)
    >>> rule.text, rule.holds(7)
    ('a whole number from 1 to 1000', True)
    """
    return Rule(
        f"a whole number from {_written(low)} to {_written(high)}",
        lambda value: not isinstance(value, bool) and low <= operator.index(value) <= high,
    )


def flag() -> Rule:
    """State that a value is true or false."""
    return Rule("true or false", lambda value: isinstance(value, bool))


def words(longest: int = 500) -> Rule:
    """State that a value is text that says something."""
    return Rule(
        f"text of 1 to {longest} characters",
        lambda value: isinstance(value, str) and value.strip() != "" and len(value) <= longest,
    )


def each(rule: Rule, fewest: int = 1, most: int = 1000) -> Rule:
    """State that there are some values, not too many, and that all of them obey a rule.

    Examples
    --------
    >>> require("a box", "sizes", (0, -1), each(at_least(0)), "leave it out")
    Traceback (most recent call last):
    victims.common.errors.InputError: sizes of a box must be 1 to 1000 values, each >= 0, got -1; leave it out
    """

    def holds(values: Any) -> bool:
        return isinstance(values, (tuple, list)) and fewest <= len(values) <= most and not breaking(values)

    def breaking(values: Any) -> list[Any]:
        return [value for value in values if not _obeys(value, rule)]

    def shown(values: Any) -> str:
        if not isinstance(values, (tuple, list)) or not values:
            return _shown(values)
        if not fewest <= len(values) <= most:
            return "1 value" if len(values) == 1 else f"{len(values):,} values"
        return rule.shown(breaking(values)[0])

    several = f"{fewest} to {_written(most)}" if fewest else f"at most {_written(most)}"
    return Rule(f"{several} values, each {rule.text}", holds, shown)


def require(thing: str, name: str, value: object, rule: Rule, remedy: str = "choose another value") -> None:
    """Check one parameter.

    Examples
    --------
    >>> require("laplace", "scale", 0.5, at_least(0))
    >>> require("laplace", "scale", -1.0, at_least(0), "the default is 1.0")
    Traceback (most recent call last):
    victims.common.errors.InputError: scale of laplace must be >= 0, got -1.0; the default is 1.0
    """
    if not _obeys(value, rule):
        raise InputError(f"{name} of {thing} must be {rule.text}, got {rule.shown(value)}; {remedy}")


def require_fields(component: Any, thing: str, **rules: Rule) -> None:
    """Check fields of a dataclass; the remedy names the default of the field."""
    defaults = {field.name: field.default for field in fields(component)}
    for name, rule in rules.items():
        default = defaults[name]
        remedy = "choose another value" if default is MISSING else f"the default is {_said(default)}"
        require(thing, name, getattr(component, name), rule, remedy)


def _obeys(value: object, rule: Rule) -> bool:
    if type(value).__name__ == "ndarray":  # of one number, say, which compares like it
        return False
    try:
        return bool(rule.holds(value))
    except (TypeError, ValueError, ArithmeticError):  # text for a number, or an array for one value
        return False


def _said(default: object) -> str:
    if default is None or default == ():
        return "none"
    return ", ".join(map(str, default)) if type(default) is tuple else str(default)


def _written(bound: int | float) -> str:
    if isinstance(bound, int) and bound >= 10_000:
        return f"{bound:,}"
    return f"{bound:g}" if float(f"{bound:g}") == bound else f"{bound:.12g}"
