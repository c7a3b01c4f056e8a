"""Which ratings are answered of clients whose rows sum steps in any order.

A and B of ``attacks.closed_form.orders.order_pairs`` leave ratings off the grid by what the order does, and
of half of that by a share of the error. A rating is answered where the next level is ``SURE`` times less
likely than the nearest, given a normal distance of that size. Errors that may have been clipped, a minibatch
that may be smaller than the others, and a client many times as far off the grid as others are reasons not to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import poisson

from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.orders.order_pairs import VAGUE, FirstOrder, Pairs, nats_of

FEWEST = 3  # clients that have to agree
ALONE, TOGETHER = 20.0, 8.0  # nats against chance of a client by itself, and with A B known
RIVAL, OTHERS = 8.0, 0.1  # nats that ratings must be better by which differ in more than this share
FARTHEST = 0.125  # of a step, that ratings miss the grid by at most
SURE = 1e4  # times less likely, that the next level must be
TAIL, OFF = 4.0, 0.02  # times the usual distance, and the share of the rows that may be farther off
LIKE_LARGEST, PILED = 0.93, 0.1  # of the largest error, and the share of the rows that are as large
ALIKE = 10.0  # times as far off the grid as half of the clients: they take the same steps
LEAST = 0.1  # share of a client's ratings that is sure, below which something else may move its rows
HARMLESS = 0.1  # of a step, that any row may be away from the grid
UNEVEN = 0.5  # share of clients with a smaller minibatch, if any: all of pairs with an odd number of ratings
RISK = 1e-3  # that a rating is wrong by such a minibatch
BIASED = 6.0  # standard errors, by which a number that all ratings of a client lack is none by accident
NORMAL = 0.6745  # standard deviations, that half of normal numbers are away


class Told(NamedTuple):
    """What one client's pair of numbers says, where it is believed."""

    named: Float[np.ndarray, " n"]  # ratings on the grid
    error: Float[np.ndarray, " n"]  # ratings less predictions, stars
    tolerance: float  # relative, of A B and so of errors
    # where another level is out of the question; where none lies between the rating and its prediction
    sure: Bool[np.ndarray, " n"]
    # where another level is out of the question; where none lies between the rating and its prediction
    next_: Bool[np.ndarray, " n"]
    missed: float  # by how much ratings miss the grid in the mean, stars
    numbers: Float[np.ndarray, " 2"]  # A and B
    odd: bool  # whether rows are too far off, so that nothing is answered
    # probability that a row which may be anywhere between two levels would be, and that it would lie as near
    # to the grid as all of this client do
    power: float
    # probability that a row which may be anywhere between two levels would be, and that it would lie as near
    # to the grid as all of this client do
    unseen: float
    # sizes of errors that rows have if they are longer by a multiple that nobody sees
    others: Float[np.ndarray, "n times"] | None = None


def answers_of(
    told: dict[int, Told], doubtful: int, levels: Float[np.ndarray, " levels"]
) -> dict[int, np.ndarray]:
    """Answer the ratings of clients that nothing speaks against."""
    every = list(told.values())
    bound = _least_bound(every)
    largest = max((np.abs(one.error).max() * (1 + one.tolerance) for one in every), default=0.0)
    out = {}
    for (user, one), risk, far in zip(told.items(), _risks(every, doubtful), _farther(every), strict=True):
        sure = one.sure & (one.next_ | (risk < RISK)) & _unclipped(one, bound, largest, levels)
        if sure.any() and sure.mean() >= LEAST and not one.odd and not far:
            out[user] = np.where(sure, one.named, np.nan)
    return out


def lack_biases(told: dict[int, Told], ones: dict[int, FirstOrder]) -> bool:
    """Whether what most clients' ratings miss the grid by is one number of each: a bias that nobody reads.

    Where a number is taken off all ratings the mirror image of some client fits better then than its ratings.
    """
    biased = [_lacks_a_bias(own, ones[user]) for user, own in told.items()]
    return bool(biased) and bool(np.mean(biased) >= 1 / 2)


def _lacks_a_bias(own: Told, one: FirstOrder) -> bool:
    """Whether a number that all its ratings share explains what they miss."""
    if one.g.size < FEWEST + 2:
        return False
    table = np.stack([own.error, one.h, np.ones(one.g.size)], axis=1)
    target = own.named - one.offset
    bias = np.linalg.lstsq(table, target, rcond=None)[0]
    left = np.linalg.norm(target - table @ bias) / np.sqrt(one.g.size - 3)
    return bool(abs(bias[2]) > BIASED * left * np.sqrt(max(np.linalg.pinv(table.T @ table)[2, 2], 0.0)))


def _farther(told: Sequence[Told]) -> Bool[np.ndarray, " clients"]:
    """Who misses the grid by many times what others do, for as many ratings and errors as large."""
    usual = np.array([one.missed / np.linalg.norm(one.error) for one in told])
    return usual > ALIKE * np.median(usual) if len(told) >= FEWEST else np.zeros(len(told), bool)


def told_by(
    pairs: Pairs, one: FirstOrder, constant: float, levels: Float[np.ndarray, " levels"]
) -> Told | None:
    """Take what one client says, given the A B of the others."""
    step = step_of(levels)
    nats = nats_of(pairs, levels)
    near = np.where(nats > 2 * ALONE, VAGUE, pairs.tolerance)
    here = np.flatnonzero(np.abs(pairs.constant / constant - 1) < near)
    if not here.size:
        return None
    best = here[0]
    missed = float(pairs.missed[best])
    differ = (pairs.named[here] != pairs.named[best]).mean(axis=1)
    rivals = (differ > OTHERS) & (nats[best] - nats[here] < RIVAL)
    if nats[best] < TOGETHER or missed > FARTHEST * step or rivals.any():
        return None
    error = pairs.numbers[best, 0] * one.g
    value = error + pairs.numbers[best, 1] * one.h + one.offset
    named = pairs.named[best]
    if _clipped(error, value - error, missed, step):
        return None
    away = np.abs(value - named)
    inside = np.where((value > levels[0]) & (value < levels[-1]), away, 0.0)
    # what is left is partly a share of the error, and grows with it
    times = (1 + error**2 / np.mean(error**2)) / 2
    square = missed**2 * times
    usual = np.median(away) / NORMAL
    tail = TAIL * usual * np.sqrt(np.maximum(times, 1.0))
    far = away > np.maximum(tail, HARMLESS * step)
    # rows that are nearer than need be leave less room for accidents
    bound = TAIL * usual if (away <= tail).all() else max(TAIL * usual, HARMLESS * step)
    sure = step * (step - 2 * inside) > 2 * np.log(SURE) * square
    sure &= np.abs(error) < np.abs(error[far]).min(initial=np.inf) / 2
    return Told(
        named,
        error,
        float(pairs.tolerance[best]),
        sure,
        _next(named, value - error, levels),
        float(away.mean()),
        pairs.numbers[best],
        bool(far.mean() > OFF),
        1 - 2 * min(max(TAIL * usual / step, HARMLESS), 0.5),
        2 * min(bound / step, 0.5),
    )


def _risks(read: list[Told], doubtful: int) -> Float[np.ndarray, " clients"]:
    """How probable it is, at most, that a rating of each client is one of a smaller minibatch by accident."""
    odd, power, own = (
        np.array([getattr(one, name) for one in read], float) for name in ("odd", "power", "unseen")
    )
    of_nobody = poisson.cdf(odd.sum() + doubtful, UNEVEN * power.sum())
    return np.minimum(of_nobody * UNEVEN * own / [one.named.size for one in read], 1.0)


def _least_bound(read: list[Told]) -> float:
    """The least bound that errors may have been clipped to: several clients have some that are as large."""
    largest = np.sort([np.abs(one.error).max() / (1 + one.tolerance) for one in read])
    return float(largest[-FEWEST]) if largest.size >= FEWEST else 0.0


def _unclipped(told: Told, bound: float, largest: float, levels: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Where no clipping changes the rating: errors smaller than a bound, however well they are told.

    Clipping makes errors smaller, so that the rating is farther from its prediction than it looks: at an end
    of the grid there is nothing farther. A row that may be longer may be as long as a clipped one.
    """
    last = told.named == np.where(told.error > 0, levels[-1], levels[0])
    free = (np.abs(told.error) * (1 + told.tolerance) < bound) | last
    if told.others is None:
        return free
    at_bound = (told.others * (1 + told.tolerance) >= bound) & (told.others <= largest)
    return free & (last | ~at_bound.any(axis=1))


def _next(named: np.ndarray, predicted: np.ndarray, levels: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Where no level lies between a rating and its prediction."""
    low, high = (np.minimum(named, predicted), np.maximum(named, predicted))
    between = (levels > low[:, None]) & (levels < high[:, None])
    return ~between.any(axis=1)


def _clipped(error: np.ndarray, predicted: np.ndarray, missed: float, step: float) -> bool:
    """Whether many errors are as large as the largest where predictions differ: they were cut to it.

    What was cut to one length differs by what the fit leaves.
    """
    size = np.abs(error)
    piled = size > np.maximum(LIKE_LARGEST * size.max(), size.max() - TAIL * missed)
    return bool(piled.sum() > 2 and piled.mean() > PILED and np.ptp(predicted[piled]) > step / 2)
