"""How often an item is in the last, smaller minibatch of a pass, and what it weighs there.

A client with n ratings goes P times through them, by minibatches of b in an order that nobody sees; n is no
multiple of b, and the last minibatch of each pass has c = n mod b ratings. A mean weighs an error by 1 / b,
and by 1 / c in the last one, so that the row of an item that was in it l times is longer by

    m_l = 1 + l (b / c - 1) / P,    l ~ Binomial(P, c / n).

The scheme is that of H. B. McMahan et al., arXiv:1602.05629, Algorithm 1, as programs run it that shuffle and
average. Beyond the papers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import binom

RARE = 1e-6  # share of a client's ratings, below which a number of times is left out
MOST_TIMES = 12  # numbers of times in the last minibatch that are told apart


class Batches(NamedTuple):
    """How often clients go through their ratings, and by how many at a time."""

    size: int  # b and P
    passes: int  # b and P


class Multiples(NamedTuple):
    """By how much rows of one client are longer than others."""

    times: Float[np.ndarray, " times"]  # m_l, of which the first is 1
    nats: Float[np.ndarray, " times"]  # logarithm of the share of the ratings
    # standard deviation of a rating, of the drift of its prediction: the passes in which the item was in the
    # last minibatch count more, and may be early ones or late ones, and that comes last in each
    spread: Float[np.ndarray, " times"]
    # share of the way of an item's own copy, less half of it, that lies before its errors in the mean, but
    # for 1 / (2 P m_l), which is in A: a step is taken after its error is
    before: Float[np.ndarray, " times"]


ONE = Multiples(np.ones(1), *np.zeros((3, 1)))


def multiples_of(n: int, batches: Batches) -> Multiples:
    """By how much rows of a client with n ratings differ in length.

    Examples
    --------
    >>> multiples_of(20, Batches(16, 2)).times.tolist()
    [1.0, 2.5, 4.0]
    """
    last = n % batches.size
    if n <= batches.size or not last:
        return ONE
    often = np.arange(batches.passes + 1)
    nats = binom.logpmf(often, batches.passes, last / n)
    kept = nats > max(np.log(RARE), np.sort(nats)[-min(MOST_TIMES, nats.size)] - 1e-9)
    often, more = often[kept], (batches.size / last - 1) / batches.passes
    times = 1 + often * more
    squares = (batches.passes - often + often * (batches.size / last) ** 2) / (batches.passes * times) ** 2
    # what of it is proportional to an error is in A
    before = (1 / (batches.passes * times) - squares) / 2
    in_last = often * (batches.size / last) / (batches.passes * times)
    late = (in_last - last / n) / (2 * batches.passes)
    spread = np.hypot(more * np.sqrt(often / 12) / times, late)
    return Multiples(times, nats[kept], spread, before)
