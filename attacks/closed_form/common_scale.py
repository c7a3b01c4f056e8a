"""What multiplies the rows of all clients, where nobody declares it: one number, or one over their ratings.

A client's own rows leave multiples of its ratings open (r and r / 2 with another scale). Clients who are read
without knowing the scale tell it, each for itself; where most of them agree, it is known for the others, too,
among them those with few ratings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

ALIKE = 1e-3  # relative, within which two constants are one
MOST = 0.5  # of the clients that must agree
FEWEST = 3  # clients that tell a common scale


class Scale(NamedTuple):
    """sigma of a client with n ratings: value, or value / n where rows are means; the share that agrees."""

    reduction: str
    value: float
    share: float

    def like(self, other: Scale) -> bool:
        """Whether both are one."""
        return self.reduction == other.reduction and abs(self.value - other.value) <= ALIKE * abs(other.value)

    def of(self, n_rated: Float[np.ndarray, " users"]) -> Float[np.ndarray, " users"]:
        """sigma of clients with so many ratings."""
        return self.value / n_rated if self.reduction == "mean" else np.full(n_rated.shape, self.value)


def common_scale(
    scale: Float[np.ndarray, " clients"], n_rated: Float[np.ndarray, " clients"]
) -> Scale | None:
    """The scale that most clients share.

    Parameters
    ----------
    scale, n_rated : (n_clients,)
        sigma of each client that was read, and its number of ratings.

    Returns
    -------
    Scale or None
        A sum before a mean, which clients with equally many ratings do not tell apart.

    Examples
    --------
    >>> common_scale(np.array([-0.5, -1.0, -0.25]), np.array([4.0, 2.0, 8.0]))
    Scale(reduction='mean', value=-2.0, share=1.0)
    """
    if scale.size < FEWEST:
        return None
    found = (Scale("sum", *common(scale)), Scale("mean", *common(scale * n_rated)))
    likeliest = max(found, key=lambda one: one.share)  # of equals the first
    return likeliest if likeliest.share >= MOST else None


def common(numbers: Float[np.ndarray, " clients"]) -> tuple[float, float]:
    """The middle of some numbers, and the share of them that are equal to it.

    Parameters
    ----------
    numbers : (n_clients,)
        One or more.

    Returns
    -------
    float
        The median.
    float
        Share of the numbers that lie within ``ALIKE`` of it, 0 to 1.
    """
    middle = float(np.median(numbers))
    return middle, float(np.mean(np.abs(numbers - middle) <= ALIKE * abs(middle)))
