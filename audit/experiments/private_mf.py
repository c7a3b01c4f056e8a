"""The systems of Hu & Fang 2023: one victim, bare or under a defense that draws a budget for every rating."""

from __future__ import annotations

import os
from dataclasses import dataclass

TESTED = 10  # ratings per user
NOWHERE = os.devnull  # a source without a published split
VICTIM = "decentralised-mf"
BUDGETED = ("trajectory", "rated-set")  # what the recommender tries on every one of them


@dataclass(frozen=True)
class System:
    """A system as tables name it."""

    name: str
    defense: str  # its name in the registry; empty where nothing protects
    attacks: tuple[str, ...] = BUDGETED  # what the recommender tries
    # the system whose training it shares, where it is another one's with other predictions
    variant_of: str = ""

    @property
    def tuned_as(self) -> str:
        """The system whose learning rate and regularization it takes."""
        return self.variant_of or self.name

    @property
    def is_private(self) -> bool:
        """Whether anything protects, so that there is noise and a budget."""
        return bool(self.defense)

    def defense_text(self, noise: str, epochs: int, **options: float | str) -> str:
        """Write the defense with its options.

        Examples
        --------
        >>> system_of("hdpmf").defense_text("once", 9, epsilon=0.5)
        'hdpmf:noise=once,epochs=9,epsilon=0.5'
        """
        if not self.is_private:
            return "none"
        told = {name: value if isinstance(value, str) else f"{value:g}" for name, value in options.items()}
        others = "".join(f",{option}={value}" for option, value in told.items())
        return f"{self.defense}{',' if ':' in self.defense else ':'}noise={noise},epochs={epochs}{others}"


SYSTEMS = {
    "mf": System("mf", "", (*BUDGETED, "spectral", "grid", "likelihood")),
    "hdpmf": System("hdpmf", "hdpmf"),
    "pdpmf": System("pdpmf", "pdpmf"),
    "dpmf": System("dpmf", "dpmf"),
    "dpmf-program": System("dpmf-program", "dpmf-program"),
    "hdpmf-r": System("hdpmf-r", "hdpmf-r", variant_of="hdpmf"),
}


def system_of(name: str) -> System:
    """Look a system up.

    Examples
    --------
    >>> system_of("hdpmf:mixing=draw").defense_text("fresh", 9)
    'hdpmf:mixing=draw,noise=fresh,epochs=9'
    """
    return SYSTEMS.get(name, System(name, name))
