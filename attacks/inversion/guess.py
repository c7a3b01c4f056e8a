"""A hypothesis about what clients did: a rule of a family, and what is known of its constants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from attacks.client_rules.differentiable import Family
from attacks.inversion.least_squares import Unknowns


class Guess(NamedTuple):
    """A member of a family; constants (c,) where the shared ones are known; a neighbour's fits as a start."""

    family: Family
    value: float
    constants: np.ndarray | None = None
    nearby: Unknowns | None = None

    @property
    def free(self) -> Bool[np.ndarray, " c"]:
        """Which constants are fitted."""
        own = np.isin(np.arange(len(self.family.free)), self.family.own)
        return np.array(self.family.free) & (own | (self.constants is None))

    def constants_of(self, sigma: float, stiffness: float) -> tuple[float, ...]:
        """Where a fit starts."""
        start = self.family.start(self.value, sigma, stiffness)
        if self.constants is None:
            return start
        return tuple(np.where(self.free, start, self.constants).tolist())
