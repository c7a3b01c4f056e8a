"""The two labels of a client's items, put together from its rounds, up to which is which.

``attacks.closed_form.implicit.positives`` says which label is that of the positives.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from scipy.special import gammaln

SHARE = 4  # of so many items a client uses one at most, so that minibatches are drawn of no more


class Sides(NamedTuple):
    """The labels of one client's items, up to which is which."""

    item: Int[np.ndarray, " items"]  # without repetition
    sign: Int[np.ndarray, " items"]  # 1 or -1, its label
    counts: Int[np.ndarray, "rounds 2"]  # items of label 1 and of label -1 in each round
    # nats for 1 being the positives, as its items are the same in all rounds and the others are not; negative
    # where it is the other way round, 0 where rounds say nothing
    lasting: float
    # how often an item of the label that changes comes again, over pairs of rounds, and how often it would in
    # minibatches of lasting ones; 0 where rounds say nothing
    again: float
    # how often an item of the label that changes comes again, over pairs of rounds, and how often it would in
    # minibatches of lasting ones; 0 where rounds say nothing
    of_batches: float
    # the label whose items all come so often in each round, twice or more, where those of the other come
    # unevenly (``attacks.closed_form.implicit.repeats``); 0 where there is none
    even: int = 0
    # the label whose items all come so often in each round, twice or more, where those of the other come
    # unevenly (``attacks.closed_form.implicit.repeats``); 0 where there is none
    repeats: int = 0


def joined(rounds: Sequence[tuple[np.ndarray, np.ndarray]], n_items: int) -> Sides:
    """Put together what a client's rounds say, each up to which label is which.

    Examples
    --------
    >>> first = np.array([4, 7, 9]), np.array([1, -1, -1])
    >>> both = joined([first, (np.array([4, 8, 2]), np.array([-1, 1, 1]))], 100)
    >>> both.item.tolist(), both.sign.tolist(), round(both.lasting, 1)
    ([4, 7, 9, 8, 2], [1, -1, -1, -1, -1], 4.6)
    """
    label: dict[int, int] = {}
    lists: list[tuple[set[int], set[int]]] = []
    for items, signs in rounds:
        own = dict(zip(items.tolist(), signs.tolist(), strict=True))
        alike = [label[item] * sign for item, sign in own.items() if item in label]
        if label and abs(sum(alike)) < max(len(alike), 1):
            continue
        turn = -1 if sum(alike) < 0 else 1
        own = {item: turn * sign for item, sign in own.items()}
        lists.append(({i for i, s in own.items() if s > 0}, {i for i, s in own.items() if s < 0}))
        label |= own
    plus, minus = (
        _drawn_again([one[k] for one in lists], [one[1 - k] for one in lists], n_items) for k in (0, 1)
    )
    # a label whose items are the same by chance, or are the positives
    lasting = 0.0 if (plus > 0) == (minus > 0) else plus - minus
    counts = np.array([[len(a), len(b)] for a, b in lists])
    changing = [] if lasting == 0 else [own[int(lasting > 0)] for own in lists]
    return Sides(
        np.array(list(label), int),
        np.array(list(label.values()), int),
        counts,
        lasting,
        *_coming_again(changing, n_items),
    )


def _coming_again(own: list[set[int]], n_items: int) -> tuple[float, float]:
    """How many items two rounds have in common, over all pairs, and how many minibatches would have."""
    again = of_batches = 0.0
    for one, other in combinations(own, 2):
        again += len(one & other)
        drawn_of = max(n_items / SHARE, len(one), len(other))
        of_batches += len(one) * len(other) / drawn_of
    return again, of_batches


def _drawn_again(own: list[set[int]], other: list[set[int]], n_items: int) -> float:
    """Minus the logarithm of the probability that draws from all but the others are the same in all rounds.

    0 where they are not the same, or there is one round.
    """
    if len(own) < 2 or any(one != own[0] for one in own):
        return 0.0
    n, free = len(own[0]), n_items - max(len(one) for one in other)
    if free <= n:
        return 0.0
    return float((len(own) - 1) * (gammaln(free + 1) - gammaln(n + 1) - gammaln(free - n + 1)))
