"""Empirical epsilon: what an adversary who tells two worlds apart proves about a claimed budget.

If a mechanism is epsilon-differentially private (delta = 0), no event is more than e^epsilon times as likely
in one of two neighbouring worlds as in the other; with delta > 0, and delta more. So frequencies of an event
give a lower bound:

- ``from_repetitions``: independent runs in both worlds, events "score at least c" and "score at most -c" for
  preset c, at any delta, Clopper-Pearson bounds of both frequencies, corrected for the number of events
  (Bonferroni);
- ``from_one_run``: many records whose values were chosen by fair coins in one and the same run; the number of
  right guesses is at most Binomial(guesses, e^epsilon / (1 + e^epsilon)) in the stochastic order (Steinke,
  Nasr, Jagielski 2023, arXiv:2305.08846, Theorem 5.2 with delta = 0), whatever the records have to do
  with one another. The surest guesses count, in preset shares, corrected for their number.

Scores are log likelihood ratios, or anything else: a bad score gives a low bound, never a wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import betaincinv  # scipy.stats takes a second to import

from victims.common.errors import InputError
from victims.common.validation import require, strictly_between

THRESHOLDS = (0.0, 0.5, 1.0, 2.0, 4.0)  # of the score, preset
SHARES = (1.0, 0.5, 0.2, 0.05)  # of the guesses, surest first, preset
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Bound:
    """A lower bound of epsilon."""

    epsilon: float  # >= 0, at ``confidence``
    confidence: float
    most: float  # the largest bound that so many trials could give
    trials: int


def from_repetitions(
    inside: Float[np.ndarray, " runs"],
    outside: Float[np.ndarray, " more_runs"],
    confidence: float = CONFIDENCE,
    delta: float = 0.0,
) -> Bound:
    """Lower bound at delta from independent runs in two neighbouring worlds."""
    _check(confidence, inside, outside)
    events = 2 * len(THRESHOLDS)
    level = (1 - confidence) / (2 * events)
    found = 0.0
    for threshold in THRESHOLDS:
        for more, less in (
            (inside >= threshold, outside >= threshold),
            (outside <= -threshold, inside <= -threshold),
        ):
            found = max(found, _log_ratio(more, less, level, delta))
    return Bound(
        found,
        confidence,
        max(
            _log_ratio(np.ones(a.size, bool), np.zeros(b.size, bool), level, delta)
            for a, b in ((inside, outside), (outside, inside))
        ),
        inside.size + outside.size,
    )


def _log_ratio(
    more: Bool[np.ndarray, " a"], less: Bool[np.ndarray, " b"], level: float, delta: float
) -> float:
    """log of the least likely ratio of two frequencies, the first less delta."""
    low = betaincinv(more.sum(), more.size - more.sum() + 1, level) if more.any() else 0.0
    high = betaincinv(less.sum() + 1, less.size - less.sum(), 1 - level) if not less.all() else 1.0
    return float(np.log((low - delta) / high)) if low > delta else -np.inf


def from_one_run(
    score: Float[np.ndarray, " records"],
    coin: Bool[np.ndarray, " records"],
    confidence: float = CONFIDENCE,
) -> Bound:
    """Lower bound from records whose values were chosen by fair coins in one run.

    References
    ----------
    Steinke, Nasr and Jagielski 2023, arXiv:2305.08846, Theorem 5.2 with delta = 0.
    """
    _check(confidence, score, score)
    level = (1 - confidence) / len(SHARES)
    surest = np.argsort(-np.abs(score), kind="stable")
    found = most = 0.0
    for share in SHARES:
        chosen = surest[: max(1, round(share * score.size))]
        chosen = chosen[score[chosen] != 0]
        right = int(((score[chosen] > 0) == coin[chosen]).sum())
        found = max(found, _logit_of_least(right, chosen.size, level))
        most = max(most, _logit_of_least(chosen.size, chosen.size, level))
    return Bound(found, confidence, most, score.size)


def _logit_of_least(right: int, guesses: int, level: float) -> float:
    if right == 0:
        return 0.0
    least = betaincinv(right, guesses - right + 1, level)
    return float(max(np.log(least / (1 - least)), 0.0))


def _check(confidence: float, *scores: np.ndarray) -> None:
    require("a bound", "confidence", confidence, strictly_between(0, 1))
    for score in scores:
        if score.size == 0 or np.isnan(score).any():
            raise InputError(f"scores must be at least one number and not NaN, got {score[:5]}")
