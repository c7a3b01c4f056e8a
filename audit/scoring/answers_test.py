"""Test that clients are answered for what their rows say: against the same rows, dealt out again and again.

Where a client's rows say nothing of its ratings, the way in which they lie is one of all ways, and no more
likely to get an answer than those into which they are dealt out at random. One dealing makes this a sign test
over clients, which of fewer than seven cannot be significant; more of them can.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from audit.scoring.dealt_rows import most_dealings
from audit.scoring.statistics import LEAK_LEVEL


def dealings(n_clients: int, n_rows: int) -> int:
    """Find how often rows have to be dealt out for the test to become significant.

    Examples
    --------
    >>> [dealings(n, 50) for n in (1, 2, 3, 4, 6, 7, 100)], dealings(1, 5000)
    ([100, 10, 4, 3, 2, 1, 1], 10)
    """
    enough = int(LEAK_LEVEL ** (-1 / max(n_clients, 1)) + 1e-9)  # (enough + 1)^-n < LEAK_LEVEL
    return min(enough, most_dealings(n_rows))


def answers_test(
    answered: Bool[np.ndarray, " users"], dealt: Int[np.ndarray, " users"], n_dealings: int
) -> float:
    """Test exactly and one-sidedly that clients are answered more often than their rows, dealt out.

    Of each client the number of answers among its rows as they are and as dealt out is given; which of them
    is the real one is a draw. Clients are taken to be answered on their own account.

    References
    ----------
    E. J. G. Pitman 1937, doi:10.2307/2984124 (permutation within blocks).

    Examples
    --------
    >>> round(answers_test(np.ones(4, bool), np.zeros(4, int), 3), 4)
    0.0039
    >>> answers_test(np.ones(4, bool), np.full(4, 3), 3)
    1.0
    """
    chance = (answered + dealt) / (n_dealings + 1)
    count = np.ones(1)
    for one in chance:
        count = np.convolve(count, [1 - one, one])
    return float(min(count[int(answered.sum()) :].sum(), 1.0))
