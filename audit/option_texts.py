"""Options as text: ``laplace:b=2,clip=10``, and values of a command line.

An option that takes several values is repeated: ``--attack A --attack B``. Numbers and names may also be
listed with commas, and numbers of rounds as a range: ``--rounds 4,5`` or ``--rounds 0-9``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from victims.common.errors import InputError

UNITS = {"s": 1, "m": 60, "h": 3600}


def named_options(text: str) -> tuple[str, dict[str, str]]:
    """Split ``laplace:b=2,clip=10`` into the name and its options."""
    name, _, options = text.partition(":")
    return name, parse_options([option for option in options.split(",") if option])


def parse_options(pairs: list[str]) -> dict[str, str]:
    """Read ``["factors=8"]`` as a mapping."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"an option must be name=value, got {pair!r}")
        options[name.strip().replace("-", "_")] = value.strip()
    return options


def names(values: Sequence[str] | None) -> tuple[str, ...]:
    """List names that were repeated or written with commas, each once.

    Examples
    --------
    >>> names(["spectral,grid", "grid"])
    ('spectral', 'grid')
    """
    listed = [name.strip() for text in values or () for name in text.split(",")]
    return tuple(dict.fromkeys(filter(None, listed)))


def parse_seconds(option: str, text: str) -> float:
    """Read ``90``, ``90s``, ``5m`` or ``1h`` as seconds.

    Examples
    --------
    >>> parse_seconds("--within", "5m")
    300.0
    """
    number, unit = (text[:-1], text[-1:]) if text[-1:] in UNITS else (text, "s")
    try:
        seconds = float(number) * UNITS[unit]
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(f"{option} must be a time above 0, as 60s, 5m or 1h, got {text!r:.80}")
    return seconds


def parse_rounds(text: str | Sequence[str]) -> tuple[int, ...]:
    """Read ``4,5`` or ``0-9``, or several of them, as numbers of rounds.

    Examples
    --------
    >>> parse_rounds("0-2,7"), parse_rounds(["4", "5"])
    ((0, 1, 2, 7), (4, 5))
    """
    text = _listed(text)
    rounds: set[int] = set()
    for span in text.split(","):
        low, _, high = span.strip().partition("-")
        high = high or low
        if not (low.isdigit() and high.isdigit()) or len(low) > 6 or len(high) > 6:
            raise InputError(f"--rounds must look like 4,5 or 0-9, got {text!r}")
        if int(high) < int(low) or int(high) - int(low) > 100_000:
            raise InputError(f"--rounds range must ascend and be at most 100,000 long, got {span!r}")
        rounds.update(range(int(low), int(high) + 1))
    return tuple(sorted(rounds))


def parse_numbers(option: str, text: str | Sequence[str]) -> tuple[int, ...]:
    """Read ``1024,2048``, or several of them, as whole numbers."""
    numbers = [number.strip() for number in _listed(text).split(",")]
    if not all(number.isdigit() and len(number) < 10 for number in numbers):
        raise InputError(f"{option} must be numbers as in 1024,2048, got {_listed(text)!r}")
    return tuple(map(int, numbers))


def parse_floats(option: str, text: str | Sequence[str], example: str) -> tuple[float, ...]:
    """Read ``0,0.5,2``, or several of them, as numbers."""
    try:
        return tuple(map(float, _listed(text).split(",")))
    except ValueError:
        raise InputError(f"{option} must be numbers as in {example}, got {_listed(text)!r}") from None


def _listed(text: str | Sequence[str]) -> str:
    return text if isinstance(text, str) else ",".join(text)


def options_by_attack(pairs: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Read ``["grid.steps=3"]`` as options of each attack."""
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs or ():
        attack, dot, rest = pair.partition(".")
        if not dot:
            raise InputError(f"--option of audit must be ATTACK.name=value, got {pair!r}")
        found.setdefault(attack, {}).update(parse_options([rest]))
    return found
