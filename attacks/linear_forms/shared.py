"""What the clients of a recording share: one program at one rate, the noise it leaves, how people rate.

Of one step, A B = 1 / rate for every client, whatever its factor; of several it is nearly one number. So it
is one number with a spread, as is the size of the noise; both are those of most evidence over all clients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.linear_forms.forms import Forms
from attacks.linear_forms.integral import Points
from attacks.linear_forms.posterior import Prior

ERROR, PREDICTION = (2.0, 0.8), (0.3, 1.5)  # stars, and the deviation of its logarithm
MOVED, RAGGED = (0.0, 1.0), (np.log(1.8), 0.5)  # Q; log f
PRODUCT_SPREADS = (0.25, 0.5, 1.0, 2.0)
NOISE_SPREADS = (0.25, 0.4, 0.8)
NOISES = np.log(np.geomspace(0.01, 1.2, 24))  # of a level
FEWEST = 1e-3  # weight of a point that counts in where to look


class Shared(NamedTuple):
    """Laws of what clients share."""

    product: tuple[float, float]  # of log A + log B in units of the rows: mean and deviation
    noise: tuple[float, float]  # of the log of the noise in levels: mean and deviation
    levels: Float[np.ndarray, " levels"]  # log of how often each is given

    def prior(self, forms: Forms, gap: float) -> Prior:
        """The prior of some clients' unknowns."""
        n_more = forms.coordinates.shape[2] - 1
        rest = [*[MOVED] * n_more, RAGGED, (self.noise[0] + np.log(gap), self.noise[1])]
        laws = np.array([(np.log(ERROR[0]), ERROR[1]), (np.log(PREDICTION[0]), PREDICTION[1]), *rest])
        one = np.ones((len(forms.log_size), 1))
        product = np.stack([self.product[0] + forms.log_size, 0 * forms.log_size + self.product[1]], axis=1)
        return Prior(one * laws[:, 0], one * laws[:, 1], product)


def unknown(n_levels: int) -> Shared:
    """Before anything is learned."""
    return Shared((0.0, 1e3), (np.log(0.2), 1.0), np.full(n_levels, -np.log(n_levels)))


def learned(
    shared: Shared, points: Points, forms: Forms, gap: float, counts: Float[np.ndarray, " levels"]
) -> Shared:
    """The laws of most evidence, from points that were weighted under the present ones."""
    log_weight = points.log_weights()
    product = points.x[..., 0] + points.x[..., 1] - forms.log_size[:, None]
    noise = points.x[..., -1] - np.log(gap)
    share = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    ends = np.quantile(product[share > FEWEST], [0.02, 0.98])
    bare = log_weight - _log_normal(product, *shared.product) - _log_normal(noise, *shared.noise)
    law_product, law_noise = shared.product, shared.noise
    for _ in range(2):
        spreads = [
            (np.linspace(ends[0], ends[1], int(min(200, np.ptp(ends) / s * 3 + 2))), s)
            for s in PRODUCT_SPREADS
        ]
        law_product = _best(bare + _log_normal(noise, *law_noise), product, spreads)
        law_noise = _best(
            bare + _log_normal(product, *law_product), noise, [(NOISES, s) for s in NOISE_SPREADS]
        )
    return Shared(law_product, law_noise, np.log((counts + 1) / (counts + 1).sum()))


def _log_normal(x: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    return -(((x - mean) / deviation) ** 2) / 2 - np.log(deviation)


def _best(log_weight: np.ndarray, x: np.ndarray, laws: list[tuple[np.ndarray, float]]) -> tuple[float, float]:
    """Mean and deviation of a normal law of x under which all clients together have most evidence."""
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    best = (-np.inf, 0.0, 1.0)
    for means, deviation in laws:
        for mean in means:
            law = np.exp(-(((x - mean) / deviation) ** 2) / 2)
            evidence = np.log((weight * law).sum(axis=1) + 1e-30).sum() - len(x) * np.log(deviation)
            best = max(best, (float(evidence), float(mean), deviation))
    return best[1:]
