"""What clients agree on before they encrypt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from defenses.encryption.fixed_point import FixedPoint


@dataclass(frozen=True)
class Rules:
    """What clients agree on before they encrypt; see ``Paillier``."""

    point: FixedPoint
    factors: int
    decrypters: Int[np.ndarray, " decrypters"]
    min_contributors: int
    publish_exponents: bool

    def rounded(self, values: Float[np.ndarray, "rows factors"]) -> Float[np.ndarray, "rows factors"]:
        """The numbers as the encoding represents them."""
        return self.point.restored(self.point.quantised(values))

    def exponents(self, values: Float[np.ndarray, "rows factors"]) -> Int[np.ndarray, " rows"] | None:
        """What is published beside the ciphertexts: the largest binary exponent of each row, 0 for zeros."""
        if not self.publish_exponents:
            return None
        return np.frexp(np.abs(values).max(axis=1))[1].astype(np.int32)
