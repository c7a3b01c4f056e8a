"""How well scores tell what a model was trained on: area, rates at low false positive rates, tests, verdicts.

Targets were put into each model by fair coins of their own, so chance is exact: an area of 1/2, and a true
positive rate equal to the false positive rate. Thresholds are those of the ROC curve of what is scored, as in
the literature. A model is scored with the others as shadows, whose coins enter its scores, so that each test
is of one model's coins given all others; twice the median of the models' p-values is one, however they depend
on each other (V. Vovk, R. Wang 2020, doi:10.1093/biomet/asaa027).
"""

from __future__ import annotations

from collections.abc import Iterator

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
    counts = _counted(score, member, client)
    clients = len(counts[0])
    rng = generator(seed, Purpose.BOOTSTRAP)
    weights = rng.multinomial(clients, np.full(clients, 1 / clients), RESAMPLES).astype(float)
    measured = zip(_rates(*counts, np.ones((1, clients))), _rates(*counts, weights), strict=True)
    each = [
        [_area_p_values(*model), *((_race_p_value(*model, rate), 1.0) for rate in RATES.values())]
        for model in zip(score, member, strict=True)
    ]
    above, below = np.minimum(2 * np.median(each, axis=0), 1.0).T.tolist()
    chances = {AREA: 0.5, **RATES}
    return [
        _scored(f"{about}_{name}", once, many, chance, (p_above, p_below), clients)
        for (name, chance), (once, many), p_above, p_below in zip(
            chances.items(), measured, above, below, strict=True
        )
    ]


def _rates(
    inside: np.ndarray, outside: np.ndarray, weights: Float[np.ndarray, "curves clients"]
) -> Iterator[Float[np.ndarray, " curves"]]:
    """Area, and the true positive rate at each of ``RATES``, of ROC curves of weighted clients."""
    false, true = (
        np.pad(np.cumsum(weights @ counts, axis=1), ((0, 0), (1, 0))) for counts in (outside, inside)
    )
    false, true = (table / np.maximum(table[:, -1:], 1) for table in (false, true))
    yield np.trapezoid(true, false, axis=1)
    for rate in RATES.values():
        yield np.array([np.interp(rate, *curve) for curve in zip(false, true, strict=True)])


def _counted(
    score: np.ndarray, member: np.ndarray, client: np.ndarray
) -> tuple[Float[np.ndarray, "clients bins"], Float[np.ndarray, "clients bins"]]:
    """Trials of each client, members and others, between quantiles of the others; highest first."""
    edges = np.unique(np.quantile(score[~member], LEVELS, method="inverted_cdf"))
    _, owner = np.unique(client, return_inverse=True)
    shape = int(owner.max()) + 1, edges.size + 1
    cell = owner * shape[1] + (edges.size - np.searchsorted(edges, score, side="left"))
    inside, outside = (
        np.bincount(cell[world], minlength=shape[0] * shape[1]).reshape(shape).astype(float)
        for world in (member, ~member)
    )
    return inside, outside


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
    """Test that members have the higher scores, and the lower (doi:10.1214/aoms/1177730491)."""
    flat, coin = score.ravel(), member.ravel()
    _, inverse, counts = np.unique(flat, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    # coins are fair and of each target: the sum of ranks less its mean has the variance of signs
    z = float(((coin - coin.mean()) * rank).sum() / np.sqrt(rank.var() * coin.var() * coin.size + 1e-300))
    return float(ndtr(-z)), float(ndtr(z))


def _race_p_value(score: np.ndarray, member: np.ndarray, rate: float) -> float:
    """Test that members lie above the threshold of a false positive rate, whatever the threshold.

    Fair coins are tossed from the highest score on until the m-th that is no member; so many members before
    it or more come as often as that many heads in that many tosses and m - 1 others.
    """
    outside = score[~member]
    m = int(rate * outside.size) + 1
    threshold = np.partition(outside, outside.size - m)[outside.size - m]
    above = int((score[member] > threshold).sum())
    return at_least(above, above + m - 1, 0.5)
