"""How the weights of items are distributed, by those that are told: some are one number, others spread.

Where ratings leave several weights of an item, the likelier one counts. Specifications of privacy give a
third of the items the weight 1 and the others any (Hu & Fang 2023, Table 2), so that one of two weights which
many items have to the last digits is the right one, nearly always. The share of weights that others repeat is
fitted by leaving each one out: where none repeats, coincidences tell nothing.

References
----------
W. Hu, H. Fang, arXiv:2212.00306, Table 2. B. W. Silverman 1986, Density Estimation for Statistics
and Data Analysis, Eq. (3.31).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

SAME = 1e-4  # difference of log weights that are called one
SPAN = 4.0  # nats around the middle of the weights over which one weight more is spread
STEPS = 50
GRID, AT_ONCE = 512, 4096  # places at which the spread part is computed, from so many weights at a time
REACH = 6.0  # bandwidths beyond the weights


@dataclass(frozen=True)
class WeightLaw:
    """The density of log weights: ``repeated`` of them as the others to the last digits."""

    told: Float[np.ndarray, " told"]  # log weights that are known, ascending
    repeated: float  # share in 0..1
    # where the density of the rest is known, and that density times ``n_told``
    places: Float[np.ndarray, " grid"]
    # where the density of the rest is known, and that density times ``n_told``
    spread: Float[np.ndarray, " grid"]

    def log_density(self, weights: Float[np.ndarray, " weights"]) -> Float[np.ndarray, " weights"]:
        """Log density of further log weights, in nats."""
        alike = _alike(self.told, weights) / (2 * SAME)
        around = np.interp(weights, self.places, self.spread, left=0.0, right=0.0)
        mixed = self.repeated * alike + (1 - self.repeated) * around
        return np.log((mixed + 1 / SPAN) / (self.told.size + 1))


def weight_law(told: Float[np.ndarray, " told"]) -> WeightLaw:
    """Fit the law of log weights.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> law = weight_law(np.append(rng.uniform(-2, 0, 60), np.zeros(30)))
    >>> 0.2 < law.repeated < 0.5, bool(np.diff(law.log_density(np.array([-1.0, 0.0])))[0] > 3)
    (True, True)
    """
    told = np.sort(told)
    if told.size < 2:
        return WeightLaw(told, 0.0, np.zeros(1), np.zeros(1))
    quarter = np.subtract(*np.percentile(told, [75, 25])) / 1.34
    width = max(0.9 * min(float(told.std()), float(quarter) or np.inf) * told.size**-0.2, SAME)
    places = np.linspace(told[0] - REACH * width, told[-1] + REACH * width, GRID)
    spread = np.zeros(GRID)
    for some in np.array_split(told, -(-told.size // AT_ONCE)):
        spread += np.exp(-0.5 * ((places[:, None] - some) / width) ** 2).sum(axis=1)
    spread /= width * np.sqrt(2 * np.pi)
    alike = (_alike(told, told) - 1) / (2 * SAME)
    around = np.interp(told, places, spread) - 1 / (width * np.sqrt(2 * np.pi))
    share = 0.5
    for _ in range(STEPS):
        mixed = share * alike + (1 - share) * np.maximum(around, 0) + 1 / SPAN
        share = float(np.mean(share * alike / mixed))
    return WeightLaw(told, share, places, spread)


def _alike(told: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """How many of the told ones each weight repeats."""
    return np.searchsorted(told, weights + SAME) - np.searchsorted(told, weights - SAME)
