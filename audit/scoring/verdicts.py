"""A metric over clients beside its baseline: mean, interval, tests, one of four verdicts, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from audit.scoring.ceiling import Limit
from audit.scoring.metrics import ERRORS
from audit.scoring.statistics import (
    FEWEST,
    FEWEST_RATINGS,
    LEAK_LEVEL,
    ends,
    most_unlike,
    permutation_p_value,
    ratings_test,
    resampled_sums,
    sign_test,
)

LEAK, NO_EVIDENCE, INCONCLUSIVE, NOT_TESTED = "LEAK", "NO EVIDENCE", "INCONCLUSIVE", "NOT TESTED"
OPEN, RATED_SET = "OPEN", "rated_set"  # verdict and metric where uploads name the rated items
BOUND, REFUTED = "empirical_epsilon", "CLAIM REFUTED"
MOST_UNANSWERED = 0.5  # share of clients without an answer, above which what is not a leak was not tested
NEGLIGIBLE = 0.05  # an advantage below this at the upper end of its interval counts as bounded
TOO_FEW = "too few clients are read better than by the best guess"
BELOW = "answers are significantly worse than the best guess: what the attack assumes does not hold here"
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
SHOWN = 3  # commonest reasons


@dataclass(frozen=True)
class Summary:
    """A metric over clients, beside the best guess without the transcript."""

    value: float  # mean over clients, and its 95 % percentile bootstrap interval
    ci_low: float
    ci_high: float
    baseline: float  # mean of the best guess over the same clients
    # (value - baseline) / (1 - baseline); for errors 1 - value / baseline. 0 is the guess, 1 is everything.
    # The interval resamples clients, value and baseline together; where yes or no is the guess for everybody,
    # it ends at ``most_unlike``
    advantage: float
    advantage_low: float
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
    by_permutation: float | None = None  # of ``permutation_p_value``; None where no rows were permuted


class PerClient(NamedTuple):
    """What the means of a score are of.

    values (n_users,): a client without an answer has the guess's; guesses: (n_users,) by name; silent
    (n_users,): who got no answer.
    """

    values: Float[np.ndarray, " users"]
    guesses: Mapping[str, Float[np.ndarray, " users"]]
    silent: Bool[np.ndarray, " users"]


@dataclass(frozen=True)
class Score:
    """One metric of one reconstruction.

    ``ceiling`` is what a decoder reaches that knows all other answers of the client
    (``audit.scoring.ceiling``); None where it is not computed. Clients without an answer count with the best
    guess, so that abstaining neither helps nor hurts; ``n_abstained`` says how many they are, ``reason`` why,
    and why a verdict is INCONCLUSIVE. A guess has none. An attack that looked at everything and could not
    tell the uploads from noise (``Outcome.NOTHING_FOUND``) has answered: with the guess. ``clients`` is of
    the clients of the reconstruction, ascending; None where answers are about nobody by name.
    """

    metric: str
    summary: Summary
    baseline_name: str
    ceiling: Limit | None
    n_abstained: int
    reason: str = ""
    clients: PerClient | None = field(default=None, compare=False, repr=False)


def as_record(score: Score) -> dict[str, object]:
    """Flatten a score to the columns of the result table."""
    summary = asdict(score.summary)
    n_users = summary.pop("n_users")
    for inside in ("below", "n_unanswered", "by_ratings", "by_permutation"):
        del summary[inside]
    ceiling = score.ceiling or Limit(*[float("nan")] * 3)
    return {
        "metric": score.metric,
        **summary,
        "baseline_name": score.baseline_name,
        "ceiling": ceiling.best,
        "ceiling_ml": ceiling.ml,
        "ceiling_map": ceiling.map,
        "n_users": n_users,
        "n_abstained": score.n_abstained,
        "reason": score.reason,
    }


def summarise(
    metric: str,
    values: Float[np.ndarray, " users"],
    baseline: Float[np.ndarray, " users"],
    seed: int = 0,
    unanswered: Bool[np.ndarray, " users"] | None = None,
    n_ratings: Float[np.ndarray, " users"] | None = None,
    *,
    binary: bool = False,
    replicates: Float[np.ndarray, "replicates users"] | None = None,
    n_unbeaten: int = 0,
) -> Summary:
    """Summarise a metric; clients where it or its baseline is NaN are left out."""
    error = metric in ERRORS
    defined = ~(np.isnan(values) | np.isnan(baseline))
    silent = np.zeros(values.size, bool) if unanswered is None else unanswered
    values, baseline, silent = values[defined], baseline[defined], silent[defined]
    n_users = int(values.size)
    if silent.all():
        nan, guess = np.nan, float(baseline.mean()) if n_users else np.nan
        return Summary(nan, nan, nan, guess, nan, nan, nan, nan, False, NOT_TESTED, n_users, n_users)

    means = resampled_sums((values, baseline), seed) / n_users
    (ci_low, ci_high), (low, high) = ends(means[0], _advantage(error, *means))
    # a guess that is always right, as of ratings that are all one level, leaves nothing to read
    leaves = bool(((baseline if error else 1 - baseline) > 1e-12).any())
    if binary and leaves and (values == baseline).all():
        high = max(high, most_unlike(n_users))
    gain = baseline - values if error else values - baseline
    p_value, p_below = sign_test(gain)
    by_ratings = by_permutation = None
    if (~silent).sum() < FEWEST:
        if n_ratings is not None:
            by_ratings = ratings_test(values, baseline, np.where(silent, 0, n_ratings[defined]))
        if replicates is not None:
            real = np.where(silent, np.nan, values)
            by_permutation = permutation_p_value(real, replicates[:, defined], n_unbeaten=n_unbeaten)
    return Summary(
        float(values.mean()),
        ci_low,
        ci_high,
        float(baseline.mean()),
        float(_advantage(error, values.mean(), baseline.mean())),
        low,
        high,
        p_value,
        p_below < LEAK_LEVEL and high < 0,
        verdict(
            low,
            high,
            p_value,
            float(silent.mean()),
            n_users,
            leaves=leaves,
            by_ratings=by_ratings,
            by_permutation=by_permutation,
        ),
        n_users,
        int(silent.sum()),
        by_ratings,
        by_permutation,
    )


def _advantage(
    error: bool, value: Float[np.ndarray, " n"] | np.floating, baseline: Float[np.ndarray, " n"] | np.floating
) -> np.ndarray:
    better, room = (baseline - value, baseline) if error else (value - baseline, 1 - baseline)
    return np.where(room > 1e-12, better / np.maximum(room, 1e-12), np.minimum(better, 0.0))


def verdict(
    advantage_low: float,
    advantage_high: float,
    p_value: float,
    unanswered: float = 0.0,
    n_users: int = FEWEST,
    *,
    leaves: bool = True,
    by_ratings: float | None = None,
    by_permutation: float | None = None,
) -> str:
    """Choose one of four verdicts, from preset thresholds.

    LEAK needs both a significant sign test and an interval of the advantage above 0, or, of few clients, a
    significant test of their ratings, or one against their rows, permuted: it stands also where
    most clients got no answer, for what is read of the others is read. Else NOT TESTED where more than half
    of the clients got none. NO EVIDENCE needs an interval that holds 0 and ends below 0.05: at this power
    the advantage is bounded by its upper end. An interval wholly below 0 is no such bound, for something in
    the transcript moved the answers, and so few clients that no sign test could be significant bound
    nothing, nor does a guess that is right everywhere: that is INCONCLUSIVE, as everything else is.

    Examples
    --------
    >>> verdict(-0.02, 0.03, 0.4), verdict(-0.02, -0.01, 0.9), verdict(-0.02, 0.03, 0.4, n_users=3)
    ('NO EVIDENCE', 'INCONCLUSIVE', 'INCONCLUSIVE')
    """
    of_ratings = by_ratings is not None and by_ratings < LEAK_LEVEL
    smallest = p_value if by_permutation is None else min(p_value, by_permutation)
    if of_ratings or (smallest < LEAK_LEVEL and advantage_low > 0):
        return LEAK
    if unanswered > MOST_UNANSWERED:
        return NOT_TESTED
    if leaves and advantage_low <= 0 <= advantage_high < NEGLIGIBLE and n_users >= FEWEST:
        return NO_EVIDENCE
    return INCONCLUSIVE


def why_verdict(summary: Summary, too_few: str = TOO_FEW) -> str:
    """Say why neither a leak nor a bound was found, or what tells a leak of few clients; otherwise empty."""
    if summary.verdict == LEAK:
        tests = {
            "a test of their single ratings": summary.by_ratings,
            "a test against their rows, dealt out,": summary.by_permutation,
        }
        significant = ((test, p) for test, p in tests.items() if p is not None and p < LEAK_LEVEL)
        return next((f"few clients: {test} gives {p:.1g}" for test, p in significant), "")
    if summary.verdict != INCONCLUSIVE:
        return ""
    low, high = summary.advantage_low, summary.advantage_high
    if summary.below:
        why = BELOW
    elif summary.n_users < FEWEST:
        why = _why_few(summary)
    elif high < 0:
        why = "answers are worse than the best guess: what the attack assumes may not hold here"
    elif summary.advantage == 0 == low == high and summary.value in (0, 1):
        why = "the best guess is right for everybody: beyond it there is nothing to read"
    elif low > 0:
        test = f"the sign test gives {summary.p_value:.2g}"
        why = f"{too_few}: {test}, and a leak asks for less than {LEAK_LEVEL:g}"
    else:
        why = f"the advantage lies within [{low:.2g}, {high:.2g}]: no leak is shown, and "
        why += f"{NEGLIGIBLE:g} or more is not ruled out"
    return why


def _why_few(summary: Summary) -> str:
    """Why so few clients have no verdict."""
    who = "1 client is" if summary.n_users == 1 else f"{summary.n_users} clients are"
    others = takes = ""
    if summary.by_ratings is not None:
        others = f", and their single ratings {summary.by_ratings:.2g}"
        takes = f", or {FEWEST_RATINGS} ratings that are all right"
    if summary.by_permutation is not None:
        others += f", and their rows, dealt out, {summary.by_permutation:.2g}"
    return (
        f"{who} too few for a verdict: the sign test gives {2.0**-summary.n_users:.2g} at best{others}, "
        f"and a leak asks for less than {LEAK_LEVEL:g}, which takes {FEWEST}{takes}"
    )


def joined_reasons(*reasons: str) -> str:
    """Put reasons together, without the empty ones."""
    return "; ".join(filter(None, reasons))


def reason_of(summary: Summary, abstained: str, n_abstained: int) -> str:
    """Say what must be said beside the numbers of a metric; empty where nothing must."""
    silent = (abstained or f"{n_abstained:,} clients got no answer") if n_abstained else ""
    return joined_reasons(silent, why_verdict(summary))


def in_words(abstained: Mapping[int, str], n_users: int) -> str:
    """Say how many clients got no answer, and why.

    Examples
    --------
    >>> in_words({0: "misfit 0.98", 3: "misfit 1.02"}, 5)
    '2 of 5 clients got no answer: misfit 0.98 to 1.02 (2)'
    """
    if not abstained:
        return ""
    groups = grouped(abstained.values())
    words = "; ".join(f"{reason} ({count:,})" for reason, count in groups[:SHOWN])
    more = f"; {len(groups) - SHOWN} other reasons" if len(groups) > SHOWN else ""
    return f"{len(abstained):,} of {n_users:,} clients got no answer: {words}{more}"


def grouped(reasons: Iterable[str]) -> list[tuple[str, int]]:
    """Count reasons, those that differ in their numbers alone as one.

    Examples
    --------
    >>> grouped(["misfit 0.98 of 1", "misfit 1.02 of 1", "all rows are zero"])
    [('misfit 0.98 to 1.02 of 1', 2), ('all rows are zero', 1)]
    """
    alike: dict[str, list[str]] = {}
    for reason in reasons:
        alike.setdefault(NUMBER.sub("#", reason), []).append(reason)
    groups = [(_with_ranges(same), len(same)) for same in alike.values()]
    return sorted(groups, key=lambda group: -group[1])


def _with_ranges(reasons: list[str]) -> str:
    """Reasons that differ in their numbers alone as one, with the range of each number."""
    columns = zip(*(NUMBER.findall(reason) for reason in reasons), strict=True)
    ordered = [sorted(set(texts), key=lambda text: float(text.replace(",", ""))) for texts in columns]
    ranges = iter([texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}" for texts in ordered])
    return NUMBER.sub(lambda _: next(ranges), reasons[0])


def refuted(bound: float, claim: float) -> str:
    """What a lower bound of epsilon says of a claimed one.

    Examples
    --------
    >>> refuted(1.2, 1.0), refuted(0.8, 1.0), refuted(0.8, float("inf"))
    ('CLAIM REFUTED', 'not refuted', 'no claim')
    """
    if not np.isfinite(claim):
        return "no claim"
    return REFUTED if bound > claim else "not refuted"
