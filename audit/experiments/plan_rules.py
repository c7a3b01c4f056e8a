"""Rules that the plans of several experiments share: what a value must be, how much one may ask for.

A plan is what a command line, ``factorleak.audit`` and its likes, and a block of a campaign's file have in
common, so each of them refuses a value in the same words, before anything is loaded or run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from victims.common.errors import InputError
from victims.common.validation import Rule, above, each, whole, words

MOST_CELLS = 10_000  # of one plan, or one campaign: so many are listed in seconds
SEED = whole(0, 2**63 - 1)
CLIENTS = whole(1, 2**31 - 1)
N_ROUNDS = whole(1, 1_000_000)  # how many
ROUND = whole(0, 999_999)  # which one
RUNS = whole(1, 1000)
FACTORS = whole(1, 10_000)
NAME = words()
NAMES = each(NAME)
ANY_NAMES = each(NAME, fewest=0)
SECONDS = above(0)
TEXT = Rule("text", lambda value: isinstance(value, str))
MOST_WATCHED = 100_001  # rounds: as many as a range of --rounds may have
WATCHED = each(ROUND, most=MOST_WATCHED)
ANY_WATCHED = each(ROUND, fewest=0, most=MOST_WATCHED)


def _is_plain(value: object) -> bool:
    """Whether a command line can write it; also a number of NumPy, which is not imported for that."""
    if value is None or isinstance(value, str | int | float):
        return True
    return type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 and not _is_array(value)


def _is_array(value: object) -> bool:
    return type(value).__name__ == "ndarray"


def _are_options(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        NAME.holds(name) and _is_plain(one) for name, one in value.items()
    )


OPTIONS = Rule("names with a number, text, true, false or none each", _are_options)
OPTIONS_OF_ATTACKS = Rule(
    "names of attacks with options each, in turn names with a number, text, true, false or none",
    lambda value: (
        isinstance(value, Mapping)
        and all(NAME.holds(name) and _are_options(one) for name, one in value.items())
    ),
)

T = TypeVar("T")


def each_once(values: Iterable[T]) -> tuple[T, ...]:
    """Leave out what was there before.

    Examples
    --------
    >>> each_once((5, 1, 5))
    (5, 1)
    """
    return tuple(dict.fromkeys(values))


def refuse_idle_options(options: Mapping[str, Any], attacks: Iterable[str]) -> None:
    """Refuse options of attacks that do not run."""
    running = tuple(attacks)
    idle = sorted(str(name) for name in options if name not in running)
    if idle:
        raise InputError(
            f"options are given for {', '.join(idle)}, which does not run; name it among the attacks, now "
            f"{', '.join(running):.80}, or leave its options out"
        )


def refuse_said_elsewhere(thing: str, options: Mapping[str, Any], **elsewhere: str) -> None:
    """Refuse options of a victim that the plan itself has a field for, and would override."""
    for name, field in elsewhere.items():
        if name in options:
            raise InputError(
                f"set of {thing} must not name {name}, got {options[name]!r:.60}; leave it out of set and "
                f"say it by {field}"
            )


def refuse_too_many(thing: str, **axes: Collection[object] | range) -> None:
    """Refuse a plan whose cells are more than can be listed in seconds.

    Examples
    --------
    >>> refuse_too_many("a sweep", scales=range(10), rounds=range(100))
    """
    total = math.prod(map(len, axes.values()))
    if total > MOST_CELLS:
        sizes = ", ".join(f"{len(values):,} {name}" for name, values in axes.items())
        raise InputError(
            f"{thing} must have at most {MOST_CELLS:,} cells, got {total:,} ({sizes}); leave some out, or "
            "split it"
        )
