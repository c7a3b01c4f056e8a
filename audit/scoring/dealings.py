"""What is read of dealt rows: dealing by dealing, as far as dealings went, and why they went no further."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Dealings:
    """What is read of the rows of few clients, dealt out again and again."""

    # of each dealing: metric -> (n_users,), as ``audit.scoring.score.values_anyhow`` makes them
    values: tuple[Mapping[str, Float[np.ndarray, " users"]], ...]
    n_planned: int  # dealings that were to be made
    # after which no more were begun, 0 where time did not end them. Those that are left out then count as
    # read as well as the real rows: how long an attack takes may have to do with what it reads
    seconds: float = 0.0

    @property
    def n_unbeaten(self) -> int:
        """How many dealings that were not made count as read as well as the real rows."""
        return self.n_planned - len(self.values) if self.seconds else 0

    @property
    def words(self) -> str:
        """What must be said of dealings that were not made; empty where all were."""
        return words(len(self.values), self.n_planned, self.seconds)


def words(n_made: int, n_planned: int, seconds: float) -> str:
    """Say how many dealings were made, and why no more.

    Examples
    --------
    >>> words(100, 100, 0.0), words(2, 100, 0.0)
    ('', 'rows were dealt out 2 of 100 times: more could not have changed the verdict')
    """
    if n_made == n_planned:
        return ""
    count = f"rows were dealt out {n_made:,} of {n_planned:,} times"
    if not seconds:
        return f"{count}: more could not have changed the verdict"
    return (
        f"{count}, for the {seconds:g} s allowed were over, and the others count as read as well as the real "
        "ones: a recording of fewer rounds, or a faster attack, can be tested further"
    )
