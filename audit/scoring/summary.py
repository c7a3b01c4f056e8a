"""A metric over clients beside the best guess: mean, interval, tests and verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from audit.scoring.dealt_rows import beaten_test
from audit.scoring.metrics import LOWER_IS_BETTER
from audit.scoring.statistics import FEWEST, LEAK_LEVEL, interval, most_unlike, ratings_test, sign_test
from audit.scoring.verdicts import NOT_TESTED, verdict


@dataclass(frozen=True)
class Summary:
    """A metric over clients, beside the best guess without the transcript."""

    value: float  # mean over clients and its 95 % percentile bootstrap interval
    ci_low: float  # mean over clients and its 95 % percentile bootstrap interval
    ci_high: float  # mean over clients and its 95 % percentile bootstrap interval
    baseline: float  # mean of the best guess over the same clients
    # (value - baseline) / (1 - baseline); for errors 1 - value / baseline. 0 is the guess, 1 is everything.
    # The interval resamples clients, value and baseline together; where yes or no is the guess for everybody,
    # it ends at ``most_unlike``
    advantage: float
    # (value - baseline) / (1 - baseline); for errors 1 - value / baseline. 0 is the guess, 1 is everything.
    # The interval resamples clients, value and baseline together; where yes or no is the guess for everybody,
    # it ends at ``most_unlike``
    advantage_low: float
    # (value - baseline) / (1 - baseline); for errors 1 - value / baseline. 0 is the guess, 1 is everything.
    # The interval resamples clients, value and baseline together; where yes or no is the guess for everybody,
    # it ends at ``most_unlike``
    advantage_high: float
    p_value: float  # exact one-sided sign test over clients that the attack beats the guess
    # the answers are significantly worse than the guess: the same test of the other side, and an interval of
    # the advantage below 0
    below: bool
    verdict: str  # "LEAK", "NO EVIDENCE", "INCONCLUSIVE" or "NOT TESTED"; empty of a guess
    n_users: int  # clients for which the metric is defined
    # those of them who got no answer and count with the guess. Where nobody got one, value, interval,
    # advantage and p-value are NaN
    n_unanswered: int
    by_ratings: float | None = None  # p-value of ``ratings_test``; None where single ratings were not asked
    # p-value of ``audit.scoring.dealt_rows.beaten_test``; None where no rows were dealt out
    by_dealings: float | None = None


def summarise(
    metric: str,
    values: Float[np.ndarray, " users"],
    baseline: Float[np.ndarray, " users"],
    seed: int = 0,
    unanswered: Bool[np.ndarray, " users"] | None = None,
    n_ratings: Float[np.ndarray, " users"] | None = None,
    *,
    yes_or_no: bool = False,
    dealt: Float[np.ndarray, "dealings users"] | None = None,
    n_unbeaten: int = 0,
) -> Summary:
    """Summarise a metric; clients where it or its baseline is NaN are left out."""
    single = np.full(values.size, np.nan) if n_ratings is None else n_ratings
    silent = np.zeros(values.size, bool) if unanswered is None else unanswered
    defined = ~(np.isnan(values) | np.isnan(baseline))
    values, baseline, silent, single = (part[defined] for part in (values, baseline, silent, single))
    if silent.all():
        nan = float("nan")
        guess = float(baseline.mean()) if baseline.size else nan
        n_users = int(values.size)
        return Summary(nan, nan, nan, guess, nan, nan, nan, nan, False, NOT_TESTED, n_users, n_users)
    ci_low, ci_high = interval(lambda v, axis: v.mean(axis=axis), (values,), seed)
    advantage_low, advantage_high = interval(
        lambda v, b, axis: _advantage(metric, v.mean(axis=axis), b.mean(axis=axis)),
        (values, baseline),
        seed,
    )
    leaves = _leaves_something(metric, baseline)
    if yes_or_no and leaves and (values == baseline).all():
        advantage_high = max(advantage_high, most_unlike(values.size))
    advantage = float(_advantage(metric, values.mean(), baseline.mean()))
    p_value = sign_test(metric, values, baseline)
    few = (~silent).sum() < FEWEST
    by_ratings = by_dealings = None
    if few and n_ratings is not None:
        by_ratings = ratings_test(values, baseline, np.where(silent, 0, single))
    if few and dealt is not None:
        real = np.where(silent, np.nan, values)
        by_dealings = beaten_test(real, dealt[:, defined], n_unbeaten=n_unbeaten)
    below = sign_test(metric, values, baseline, worse=True) < LEAK_LEVEL and advantage_high < 0
    return Summary(
        float(values.mean()),
        ci_low,
        ci_high,
        float(baseline.mean()),
        advantage,
        advantage_low,
        advantage_high,
        p_value,
        below,
        verdict(
            advantage_low,
            advantage_high,
            p_value,
            float(silent.mean()),
            int(values.size),
            leaves=leaves,
            by_ratings=by_ratings,
            by_dealings=by_dealings,
        ),
        int(values.size),
        int(silent.sum()),
        by_ratings,
        by_dealings,
    )


def _advantage(metric: str, value: np.ndarray | float, baseline: np.ndarray | float) -> np.ndarray:
    value, baseline = np.asarray(value), np.asarray(baseline)
    better, room = value - baseline, 1 - baseline
    if metric in LOWER_IS_BETTER:
        better, room = baseline - value, baseline
    return np.where(room > 1e-12, better / np.maximum(room, 1e-12), np.minimum(better, 0.0))


def _leaves_something(metric: str, baseline: np.ndarray) -> bool:
    """Whether the guess is wrong anywhere: of ratings that are all one level it is always right."""
    room = baseline if metric in LOWER_IS_BETTER else 1 - baseline
    return bool((room > 1e-12).any())
