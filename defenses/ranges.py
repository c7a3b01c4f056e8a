"""How large noise, its bounds and its budgets may be, so that every number made of them is one.

Beyond any use, and quotients and squares still fit: at 1e-320 or 1e300 stars the accounts divide by zero and
the uploads overflow.
"""

from __future__ import annotations

from victims.common.errors import InputError
from victims.common.validation import Rule, between

SMALLEST, LARGEST = 1e-9, 1e9
NOISES = ("once", "fresh", "composed")  # when an objective's noise is drawn: see ``ObjectiveNoise``
LEAST = 1e-30  # of a budget that weights and epochs have divided


def refuse_nothing(name: str, scale: float, clip: float | None) -> None:
    """Refuse noise of scale 0 that clips nothing: it would count as a defense, and is none."""
    if scale == 0 and clip is None:
        raise InputError(
            f"scale of {name} must be > 0 where nothing is clipped, got 0, which changes no upload; write "
            "none for no defense"
        )


def usable() -> Rule:
    """A bound of rows in stars squared, or an epsilon."""
    return between(SMALLEST, LARGEST)


def usable_or_0() -> Rule:
    """A scale of noise; 0 is none."""
    rule = usable()
    return Rule(f"0 or {rule.text}", lambda value: value == 0 or rule.holds(value))
