"""How often each item of a client comes in a pairwise loss, which the sizes of its rows tell.

In the pairwise loss of Bayesian personalised ranking each pair adds e p to the row of its positive and -e p
to that of its negative, and early in training all e are next to equal: rows are whole multiples of one
number. A client that draws m negatives for each positive, two or more, lists every positive m times;
negatives come once, twice or not at all, as the draw has it. So the label whose items all come m times,
beside one of which some come oftener than others, is that of the positives. The other way round, n negatives
that N = m n draws among them hit m times each have a probability of N! / (m!^n n^N).

What it assumes: one step in the round, sizes within ``NEAR`` of whole multiples.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import gammaln

NEAR = 0.2  # of what one pair adds, within which sizes are whole multiples of it
MOST = 10  # negatives for each positive
FEWEST = 8  # items of the other label: so many sizes are whole multiples by accident with 0.4^8, 0.0007


def repeats_of(g: Float[np.ndarray, " n"], first: Bool[np.ndarray, " n"]) -> tuple[int, int]:
    """Say which label's items come equally often, and how often.

    Examples
    --------
    >>> drawn = np.array([1, 1, 2, 1, 3, 1, 1, 2])
    >>> repeats_of(np.concatenate([[-4, -4, -4.0], drawn * 1.01]), np.arange(11) < 3)
    (1, 4)
    """
    found = [
        (label, number)
        for label, own in ((1, first), (-1, ~first))
        if (number := _number(np.abs(g[own]), np.abs(g[~own])))
    ]
    return found[0] if len(found) == 1 else (0, 0)


def _number(even: Float[np.ndarray, " n"], other: Float[np.ndarray, " m"]) -> int:
    """How often each of the first come, if all come as often, and the others do not; 0 else."""
    if not even.size or other.size < FEWEST:
        return 0
    for number in range(2, MOST + 1):
        one = np.median(even) / number
        whole = np.rint(other / one)
        off = np.concatenate([even / one - number, other / one - whole])
        # multiples of all of them: the first come once each, and the others as often as they were used
        shared = np.gcd.reduce(whole.astype(int), initial=number) > 1
        if np.abs(off).max() <= NEAR and whole.min() >= 1 and not shared:
            return number if np.ptp(whole) > 0 else 0
    return 0


def nats_of(n: int, repeats: int) -> float:
    """Minus the logarithm of the probability that draws come equally often."""
    total = n * repeats
    return float(total * np.log(n) + n * gammaln(repeats + 1) - gammaln(total + 1)) if n else 0.0
