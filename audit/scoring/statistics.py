"""Intervals, the test for a leak, and the verdict in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from audit.scoring.dealt_rows import beaten_test
from audit.scoring.metrics import LOWER_IS_BETTER
from victims.common.seeds import Purpose, generator

RESAMPLES = 1000
CONFIDENCE = 0.95
LEAK, NO_EVIDENCE, INCONCLUSIVE = "LEAK", "NO EVIDENCE", "INCONCLUSIVE"
NOT_TESTED = "NOT TESTED"
LEAK_LEVEL = 0.01  # of the one-sided sign tests
FEWEST = math.ceil(-math.log2(LEAK_LEVEL))  # clients with whom that level can be reached: 2^-7 < 0.01
TOLD = 0.9  # of a client's ratings that anybody is right about who has been told all the others, at most
GUESSED = (
    0.75  # right by the best guess, or of one level, above which single ratings say nothing of an attack
)
FEWEST_RATINGS = math.ceil(math.log(LEAK_LEVEL) / math.log(TOLD))  # all right, that level by ratings: 44
MOST_UNANSWERED = 0.5  # share of clients without an answer, above which what is not a leak was not tested
TOO_FEW = "too few clients are read better than by the best guess"
BELOW = "answers are significantly worse than the best guess: what the attack assumes does not hold here"
NEGLIGIBLE = 0.05  # an advantage below this at the upper end of its interval counts as bounded
RESAMPLE_CELLS = 4_000_000


@dataclass(frozen=True)
class Summary:
    """A metric over clients, beside the best guess without the transcript.

    Attributes
    ----------
    value, ci_low, ci_high : float
        Mean over clients and its 95 % percentile bootstrap interval.
    baseline : float
        Mean of the best guess over the same clients.
    advantage, advantage_low, advantage_high : float
        (value - baseline) / (1 - baseline); for errors 1 - value / baseline. 0 is the guess, 1 is
        everything. The interval resamples clients, value and baseline together; where yes or no
        is the guess for everybody, it ends at ``most_unlike``.
    p_value : float
        Exact one-sided sign test over clients that the attack beats the guess.
    below : bool
        The answers are significantly worse than the guess: the same test of the other side, and an
        interval of the advantage below 0.
    verdict : str
        "LEAK", "NO EVIDENCE", "INCONCLUSIVE" or "NOT TESTED"; empty of a guess.
    n_users : int
        Clients for which the metric is defined.
    n_unanswered : int
        Those of them who got no answer and count with the guess. Where nobody got one, value, interval,
        advantage and p-value are NaN.
    by_ratings : float or None
        p-value of ``ratings_test``; None where single ratings were not asked.
    by_dealings : float or None
        p-value of ``audit.scoring.dealt_rows.beaten_test``; None where no rows were dealt out.
    """

    value: float
    ci_low: float
    ci_high: float
    baseline: float
    advantage: float
    advantage_low: float
    advantage_high: float
    p_value: float
    below: bool
    verdict: str
    n_users: int
    n_unanswered: int
    by_ratings: float | None = None
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
    """Summarise a metric; clients where it or its baseline is NaN are left out.

    Parameters
    ----------
    metric : str
    values, baseline : (n_users,)
    seed : int
        Of the bootstrap.
    unanswered : (n_users,) bool, optional
        Clients without an answer, whose value is the guess.
    n_ratings : (n_users,), optional
        Ratings of each client of which ``values`` is the share that is right: with answers about fewer than
        ``FEWEST`` clients, ``ratings_test`` may tell a leak.
    yes_or_no : bool
        Values are 0 or 1, each found out alone: that all of few are the guess says little of the next one.
    dealt : (n_dealings, n_users), optional
        The same metric of what is read of rows that were dealt out: with answers about fewer than ``FEWEST``
        clients, ``beaten_test`` may tell a leak. NaN where there is no answer.
    n_unbeaten : int
        Dealings that were not made and count as read as well.

    Returns
    -------
    Summary
    """
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
    asked = n_ratings is not None and (~silent).sum() < FEWEST
    by_ratings = ratings_test(values, baseline, np.where(silent, 0, single)) if asked else None
    by_dealings = None
    if dealt is not None and asked:
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


def interval(
    statistic: Callable[..., np.ndarray], samples: tuple[np.ndarray, ...], seed: int
) -> tuple[float, float]:
    """Compute a 95 % percentile bootstrap interval, clients resampled together.

    Parameters
    ----------
    statistic : callable
        Of the samples and ``axis``.
    samples : tuple of (n_users,) arrays
    seed : int

    Returns
    -------
    low, high : float

    References
    ----------
    B. Efron 1979, doi:10.1214/aos/1176344552.
    """
    if all((sample == sample[0]).all() for sample in samples):
        only = float(statistic(*samples, axis=-1))
        return only, only
    interval = stats.bootstrap(
        samples,
        statistic,
        n_resamples=RESAMPLES,
        batch=max(1, RESAMPLE_CELLS // samples[0].size),
        vectorized=True,
        paired=len(samples) > 1,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=generator(seed, Purpose.BOOTSTRAP),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def most_unlike(n_users: int) -> float:
    """Bound the share of clients who are unlike all of a sample, which resampling that sample cannot show.

    Parameters
    ----------
    n_users : int
        In the sample.

    Returns
    -------
    float
        Upper end of the exact two-sided 95 % interval of a share of which none was seen.

    References
    ----------
    C. J. Clopper, E. S. Pearson 1934, doi:10.1093/biomet/26.4.404.

    Examples
    --------
    >>> round(most_unlike(12), 3), round(most_unlike(72), 3)
    (0.265, 0.05)
    """
    return float(1 - ((1 - CONFIDENCE) / 2) ** (1 / n_users))


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


def sign_test(metric: str, values: np.ndarray, baseline: np.ndarray, worse: bool = False) -> float:
    """Test exactly and one-sidedly, over clients, that values are better than the guess.

    Ties say nothing and are left out.

    Parameters
    ----------
    metric : str
    values, baseline : (n_users,)
    worse : bool
        Test that they are worse.

    Returns
    -------
    float
        The p-value; 1 where all are ties.

    References
    ----------
    W. J. Dixon, A. M. Mood 1946, doi:10.1080/01621459.1946.10501898.

    Examples
    --------
    >>> round(sign_test("rating_accuracy", np.ones(10), np.zeros(10)), 6)
    0.000977
    """
    sign = -1 if (metric in LOWER_IS_BETTER) != worse else 1
    wins = int((sign * (values - baseline) > 1e-12).sum())
    losses = int((sign * (values - baseline) < -1e-12).sum())
    if wins + losses == 0:
        return 1.0
    return float(stats.binomtest(wins, wins + losses, alternative="greater").pvalue)


def ratings_test(
    values: Float[np.ndarray, " users"],
    baseline: Float[np.ndarray, " users"],
    n_ratings: Float[np.ndarray, " users"],
) -> float:
    """Test by single ratings that more is told than anybody can guess, for clients too few for a sign test.

    The null is generous in place of exact: whoever has not seen the transcript, but has been told all other
    ratings of the client and everything of the others, is right about the next one with probability
    ``TOLD`` at most. Ratings one after the other then give at most binomially many right ones, whatever they
    have to do with each other. That cannot be said of clients who nearly always give one rating, whom the
    caller leaves out by their ratings alone, nor where the best guess tells more than ``GUESSED`` of those
    that are left. Nobody is left out for what was answered.

    Parameters
    ----------
    values, baseline : (n_users,)
        Shares of right ratings, in 0..1.
    n_ratings : (n_users,)
        Of each client; 0 where there is no answer, or nearly all are of one level.

    Returns
    -------
    float
        The p-value; 1 where the best guess tells too much.

    Examples
    --------
    >>> ratings_test(np.ones(5), np.full(5, 0.3), np.full(5, 10.0)) < LEAK_LEVEL
    True
    >>> ratings_test(np.ones(5), np.full(5, 0.3), np.full(5, 8.0)) < LEAK_LEVEL
    False
    """
    if not (baseline * n_ratings).sum() <= GUESSED * n_ratings.sum():
        return 1.0
    right = np.rint(values * n_ratings).sum()
    return float(stats.binom.sf(right - 1, n_ratings.sum(), TOLD))


def verdict(
    advantage_low: float,
    advantage_high: float,
    p_value: float,
    unanswered: float = 0.0,
    n_users: int = FEWEST,
    *,
    leaves: bool = True,
    by_ratings: float | None = None,
    by_dealings: float | None = None,
) -> str:
    """Choose one of four verdicts, from preset thresholds.

    LEAK needs both a significant sign test and an interval of the advantage above 0, or, of few clients, a
    significant test of their ratings, or one against their rows, dealt out: it stands also where
    most clients got no answer, for what is read of the others is read. Else NOT TESTED where more than half
    of the clients got none. NO EVIDENCE needs an interval that holds 0 and ends below 0.05: at this power
    the advantage is bounded by its upper end. An interval wholly below 0 is no such bound, for something in
    the transcript moved the answers, and so few clients that no sign test could be significant bound
    nothing, nor does a guess that is right everywhere: that is INCONCLUSIVE, as everything else is.

    Parameters
    ----------
    advantage_low, advantage_high : float
        The interval of the advantage.
    p_value : float
        Of the sign test.
    unanswered : float
        Share of clients without an answer.
    n_users : int
        Clients that were scored.
    leaves : bool
        Whether the best guess leaves something to read.
    by_ratings : float or None
        The p-value of ``ratings_test``; None where it was not asked.
    by_dealings : float or None
        The p-value of ``beaten_test``; None where it was not asked.

    Returns
    -------
    str
        LEAK, NOT TESTED, NO EVIDENCE or INCONCLUSIVE.

    Examples
    --------
    >>> verdict(-0.02, 0.03, 0.4), verdict(-0.02, -0.01, 0.9), verdict(-0.02, 0.03, 0.4, n_users=3)
    ('NO EVIDENCE', 'INCONCLUSIVE', 'INCONCLUSIVE')
    """
    told = by_ratings is not None and by_ratings < LEAK_LEVEL
    smallest = p_value if by_dealings is None else min(p_value, by_dealings)
    if told or (smallest < LEAK_LEVEL and advantage_low > 0):
        return LEAK
    if unanswered > MOST_UNANSWERED:
        return NOT_TESTED
    if leaves and advantage_low <= 0 <= advantage_high < NEGLIGIBLE and n_users >= FEWEST:
        return NO_EVIDENCE
    return INCONCLUSIVE


def why_inconclusive(summary: Summary, too_few: str = TOO_FEW) -> str:
    """Say why neither a leak nor a bound was found; empty where the verdict is another one.

    Parameters
    ----------
    summary : Summary
    too_few : str
        What is said where the mean is better and the sign test is not sure.

    Returns
    -------
    str
    """
    if summary.verdict != INCONCLUSIVE:
        return ""
    if summary.below:
        return BELOW
    if summary.n_users < FEWEST:
        who = "1 client is" if summary.n_users == 1 else f"{summary.n_users} clients are"
        ratings = takes = ""
        if summary.by_ratings is not None:
            ratings = f", and their single ratings {summary.by_ratings:.2g}"
            takes = f", or {FEWEST_RATINGS} ratings that are all right"
        if summary.by_dealings is not None:
            ratings += f", and their rows, dealt out, {summary.by_dealings:.2g}"
        return (
            f"{who} too few for a verdict: the sign test gives {2.0**-summary.n_users:.2g} at best{ratings}, "
            f"and a leak asks for less than {LEAK_LEVEL:g}, which takes {FEWEST}{takes}"
        )
    if summary.advantage_high < 0:
        return "answers are worse than the best guess: what the attack assumes may not hold here"
    return _in_between(summary, too_few)


def why_leak(summary: Summary) -> str:
    """Say what tells a leak of few clients, where no sign test does; empty otherwise.

    Parameters
    ----------
    summary : Summary

    Returns
    -------
    str
    """
    if summary.verdict != LEAK:
        return ""
    if summary.by_ratings is not None and summary.by_ratings < LEAK_LEVEL:
        return f"few clients: a test of their single ratings gives {summary.by_ratings:.1g}"
    if summary.by_dealings is not None and summary.by_dealings < LEAK_LEVEL:
        return f"few clients: a test against their rows, dealt out, gives {summary.by_dealings:.1g}"
    return ""


def _in_between(summary: Summary, too_few: str) -> str:
    """What is said of an interval that is not wholly below 0."""
    if summary.advantage == 0 == summary.advantage_low == summary.advantage_high and summary.value in (0, 1):
        return "the best guess is right for everybody: beyond it there is nothing to read"
    ends = f"[{summary.advantage_low:.2g}, {summary.advantage_high:.2g}]"
    if summary.advantage_low > 0:
        test = f"the sign test gives {summary.p_value:.2g}"
        return f"{too_few}: {test}, and a leak asks for less than {LEAK_LEVEL:g}"
    return f"the advantage lies within {ends}: no leak is shown, and {NEGLIGIBLE:g} or more is not ruled out"
