"""Why a verdict is what it is, in words."""

from __future__ import annotations

from audit.scoring.statistics import FEWEST, FEWEST_RATINGS, LEAK_LEVEL
from audit.scoring.summary import Summary
from audit.scoring.verdicts import INCONCLUSIVE, LEAK, NEGLIGIBLE

TOO_FEW = "too few clients are read better than by the best guess"
BELOW = "answers are significantly worse than the best guess: what the attack assumes does not hold here"


def why_inconclusive(summary: Summary, too_few: str = TOO_FEW) -> str:
    """Say why neither a leak nor a bound was found; empty where the verdict is another one."""
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
    """Say what tells a leak of few clients, where no sign test does; empty otherwise."""
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


def reason_of(summary: Summary, why: str, n_abstained: int) -> str:
    """Say what must be said beside the numbers of a metric; empty where nothing must."""
    words = [why or f"{n_abstained:,} clients got no answer"] if n_abstained else []
    return "; ".join(filter(None, (*words, why_inconclusive(summary), why_leak(summary))))
