"""How well scores tell what a model was trained on: area, rates at low false positive rates, tests, verdicts.

Targets were put into each model by fair coins of their own, so chance is exact: an area of 1/2, and a true
positive rate equal to the false positive rate. Thresholds are those of the ROC curve of what is scored, as in
the literature; the tests hold for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr  # scipy.stats takes a second to import

from audit.scoring.statistics import LEAK_LEVEL, RESAMPLES, at_least, ends
from audit.scoring.verdicts import Score, Summary, verdict
from victims.common.seeds import Purpose, generator

AREA = "membership_auc"
RATES = {"membership_tpr_at_fpr_1pct": 0.01, "membership_tpr_at_fpr_0.1pct": 0.001}
CHANCE = "a coin"
LEVELS = 1 - np.concatenate([np.geomspace(1e-5, 1e-2, 150), np.linspace(0.0125, 1, 396)])  # of the curve


def membership_scores(
    score: Float[np.ndarray, "models targets"],
    member: Bool[np.ndarray, "models targets"],
    client: Int[np.ndarray, " targets"],
    about: str,
    seed: int,
) -> list[Score]:
    """Score an attack on all models together: a row for the area, and one for each false positive rate.

    ``client`` says whose each target is: intervals resample clients, with all of theirs in all models.
    """
    curve = _curve(score, member, client)
    rng = generator(seed, Purpose.BOOTSTRAP)
    clients = len(curve.inside)
    weights = rng.multinomial(clients, np.full(clients, 1 / clients), RESAMPLES).astype(float)
    once, many = curve.rates(np.ones((1, clients))), curve.rates(weights)
    found = [_scored(f"{about}_{AREA}", once.area, many.area, 0.5, _area_p_values(score, member), clients)]
    for name, rate in RATES.items():
        p_values = _race_p_value(score, member, rate), 1.0
        found.append(_scored(f"{about}_{name}", once.at(rate), many.at(rate), rate, p_values, clients))
    return found


@dataclass(frozen=True, eq=False)
class _Rates:
    """ROC curves, from the highest scores on."""

    false: Float[np.ndarray, "curves points"]
    true: Float[np.ndarray, "curves points"]

    @property
    def area(self) -> Float[np.ndarray, " curves"]:
        return np.trapezoid(self.true, self.false, axis=1)

    def at(self, rate: float) -> Float[np.ndarray, " curves"]:
        pairs = zip(self.false, self.true, strict=True)
        return np.array([np.interp(rate, false, true) for false, true in pairs])


@dataclass(frozen=True, eq=False)
class _Counts:
    """Trials of each client by their score, the highest first."""

    inside: Float[np.ndarray, "clients bins"]
    outside: Float[np.ndarray, "clients bins"]

    def rates(self, weights: Float[np.ndarray, "curves clients"]) -> _Rates:
        """Curves of weighted clients."""
        false, true = (
            np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights @ counts, axis=1)], axis=1)
            for counts in (self.outside, self.inside)
        )
        return _Rates(*(table / np.maximum(table[:, -1:], 1) for table in (false, true)))


def _curve(score: np.ndarray, member: np.ndarray, client: np.ndarray) -> _Counts:
    """Count in bins that end at quantiles of those who are no members, dense where rates are low."""
    edges = np.unique(np.quantile(score[~member], np.clip(LEVELS, 0, 1), method="inverted_cdf"))
    n_bins, n_clients = edges.size + 1, int(client.max()) + 1
    cell = client * n_bins + (n_bins - 1 - np.searchsorted(edges, score, side="left"))
    shape = n_clients, n_bins
    inside, outside = (
        np.bincount(cell[world], minlength=n_clients * n_bins).reshape(shape).astype(float)
        for world in (member, ~member)
    )
    return _Counts(*(counts[inside.sum(axis=1) + outside.sum(axis=1) > 0] for counts in (inside, outside)))


def _scored(
    metric: str,
    value: np.ndarray,
    resampled: np.ndarray,
    chance: float,
    p_values: tuple[float, float],
    n: int,
) -> Score:
    ((low, high),) = ends(resampled)
    advantage, advantage_low, advantage_high = (
        (x - chance) / (1 - chance) for x in (float(value[0]), low, high)
    )
    p_value, p_below = p_values
    summary = Summary(
        float(value[0]), low, high, chance, advantage, advantage_low, advantage_high, p_value,
        p_below < LEAK_LEVEL and advantage_high < 0,
        verdict(advantage_low, advantage_high, p_value, n_users=n), n, 0,
    )  # fmt: skip
    return Score(metric, summary, CHANCE, None, 0)


def _area_p_values(score: np.ndarray, member: np.ndarray) -> tuple[float, float]:
    """Test that members have the higher scores, and the lower: Mann and Whitney's, over all coins.

    References
    ----------
    H. B. Mann, D. R. Whitney 1947, doi:10.1214/aoms/1177730491.
    """
    flat, coin = score.ravel(), member.ravel()
    _, inverse, counts = np.unique(flat, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    # coins are fair and of each target: the sum of ranks less its mean has the variance of signs
    z = float(((coin - coin.mean()) * rank).sum() / np.sqrt(rank.var() * coin.var() * coin.size + 1e-300))
    return float(ndtr(-z)), float(ndtr(z))


def _race_p_value(score: np.ndarray, member: np.ndarray, rate: float) -> float:
    """Test that members lie above the threshold of a false positive rate: exact, whatever the threshold.

    Fair coins are tossed from the highest score on until the m-th that is no member; so many members before
    it or more come as often as that many heads in that many tosses and m - 1 others.
    """
    outside = score[~member]
    m = int(rate * outside.size) + 1
    threshold = np.partition(outside, outside.size - m)[outside.size - m]
    above = int((score[member] > threshold).sum())
    return at_least(above, above + m - 1, 0.5)
