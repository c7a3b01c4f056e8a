"""Intervals of prediction errors over users, beside their spread over seeds.

Seeds share the users, so that their spread says how much noise and start decide, and nothing of other users.
A bootstrap over users says that, of the mean over the seeds: users are resampled with all their test ratings,
the same ones for every seed and, where two methods are compared, for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from victims.common.seeds import Purpose, generator

RESAMPLES = 1000
LEVELS = (2.5, 97.5)  # percent


class UserErrors(NamedTuple):
    """Sums over the test ratings of each user: how many there are, squared and absolute errors."""

    count: Float[np.ndarray, "seeds users"]  # type: ignore[assignment]
    squared: Float[np.ndarray, "seeds users"]
    absolute: Float[np.ndarray, "seeds users"]

    def of(self, metric: str) -> Float[np.ndarray, "seeds users"]:
        """The sums of ``mse`` or ``mae``."""
        return {"mse": self.squared, "mae": self.absolute}[metric]


def joined(parts: Sequence[UserErrors]) -> UserErrors:
    """Put seeds together."""
    return UserErrors(*(np.concatenate(tables) for tables in zip(*parts, strict=True)))


def interval_over_users(
    losses: Float[np.ndarray, "seeds users"], count: Float[np.ndarray, "seeds users"], seed: int = 0
) -> tuple[float, float]:
    """Compute a 95 % percentile bootstrap interval of an error's mean over seeds.

    References
    ----------
    B. Efron 1979, doi:10.1214/aos/1176344552.
    """
    n_users = losses.shape[1]
    rng = generator(seed, Purpose.BOOTSTRAP_OF_PREDICTIONS)
    times = rng.multinomial(n_users, np.full(n_users, 1 / n_users), size=RESAMPLES)
    means = (times @ losses.T) / np.maximum(times @ count.T, 1)
    low, high = np.percentile(means.mean(axis=1), LEVELS)
    return float(low), float(high)


def intervals_of(
    kept: Mapping[tuple[str, int], UserErrors],
) -> dict[tuple[str, str], tuple[float, float]]:
    """Intervals over users of both errors of every system, means over its seeds."""
    seeds: dict[str, list[UserErrors]] = {}
    for (system, _), errors in kept.items():
        seeds.setdefault(system, []).append(errors)
    whole = {system: joined(parts) for system, parts in seeds.items()}
    return {
        (system, metric): interval_over_users(errors.of(metric), errors.count)
        for system, errors in whole.items()
        for metric in ("mse", "mae")
    }
