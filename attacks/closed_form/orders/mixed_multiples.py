"""Two numbers that put a client's ratings near the grid, where rows are longer by multiples that nobody sees.

With m_l of ``attacks.closed_form.orders.last_minibatch``, a rating is

    r_j = A g_j / m_l + B h_j + s_j

for the l that its item happens to have; g, h, A and B are those of
``attacks.closed_form.orders.hidden_orders``. A, B and the size of s are fitted to a mixture over l and the
levels by expectation maximisation, from pairs that put many of a client's rows near the grid, wherever others
are.

s is larger where an item's few turns in the last minibatch count more than its others: these may have been in
early passes or in late ones, between which predictions and the length of the client's factor change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.orders.last_minibatch import ONE, Batches, Multiples, multiples_of
from attacks.closed_form.orders.order_pairs import FirstOrder, crowded_pairs

STRAY = 0.02  # share of rows that may be anywhere
OTHERS_STRAY = 0.5  # the same, while one multiple alone is asked for
CLOSE, FAR = 0.002, 0.15  # of a step: what ratings may miss the grid by, at least and at most
HUGE, SHORT = 1e6, 1e-9  # stars, that a prediction drifts by at most, and the least length of a factor
TRIED, REFINED = 24, 6  # pairs of a client, and those that are fitted to the end
LOG_CELL, CELL = 0.01, 0.03  # relative, and of a step, within which two pairs are alike
ROUNDS, MANY_ROUNDS = 10, 40  # of expectation maximisation, and of pairs that are fitted to the end
FEW_ROUNDS = 3  # the same, where pairs are near already


class Mixed(NamedTuple):
    """Pairs of A and B under a mixture of scales."""

    numbers: Float[np.ndarray, "pairs 2"]  # A and B
    missed: Float[np.ndarray, " pairs"]  # standard deviation of what ratings miss the grid by, stars
    nats: Float[np.ndarray, " pairs"]  # how much likelier the rows are than rows anywhere

    @property
    def constant(self) -> Float[np.ndarray, " pairs"]:
        """A B."""
        return self.numbers[:, 0] * self.numbers[:, 1]


def mixed_pairs(
    one: FirstOrder,
    multiples: Multiples,
    trials: Float[np.ndarray, "pairs 2"],
    levels: Float[np.ndarray, " levels"],
    rounds: int = ROUNDS,
    missed: Float[np.ndarray, " pairs"] | None = None,
    stray: float = STRAY,
) -> Mixed:
    """Fit pairs of A and B to the levels and numbers of times that they make likely."""
    step = step_of(levels)
    numbers = trials.copy()
    missed = np.full(len(trials), FAR / 2 * step) if missed is None else missed
    errors, predicted = one.g[:, None] / multiples.times, _predicted(one, multiples)
    for _ in range(rounds):
        value = values_of(one, multiples, numbers)
        named = nearest_level(value, levels)
        rest = named - value
        size = sizes_of(one, multiples, numbers, missed)
        share, _ = shares_of(rest, multiples, size, step, stray)
        share *= (missed[:, None, None] / size) ** 2
        numbers = _weighted_fit(errors, predicted, named - one.offset[:, None], share, numbers)
        square = (share * rest**2).sum(axis=(1, 2)) / np.maximum(share.sum(axis=(1, 2)), 1.0)
        missed = np.clip(np.sqrt(square), CLOSE * step, FAR * step)
    rest = distance_to_levels(values_of(one, multiples, numbers), levels)
    _, nats = shares_of(rest, multiples, sizes_of(one, multiples, numbers, missed), step, stray)
    order = np.argsort(-nats, kind="stable")
    return Mixed(numbers[order], missed[order], nats[order])


def best_mixed(
    one: FirstOrder, batches: Batches, trials: Float[np.ndarray, "pairs 2"], levels: np.ndarray
) -> Mixed:
    """Fit pairs that put many rows near the grid, whatever number of times those have in common."""
    multiples = multiples_of(one.g.size, batches)
    best = mixed_pairs(one, multiples, by_times(trials, multiples), levels).numbers[:REFINED]
    told = mixed_pairs(one, multiples, best, levels, MANY_ROUNDS)
    # biases in the middle of the grid leave each pair's opposite, and whole stars on one of halves the half
    every = np.concatenate([told.numbers * times for times in (1, -1, 2, 0.5)])
    return mixed_pairs(one, multiples, every, levels, FEW_ROUNDS, np.tile(told.missed, 4))


def rough_pairs(one: FirstOrder, levels: np.ndarray) -> Mixed:
    """Find pairs of A and B that put many rows near the grid, whatever the others do."""
    trials = crowded_pairs(one, levels)
    if not len(trials):
        return Mixed(trials, np.zeros(0), np.zeros(0))
    found = mixed_pairs(one, ONE, trials, levels, stray=OTHERS_STRAY)
    a, b = found.numbers.T
    length = b * np.abs(one.h).max() / (CELL * step_of(levels))
    size = np.maximum(np.abs(a), np.finfo(float).tiny)  # of errors that have no part in it, 0
    cells = np.stack([np.log(size) / LOG_CELL, length, np.sign(a)], axis=1)
    first = np.sort(np.unique(np.rint(cells), axis=0, return_index=True)[1])[:TRIED]
    return Mixed(found.numbers[first], found.missed[first], found.nats[first])


def by_times(trials: Float[np.ndarray, "pairs 2"], multiples: Multiples) -> Float[np.ndarray, "tried 2"]:
    """Pairs, where the rows that they put near the grid have either of the commonest numbers of times."""
    usual = multiples.times[np.argsort(-multiples.nats, kind="stable")[:2]]
    return np.concatenate([trials * [one, 1.0] for one in usual])


def values_of(
    one: FirstOrder, multiples: Multiples, numbers: Float[np.ndarray, "pairs 2"]
) -> Float[np.ndarray, "pairs n times"]:
    """Ratings under each pair, for each number of times that an item may have been in the last minibatch."""
    error = numbers[:, :1, None] * (one.g[:, None] / multiples.times)
    return error + numbers[:, 1:, None] * _predicted(one, multiples) + one.offset[:, None]


def _predicted(one: FirstOrder, multiples: Multiples) -> Float[np.ndarray, "n times"]:
    """Predictions in the units of h."""
    return one.h[:, None] + np.broadcast_to(one.own, one.g.shape)[:, None] * multiples.before


def sizes_of(
    one: FirstOrder,
    multiples: Multiples,
    numbers: Float[np.ndarray, "pairs 2"],
    missed: Float[np.ndarray, " pairs"],
) -> Float[np.ndarray, "pairs n times"]:
    """Standard deviations of ratings under each pair, for each number of times."""
    if not multiples.spread.any():
        return np.broadcast_to(missed[:, None, None], (missed.size, one.g.size, multiples.times.size))
    own, pull = (np.broadcast_to(part, one.g.shape) for part in (one.own, one.pull))
    length = np.where(np.abs(numbers[:, 1:]) < SHORT, SHORT, numbers[:, 1:])
    drift = length * own + pull / length
    error = (numbers[:, :1] / length**2 * one.longer)[:, :, None] * (one.g[:, None] / multiples.times)
    moved = np.minimum(np.hypot(drift[:, :, None], error) * multiples.spread, HUGE)
    return np.hypot(missed[:, None, None], moved)


def shares_of(
    rest: Float[np.ndarray, "pairs n times"],
    multiples: Multiples,
    size: Float[np.ndarray, "pairs n times"],
    step: float,
    stray: float = STRAY,
) -> tuple[Float[np.ndarray, "pairs n times"], Float[np.ndarray, " pairs"]]:
    """How probable each number of times is, and how likely all rows are beside rows anywhere.

    A longer row leaves as much more room for where it may be.
    """
    # sizes are no smaller than ``CLOSE``, so that nothing overflows
    share = np.exp(-((rest / size) ** 2) / 2) / size
    share *= np.exp(multiples.nats) / multiples.times * (step * (1 - stray) / np.sqrt(2 * np.pi))
    total = share.sum(axis=2) + stray
    share /= total[:, :, None]
    return share, np.log(total).sum(axis=1)


def _weighted_fit(
    errors: Float[np.ndarray, "n times"],
    predicted: Float[np.ndarray, "n times"],
    target: Float[np.ndarray, "pairs n times"],
    share: Float[np.ndarray, "pairs n times"],
    before: Float[np.ndarray, "pairs 2"],
) -> Float[np.ndarray, "pairs 2"]:
    """Least squares for A and B, each row and number of times weighed by its share."""
    weighted, ours = share * errors, share * predicted
    normal = np.stack([weighted * errors, weighted * predicted, weighted * predicted, ours * predicted])
    right = np.stack([weighted * target, ours * target]).sum(axis=(2, 3)).T
    normal = normal.sum(axis=(2, 3)).T.reshape(-1, 2, 2)
    both = normal[:, 0, 0] * normal[:, 1, 1]
    whole = both - normal[:, 0, 1] ** 2 > 1e-12 * both
    normal[~whole] = np.eye(2)
    return np.where(whole[:, None], np.linalg.solve(normal, right[..., None])[..., 0], before)
