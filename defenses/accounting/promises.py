"""What a defense promises to each rating, for whoever holds the promise against what is measured."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from victims.data.ratings import Ratings


@runtime_checkable
class Promising(Protocol):
    """A defense that promises a budget to each rating; others promise nothing.

    It is a claim, not a proof: what is proved is the defense's account (``victims.protocols.account``).
    """

    def promised(self, ratings: Ratings, seed: int) -> Float[np.ndarray, " ratings"]:
        """Budget epsilon of every rating in nats, > 0, in the run of this seed."""
        ...
