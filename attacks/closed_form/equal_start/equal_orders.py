"""The order of the steps of clients who start alike, all factors equal, where rows are sent in another.

In the first round of Chai et al.'s published start all items have one length h and all clients one s_0. With
lengths in units of the first, S_0 = 1,

    g_k = alpha S_k (r_k - x S_k) - gamma,    S_{k+1} = shrink S_k + delta (r_k - x S_k),

or S_{k+1} (r_k - x S_k) where a row is about the length after the step: five numbers that all clients share.
So the rows that clients made first are one of as many numbers as there are levels: digit for digit the same
in many clients, while later ones differ by all ratings before. Three numbers that are shared so name alpha,
x + gamma / alpha and, in the second case, delta; in the first case delta is what the second rows of most
clients agree on. Where users start as items do, s_0 = h, and rows hold nothing else, x = h^2 and gamma = 0
are known, and two such numbers (one in the first case) name the rest: they are tried first, for few clients
start with three levels each of which others start with, too. From there each next row is the one that some
level explains, and the five numbers are fitted to what is known of all clients, a few rows further each time,
up to the digits.

What it assumes: ``attacks.closed_form.equal_start.equal_pulled``, which reads the rows in the order found;
the first round; clients enough that three levels, or two, are first in two of them or more.

References
----------
D. Chai et al., "Secure Federated Matrix Factorization", arXiv:1906.05108, Algorithm 1 and its
published program.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

ALIKE = 1e-6  # relative, within which all items have one length
SHARED, MOST_SHARED = 2, 8  # clients that a number is shared by, and how many numbers are tried
DIGITS = 64.0  # times the last digit of the largest row, within which rows are the same
TRIED = 40  # ways to name the shared numbers
PREFIXES = (2, 3, 4, 6, 9, 14, 22, 35, 60)  # rows of a client, up to which the numbers are fitted
RATES = np.geomspace(1e-6, 0.3, 3000)  # delta, 0.4 % apart
WINDOW = 3  # neighbours on each side that count as one rate
RATES_TRIED = 4
LOOSE = 0.006  # of what the first step changes, by which delta may be off
FEWEST = 3  # rows of all clients
STARTS = 24  # shared numbers that are tried where x and gamma are known
CLEARLY = 30.0  # times as far off that the next row must be where a level explains two to the digits
MOST_LEVELS = 12  # of a grid: three of them are tried for every three rows that clients share
STEPS, RANK = 4, 1e-12  # of Gauss and Newton, and singular values that they count
OFF, WIDER = 8.0, 30.0  # times what is left, that a row is no longer fitted, and the next ones may be off
ENOUGH = 0.75  # of the clients, whose rows must all be in order
UNIT = 1e-30  # imaginary, of a derivative by complex steps


class Orders(NamedTuple):
    """What clients say together."""

    # numbers of the steps, in the place of each row; what is not told comes last
    sequence: Int[np.ndarray, "users rows"]
    pull: float  # c of ``attacks.closed_form.equal_start.equal_pulled``


class _Known(NamedTuple):
    """Rows in the order found and ratings that explain them (clients, steps); how many of each client."""

    place: Int[np.ndarray, "clients steps"]
    rating: Float[np.ndarray, "clients steps"]
    n_rows: Int[np.ndarray, " clients"]


def equal_orders(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    precision: float,
) -> Orders | None:
    """Find in which order each client made its rows."""
    if levels.size > MOST_LEVELS or valid.sum() < FEWEST or not _one_length(along, valid):
        return None
    facing = np.where((along * valid).sum(axis=1) < 0, -1.0, 1.0)[:, None]
    g = np.where(valid, scalar * facing, np.nan)
    digit = DIGITS * precision * np.nanmax(np.abs(g))
    with np.errstate(all="ignore"):
        x = float(np.nanmedian(along[valid] ** 2))
        for after, begin in chain(_equal_starts(g, levels, digit, x), _beginnings(g, levels, digit)):
            known, numbers = _followed(g, levels, digit, begin, after)
            whole = known.n_rows == valid.sum(axis=1)
            if whole[valid.any(axis=1)].mean() >= ENOUGH:
                return Orders(_sequence(known, valid), float(numbers[2] / np.abs(along[valid]).mean()))
    return None


def _one_length(along: np.ndarray, valid: np.ndarray) -> bool:
    size = np.abs(along[valid])
    return bool(size.min() > 0 and np.ptp(size) <= ALIKE * size.max())


def _beginnings(g: np.ndarray, levels: np.ndarray, digit: float) -> Iterator[tuple[bool, np.ndarray]]:
    """Whether rows are about the later length, and (alpha, x, gamma, delta, shrink), likeliest first.

    First rows are a parabola in their levels, or a line where rows are about the length before the step.
    """
    value, count = _shared(g, digit)
    most = np.sort(np.argsort(-count, kind="stable")[:MOST_SHARED])
    value, count = value[most[count[most] >= SHARED]], count[most[count[most] >= SHARED]]
    for degree in (1, 2):
        for curve in _curves(value, count, levels, digit, degree):
            bend = curve[2] if degree == 2 else 0.0
            numbers = np.array([curve[1], 0.0, -curve[0], bend / curve[1], 1.0])
            if degree == 2:
                yield True, numbers
                continue
            for rate in _rates(g, levels, digit, curve[1], curve[0]):
                yield False, np.array([*numbers[:3], rate, 1.0])


def _equal_starts(
    g: np.ndarray, levels: np.ndarray, digit: float, x: float
) -> Iterator[tuple[bool, np.ndarray]]:
    """As ``_beginnings``, where x is known, rows hold nothing else and most clients have a first row."""
    value, count = _shared(g, digit)
    some = value[np.argsort(-count, kind="stable")[:STARTS]]
    error = levels[levels != x] - x
    rate = (some[:, None] / error).ravel()  # alpha, or alpha (1 + delta e)
    first, of_error = np.repeat(some, error.size), np.tile(error, some.size)
    for alpha in _explaining(g, np.stack([rate, 0 * rate], axis=1), error, digit)[:, 0]:
        for delta in _second_rates(g, error, x, digit / abs(alpha), alpha):
            yield False, np.array([alpha, x, 0.0, delta, 1.0])
    one, two = np.nonzero((first[:, None] < first) & (of_error[:, None] != of_error))
    bend = (rate[one] - rate[two]) / (of_error[one] - of_error[two])
    alpha = rate[one] - bend * of_error[one]
    growing = (bend / alpha > 0) & (bend / alpha <= RATES[-1])
    both = np.stack([alpha[growing], bend[growing]], axis=1)
    for alpha, bend in _explaining(g, both, error, digit):
        yield True, np.array([alpha, x, 0.0, bend / alpha, 1.0])


def _second_rates(
    g: np.ndarray, error: np.ndarray, x: float, digit: float, alpha: float
) -> Float[np.ndarray, " few"]:
    """delta on which second rows of most clients agree to their digits, all else being known."""
    told = [np.zeros((3, 0))]
    for client, sent in enumerate(g / alpha):
        level, row = np.nonzero(np.abs(sent - error[:, None]) <= digit)
        if level.size != 1:
            continue
        # of the roots S of x S^2 - r S + g / alpha = 0 the one near 1
        rating, others = (error + x)[:, None], np.delete(sent, row)
        length = 2 * others / (rating + np.sqrt(rating**2 - 4 * x * others))
        rate = (length - 1) / error[level]
        rate = rate[(rate > RATES[0]) & (rate < RATES[-1])]
        off = np.full(rate.size, digit / abs(error[level[0]]))
        told.append(np.stack([rate, off, np.full(rate.size, client)]))
    every = np.concatenate(told, axis=1)
    rate, off, client = every[:, np.argsort(every[0])]
    low, high = np.searchsorted(rate, rate - off), np.searchsorted(rate, rate + off, side="right")
    votes = np.array([np.unique(client[a:b]).size for a, b in zip(low, high, strict=True)])
    return rate[np.argsort(-votes, kind="stable")[:RATES_TRIED]]


def _explaining(
    g: np.ndarray, numbers: Float[np.ndarray, "trials two"], error: np.ndarray, digit: float
) -> Float[np.ndarray, "few two"]:
    """Of alpha and its bend those with which most clients have a first row, if these are most of them."""
    told = (numbers[:, :1] + numbers[:, 1:] * error) * error
    clients = np.zeros(len(numbers))
    for sent in g:
        own = np.concatenate([[-np.inf], np.sort(sent[np.isfinite(sent)]), [np.inf]])
        at = np.searchsorted(own, told)
        near = np.minimum(told - own[at - 1], own[at] - told) <= digit
        clients += near.any(axis=1)
    order = np.argsort(-clients, kind="stable")[:TRIED]
    return numbers[order[clients[order] >= ENOUGH * np.isfinite(g).any(axis=1).sum()]]


def _curves(
    value: np.ndarray, count: np.ndarray, levels: np.ndarray, digit: float, degree: int
) -> Float[np.ndarray, "few m"]:
    """Polynomials of a level that make the rows which most clients have, c + b r or c + b r + a r^2."""
    if value.size <= degree:
        return np.zeros((0, degree + 1))
    power = np.arange(degree + 1)
    named = np.array(list(combinations(levels, degree + 1)))
    shared = value[np.array(list(combinations(range(value.size), degree + 1)))]
    both = np.concatenate([shared, shared[:, ::-1]])
    curves = np.einsum("nij,tj->tni", np.linalg.inv(named[..., None] ** power), both).reshape(-1, degree + 1)
    # lengths grow by a small part with every step, if at all
    curves = curves[curves[:, 1] != 0]
    growth = curves[:, 2] / curves[:, 1] if degree == 2 else np.zeros(len(curves))
    curves = curves[(growth >= 0) & (growth <= RATES[-1])]
    told = curves @ levels ** power[:, None]
    missed = np.abs(told[..., None] - value)
    clients = ((missed <= digit) * count).sum(axis=(1, 2))
    # of shifts by a level, the one with the smallest x + gamma / alpha
    order = np.lexsort((np.abs(curves[:, 0] / curves[:, 1]), -clients))
    return curves[order[:TRIED]]


def _shared(g: np.ndarray, digit: float) -> tuple[Float[np.ndarray, " numbers"], Int[np.ndarray, " numbers"]]:
    """The different rows, ascending, and in how many clients each is."""
    user, row = np.nonzero(np.isfinite(g))
    every = g[user, row]
    order = np.argsort(every, kind="stable")
    label = np.cumsum(np.diff(every[order], prepend=-np.inf) > digit) - 1
    both = np.unique(np.stack([label, user[order]]), axis=1)
    value = np.bincount(label, every[order]) / np.bincount(label)
    return value, np.bincount(both[0])


def _rates(
    g: np.ndarray, levels: np.ndarray, digit: float, slope: float, first: float
) -> Float[np.ndarray, " few"]:
    """delta that second rows of most clients agree on, where rows are about the length before the step."""
    bare = (g - first) / slope  # S r, but for x
    missed = np.abs(bare[..., None] - levels)
    user, row, level = np.nonzero(missed <= abs(digit / slope))
    votes = np.zeros(RATES.size)
    for client in np.unique(user):
        begin = levels[level[user == client]]
        others = np.delete(bare[client], row[user == client])
        rate = ((others[:, None] / levels - 1)[None] / begin[:, None, None]).ravel()
        near = np.unique(np.searchsorted(RATES, rate[(rate > RATES[0]) & (rate < RATES[-1])]))
        votes[near] += 1
    votes = np.convolve(votes, np.ones(2 * WINDOW + 1), mode="same")
    return RATES[np.argsort(-votes, kind="stable")[: RATES_TRIED * WINDOW : WINDOW]]


def _followed(
    g: np.ndarray, levels: np.ndarray, digit: float, numbers: np.ndarray, after: bool
) -> tuple[_Known, np.ndarray]:
    """Rows in the order that a level explains each, and the numbers fitted to all of them."""
    tolerance = max(digit, LOOSE * abs(numbers[0] * numbers[3]) * levels[-1] ** 2)
    known = _in_order(g, levels, digit, numbers, after, 1)
    for most in (*(one for one in PREFIXES if one < g.shape[1]), g.shape[1]):
        known = _in_order(g, levels, tolerance, numbers, after, most)
        if not (known.n_rows > 1).any():
            break
        numbers, left = _fitted(g, known, numbers, after)
        tolerance = max(digit, min(tolerance, WIDER * left))
    return _in_order(g, levels, digit, numbers, after, g.shape[1]), numbers


def _in_order(
    g: np.ndarray, levels: np.ndarray, tolerance: float, numbers: np.ndarray, after: bool, most: int
) -> _Known:
    """Each client's rows as long as one alone is explained by a level, so many at most."""
    users = np.arange(len(g))
    left = g.copy()
    place = np.zeros((len(g), most), int)
    rating = np.full((len(g), most), np.nan)
    count = np.zeros(len(g), int)
    length, going = np.ones(len(g)), np.ones(len(g), bool)
    for number in range(most):
        told, following = _row(levels[None], length[:, None], numbers, after)
        missed = np.nan_to_num(np.abs(left[:, :, None] - told[:, None]), nan=np.inf)
        nearest = np.partition(np.pad(missed.min(axis=2), ((0, 0), (0, 1)), constant_values=np.inf), 1)
        going &= (nearest[:, 0] <= tolerance) & (
            nearest[:, 1] > np.minimum(tolerance, CLEARLY * nearest[:, 0])
        )
        if not going.any():
            break
        row, level = np.divmod(missed.reshape(len(g), -1).argmin(axis=1), levels.size)
        place[going, number], rating[going, number] = row[going], levels[level[going]]
        length = np.where(going, following[users, level], length)
        left[users[going], row[going]] = np.nan
        count += going
    return _Known(place, rating, count)


def _row(
    rating: np.ndarray, length: np.ndarray, numbers: np.ndarray, after: bool
) -> tuple[np.ndarray, np.ndarray]:
    """A row, and the length after its step."""
    alpha, x, gamma, delta, shrink = numbers
    error = rating - x * length
    following = shrink * length + delta * error
    return alpha * (following if after else length) * error - gamma, following


def _fitted(g: np.ndarray, known: _Known, numbers: np.ndarray, after: bool) -> tuple[np.ndarray, float]:
    """The five numbers from what is known of all clients, and what they leave of later rows, mostly."""
    there = np.isfinite(known.rating)
    sent = np.take_along_axis(g, known.place, axis=1)[there]
    later = np.nonzero(there)[1] > 0  # first rows leave nothing whatever delta is
    for _ in range(STEPS):
        value, slope = _sloped(known, numbers, after)
        missing, table = sent - value[there], slope[there]
        kept = np.abs(missing) <= OFF * np.median(np.abs(missing[later]))
        unit = np.linalg.norm(table[kept], axis=0)
        unit = np.where(unit > 0, unit, 1.0)
        numbers = numbers + np.linalg.lstsq(table[kept] / unit, missing[kept], rcond=RANK)[0] / unit
    value, _ = _sloped(known, numbers, after)
    return numbers, float(np.median(np.abs(sent - value[there])[later]))


def _sloped(known: _Known, numbers: np.ndarray, after: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows (clients, steps), and their derivatives by each number: by complex steps."""
    moved = numbers[:, None] + 1j * UNIT * np.eye(numbers.size)  # (number, trial)
    length = np.ones((len(known.rating), numbers.size), complex)
    out = np.zeros((*known.rating.shape, numbers.size), complex)
    for number in range(known.rating.shape[1]):
        rating = np.nan_to_num(known.rating[:, number])[:, None]
        out[:, number], length = _row(rating, length, moved, after)
    return out[..., 0].real, out.imag / UNIT


def _sequence(known: _Known, valid: np.ndarray) -> Int[np.ndarray, "users rows"]:
    """The number of its step in the place of each row; what is not told comes last."""
    out = np.where(valid, valid.shape[1], 0)
    for user, count in enumerate(known.n_rows):
        out[user, known.place[user, :count]] = np.arange(count)
    return out
