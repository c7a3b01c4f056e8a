"""Which of four verdicts numbers have, from preset thresholds."""

from __future__ import annotations

from audit.scoring.statistics import FEWEST, LEAK_LEVEL

LEAK, NO_EVIDENCE, INCONCLUSIVE = "LEAK", "NO EVIDENCE", "INCONCLUSIVE"
NOT_TESTED = "NOT TESTED"
MOST_UNANSWERED = 0.5  # share of clients without an answer, above which what is not a leak was not tested
NEGLIGIBLE = 0.05  # an advantage below this at the upper end of its interval counts as bounded


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
