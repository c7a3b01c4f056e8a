"""Stretching: clients train on W o R and divide predictions by W (paper 002, section 4).

Alaggan, Gambs, Kermarrec 2016 (doi:10.29012/jpc.v7i2.652) shrink each input by its privacy weight, so that
noise for the largest budget epsilon protects rating ij at epsilon W_ij. HDPMF rescales predictions by 1 /
W_ij on the user's side and clips them to the rating range; without rescaling it is HDPMF-R.

What this does not hide: which items a client rated. Stretching alone adds no noise: whoever learns W o R
(attack ``trajectory``) learns a product beta_i gamma_j r_ij, whose factors repeat across the client's and the
item's other ratings, so that integers r_ij show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from defenses.accounting.budgets import Specification, draw
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Defense


@dataclass(frozen=True)
class Stretching(Specification, Defense):
    """Privacy weights of ``defenses.accounting.budgets``.

    Attributes
    ----------
    rescale : bool
        Divide predictions by W; False is HDPMF-R.

    References
    ----------
    Paper 002 (arXiv:2212.00306), section 4; M. Alaggan, S. Gambs, A.-M. Kermarrec 2016,
    doi:10.29012/jpc.v7i2.652.
    """

    rescale: bool = True
    name: str = "stretching"
    attackers = (Attacker("trajectory", 12),)  # W o R fitted and taken apart

    def on_device(self, ratings: Ratings, seed: int) -> Ratings:
        """W o R; the levels stay those of the ratings as they were given."""
        return replace(ratings, values=ratings.values * draw(self, ratings, seed).of(ratings))

    def predicted(
        self, values: Float[np.ndarray, " entries"], at: Ratings, seed: int
    ) -> Float[np.ndarray, " entries"]:
        """u . v / W."""
        return values / draw(self, at, seed).of(at) if self.rescale else values

    def public(self) -> dict[str, Any]:
        """The largest budget; weights stay with the users."""
        return {"name": self.name, "epsilon": self.epsilon}
