"""Errors of predictions over users and seeds: intervals, and whether one method's are smaller than another's.

Seeds share the users, so that their spread says how much noise and start decide, and nothing of other users.
A bootstrap over users says that, of the mean over the seeds: users are resampled with all their test ratings,
the same ones for every seed and, where two methods are compared, for both.

Hu & Fang 2023, Table 3, puts stars where the one-sided paired t-test finds HDPMF better than PDPMF at 90, 95
and 99 % over five seeds. The t-test takes the differences to be independent and normal, which five numbers
cannot show. The sign-flip test assumes nothing but that each difference would as well have the other sign:
its p-value is the share of all 2^n sign patterns with a sum at least as large. With five seeds no p-value of
it is below 1 / 32, two-sided 1 / 16: it can reach one star or two, never three. Seeds share the ratings (and
a published split), so that either test speaks of these ratings, not of others (the bootstrap over users
does); and which of two methods is asked about was chosen by the same numbers, which doubles both p-values at
worst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, stdtr  # scipy.stats takes a second to import

from victims.common.seeds import Purpose, generator

RESAMPLES = 1000
LEVELS = (2.5, 97.5)  # percent
STARS = ((0.01, "***"), (0.05, "**"), (0.1, "*"))
MOST_SIGNS = 12  # seeds whose patterns are listed; 4,096 of them


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


class Paired(NamedTuple):
    """Mean difference (positive where the first is better), and one-sided p-values of both tests."""

    better_by: float
    t_test: float
    sign_flip: float

    @property
    def stars(self) -> str:
        """As in Table 3, by the t-test."""
        return next((stars for level, stars in STARS if self.t_test < level), "")


def paired(errors: Float[np.ndarray, " seeds"], others: Float[np.ndarray, " seeds"]) -> Paired:
    """Test that errors are smaller than others of the same seeds.

    References
    ----------
    R. A. Fisher, The Design of Experiments, 1935, section 21 (sign flips).

    Examples
    --------
    >>> paired(np.array([1.0, 2.0, 3.0, 2.0, 1.0]), np.array([1.5, 2.4, 3.6, 2.5, 1.4])).sign_flip
    0.03125
    """
    gains = others - errors
    if gains.size < 2:
        return Paired(float(gains.mean()) if gains.size else float("nan"), float("nan"), float("nan"))
    spread = gains.std(ddof=1)
    if spread > 0:
        t_test = float(stdtr(gains.size - 1, -gains.mean() / (spread / np.sqrt(gains.size))))
    else:
        t_test = 0.0 if gains.mean() > 0 else 1.0
    return Paired(float(gains.mean()), t_test, _sign_flip(gains))


def _sign_flip(gains: Float[np.ndarray, " seeds"]) -> float:
    """The share of sign patterns with a sum at least as large; of many seeds by the normal law."""
    if gains.size > MOST_SIGNS:
        return float(ndtr(-gains.sum() / np.sqrt((gains**2).sum())))
    signs = np.array(list(product((1, -1), repeat=gains.size)))
    sums = signs @ gains
    return float((sums >= gains.sum() - 1e-12 * np.abs(gains).sum()).mean())


class Comparison(NamedTuple):
    """Two methods at one number of factors by one error, the one with the smaller mean first."""

    factors: str
    metric: str
    better: str
    worse: str
    n_seeds: int
    result: Paired
    over_users: tuple[float, float] | None = None  # 95 % interval of ``result.better_by``


def comparisons(
    rows: Sequence[Mapping[str, Any]], kept: Mapping[tuple[str, int], UserErrors] | None = None
) -> list[Comparison]:
    """Compare every two methods of a prediction over the seeds that both have."""
    errors: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for row in rows:
        if row["status"] == "ran":
            method, factors = str(row["victim"]).split(" ")
            of_method = errors.setdefault((factors, str(row["metric"])), {}).setdefault(method, {})
            of_method[int(row["seed"])] = float(row["value"])
    found = []
    for (factors, metric), methods in errors.items():
        for pair in combinations(methods, 2):
            seeds = sorted(set(methods[pair[0]]) & set(methods[pair[1]]))
            values = {name: np.array([methods[name][seed] for seed in seeds]) for name in pair}
            better, worse = sorted(pair, key=lambda name: float(values[name].mean()))
            result = paired(values[better], values[worse])
            by_users = _over_users(
                metric, [f"{name} {factors}" for name in (better, worse)], seeds, kept or {}
            )
            found.append(Comparison(factors, metric, better, worse, len(seeds), result, by_users))
    return found


def _over_users(
    metric: str, systems: Sequence[str], seeds: Sequence[int], kept: Mapping[tuple[str, int], UserErrors]
) -> tuple[float, float] | None:
    """The interval of the difference; None where errors of users were not kept, or are of other ratings."""
    if not seeds or not all((system, seed) in kept for system in systems for seed in seeds):
        return None
    better, worse = (joined([kept[system, seed] for seed in seeds]) for system in systems)
    if not np.array_equal(better.count, worse.count):
        return None
    return interval_over_users(worse.of(metric) - better.of(metric), better.count)
