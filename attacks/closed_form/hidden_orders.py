"""Several passes over a client's ratings, by rating or minibatch, in orders that nobody sees.

A client goes P times through its n ratings, each time in another order, with steps eta of its factor u and of
its copies w_j of the items. The row of j is the sum of its P steps, eta sum_t e_jt u_jt. To first order in
eta the order does not matter: with the means e_j, u over the passes, d the direction of u and w_j the copy
half-way (as broadcast plus half the row),

    D_j . d = P eta |u| e_j + second order,    r_j = A D_j . d + B w_j . d + s_j,

A = 1 / (P eta |u|), B = |u|.

What is left, s_j, comes of where in each order j stood: it is about eta sqrt(n / (12 P)) times an error, an
item's length and the error of j, small where a pass moves u by a small part of itself. A and B are those that
put the ratings of a client nearest to the grid; A B = 1 / (P eta) is the same for all clients, which most of
them have to show. Then s is what they miss the grid by, half of it a share of the error, and a rating is
answered where the next level is ``SURE`` times less likely than the nearest, given a normal s of that size.
Who misses the grid by more than ``FARTHEST`` of a step, has many rows farther off than a normal s leaves, or
many errors that are as large as the largest (clipped ones), is not answered, nor are ratings with errors half
as large as that of any row that is so far off. A client with one clipped error is near to the grid at
another level, too: ratings are answered whose errors are smaller than some of ``FEWEST`` clients, or that are
at the end of the grid on the side of their error, for a clipped one is farther there than it looks.

Where all ratings have another multiple on the grid (whole stars of a grid of halves), or are every second
level, nobody is answered.

What it assumes: copies that move or not, one scale of all rows (a mean over minibatches of unequal size has
several), uploads in the clear, half a dozen ratings. Beyond the papers; the scheme is that of
H. B. McMahan et al., arXiv:1602.05629, Algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import poisson

from attacks.closed_form.credible import one_multiple
from attacks.closed_form.decoding import beside_levels, common_step, distance_to_levels, nearest_level
from attacks.closed_form.goodness_of_fit import step_of
from attacks.closed_form.readings import Reading, Rows, reading_of
from attacks.closed_form.reduction import leading_direction
from victims.transcript.manifest import Manifest

FEWEST_ROWS, FEWEST = 6, 3  # ratings of a client, and clients that have to agree
ASKED = 12  # clients with most ratings: where none of them can be read alone the others are not tried
MOST = 0.75  # of those that can be read alone, that have to agree
SPREAD = 0.4  # of the rows' size, across their common direction, above which steps are not small
VARIED = (
    0.02  # of predictions, by which they must differ: equal ones leave all ratings shifted by a level open
)
SEARCHED = 48  # rows of a client in the search
FINE = 0.04  # of the range of ratings, from one B of the search to the next
RATIO = 1.04  # from one A to the next
MOST_STEPS = 100  # of a grid, up to its highest level: the search takes as many B for each
WIDEST = 1.5  # times the range of ratings, that errors and predictions reach at most
SMALLEST = 0.1  # of it, that errors reach at least
KEPT = 24  # pairs of a client that are fitted to the levels that they name
ALIKE = 0.06  # relative, within which A B of two clients are one
SIGMAS, VAGUE = 3.0, 0.5  # times how well a client tells A B, that it may differ, and relative, at most
TELLING = 0.1  # how well a client has to tell it, to be asked
ALONE, TOGETHER = 20.0, 8.0  # nats against chance of a client by itself, and with A B known
RIVAL, OTHERS = 8.0, 0.1  # nats that ratings must be better by which differ in more than this share
FARTHEST = 0.125  # of a step, that ratings miss the grid by at most
SURE = 1e4  # times less likely, that the next level must be
TAIL, OFF = 4.0, 0.02  # times the usual distance, and the share of the rows that may be farther off
LIKE_LARGEST, PILED = 0.93, 0.1  # of the largest error, and the share of the rows that are as large
HARMLESS = 0.1  # of a step, that any row may be away from the grid
UNEVEN = 0.5  # share of clients with a smaller minibatch, if any: all of pairs with an odd number of ratings
RISK = 1e-3  # that a rating is wrong by such a minibatch
NORMAL = 0.6745  # standard deviations, that half of normal numbers are away


class FirstOrder(NamedTuple):
    """What one client's rows say to first order.

    Attributes
    ----------
    g, h, offset : (n,)
        A row along the common direction, its item's factor along it, and what everybody adds, stars.
    here : (rows,) bool
        Where these rows are.
    """

    g: Float[np.ndarray, " n"]
    h: Float[np.ndarray, " n"]
    offset: Float[np.ndarray, " n"]
    here: Bool[np.ndarray, " rows"]


class Pairs(NamedTuple):
    """Pairs of numbers that put ratings near the grid.

    Attributes
    ----------
    numbers : (pairs, 2)
        A and B.
    named : (pairs, n)
        Ratings on the grid.
    missed, spread : (pairs,)
        By how much these are missed, stars, and how well A B is told (relative).
    """

    numbers: Float[np.ndarray, "pairs 2"]
    named: Float[np.ndarray, "pairs n"]
    missed: Float[np.ndarray, " pairs"]
    spread: Float[np.ndarray, " pairs"]

    @property
    def constant(self) -> Float[np.ndarray, " pairs"]:
        """A B."""
        return self.numbers[:, 0] * self.numbers[:, 1]

    @property
    def tolerance(self) -> Float[np.ndarray, " pairs"]:
        """Relative, by which A B may differ from those of others."""
        return np.clip(SIGMAS * self.spread, ALIKE, VAGUE)


class Told(NamedTuple):
    """What one client's pair of numbers says, where it is believed.

    Attributes
    ----------
    named : (n,)
        Ratings on the grid.
    error : (n,)
        Ratings less predictions, stars.
    tolerance : float
        Relative, of A B and so of errors.
    sure, next_ : (n,) bool
        Where another level is out of the question; where none lies between the rating and its prediction.
    missed : float
        By how much ratings miss the grid in the mean, stars.
    numbers : (2,)
        A and B.
    odd : bool
        Whether rows are too far off, so that nothing is answered.
    power : float
        Probability that a row which may be anywhere between two levels would be.
    """

    named: Float[np.ndarray, " n"]
    error: Float[np.ndarray, " n"]
    tolerance: float
    sure: Bool[np.ndarray, " n"]
    next_: Bool[np.ndarray, " n"]
    missed: float
    numbers: Float[np.ndarray, " 2"]
    odd: bool
    power: float


def read_hidden_orders(rows: Rows, manifest: Manifest) -> Reading:
    """Read clients as ones that went several times through their ratings, in any orders.

    Parameters
    ----------
    rows : Rows
        Of clients that nothing else explains.
    manifest : Manifest
        Names the rating grid.

    Returns
    -------
    Reading
        Ratings on the grid, NaN where another level is not out of the question; nobody is answered where
        clients do not agree on A B.
    """
    levels = np.array(manifest.rating_levels)
    users = len(rows.item)
    value = np.full(rows.item.shape, np.nan)
    missed, numbers = np.full(users, np.nan), np.full((users, 2), np.nan)
    clients = {user: one for user in range(users) if (one := _client(rows, user)) is not None}
    if levels.size > 1 and len(clients) >= FEWEST:
        pairs = _pairs_of_all(clients, levels)
        constant = _shared(pairs, levels)
        read = {} if constant is None else _all_told(pairs, clients, constant, levels)
        bound = _least_bound(list(read.values()))
        for (user, told_of), risk in zip(read.items(), _risks(list(read.values())), strict=True):
            sure = told_of.sure & (told_of.next_ | (risk < RISK)) & _unclipped(told_of, bound, levels)
            if sure.any() and not told_of.odd:
                value[user, clients[user].here] = np.where(sure, told_of.named, np.nan)
                missed[user], numbers[user] = told_of.missed, told_of.numbers
    told = np.isfinite(value)
    if told.any() and (
        _on_a_coarser_grid(value[told], levels)
        or not one_multiple((value - rows.offset)[told], rows.offset[rows.item], levels)
    ):
        value[:], missed[:] = np.nan, np.nan
    allowed = np.where(np.isnan(missed), 0.0, 4 * FARTHEST)
    return reading_of(
        value, missed / (step_of(levels) / 4), allowed, of_error=numbers[:, 0], of_factor=numbers[:, 1]
    )


def _client(rows: Rows, user: int) -> FirstOrder | None:
    """g and h of one client; None where rows are few or have no direction, or predictions hardly differ."""
    here = rows.item[user] & (rows.rows[user] != 0).any(axis=1)
    sent, v = rows.rows[user, here], rows.factors[user, here].astype(float)
    if here.sum() < FEWEST_ROWS or not np.isfinite(sent).all():
        return None
    directions, energy = leading_direction(sent[None])
    direction = directions[0]
    g = sent @ direction
    across = np.linalg.norm(sent - g[:, None] * direction) / np.sqrt(energy[0])
    if not across < SPREAD:
        return None
    # rows that are no changes of copies are larger, or smaller, and leave half-way where it was
    change = np.linalg.norm(sent) < np.linalg.norm(v)
    h = (v + sent / 2 if change else v) @ direction
    if np.std(h) < VARIED * np.abs(np.mean(h)):
        return None
    return FirstOrder(g, h, rows.offset[user, here], here)


def _pairs_of_all(clients: dict[int, FirstOrder], levels: np.ndarray) -> dict[int, Pairs]:
    """Pairs of each client, those with most ratings first; of these alone where none can be read alone."""
    pairs: dict[int, Pairs] = {}
    for user in sorted(clients, key=lambda user: -clients[user].g.size):
        if len(pairs) == ASKED and not any(_by_itself(one, levels).any() for one in pairs.values()):
            break
        pairs[user] = nearest_pairs(clients[user], levels)
    return pairs


def nearest_pairs(one: FirstOrder, levels: Float[np.ndarray, " levels"]) -> Pairs:
    """Find the pairs of A and B that put most of a client's ratings near the grid, the nearest first.

    Parameters
    ----------
    one : FirstOrder
    levels : (levels,)
        Ratings that exist, ascending, stars.

    Returns
    -------
    Pairs
        None of grids with more than ``MOST_STEPS`` steps.
    """
    some = slice(None, None, max(1, -(-one.g.size // SEARCHED)))
    g, h, offset = one.g[some], one.h[some], one.offset[some]
    top, wide = float(levels[-1]), float(levels[-1] - levels[0])
    largest, longest = np.abs(g).max(), np.abs(h).max()
    if not (largest > 0 and longest > 0) or top > MOST_STEPS * step_of(levels):
        return Pairs(np.zeros((0, 2)), np.zeros((0, one.g.size)), np.zeros(0), np.zeros(0))
    n_sizes = int(np.log(WIDEST / SMALLEST) / np.log(RATIO)) + 1
    sizes = SMALLEST * wide / largest * RATIO ** np.arange(n_sizes)
    errors = np.concatenate([sizes, -sizes])
    lengths = np.arange(FINE / 2, WIDEST * top, FINE * step_of(levels)) / longest
    lengths = np.concatenate([lengths, -lengths])  # the direction's sign is open
    missed = _missed(errors[:, None] * g, lengths[:, None] * h + offset, levels)
    at = np.argpartition(missed.ravel(), min(8 * KEPT, missed.size - 1))[: 8 * KEPT]
    trials = np.stack([errors[at % errors.size], lengths[at // errors.size]], axis=1)
    return _fitted(trials, one, levels)


def _missed(
    error: Float[np.ndarray, "errors rows"],
    predicted: Float[np.ndarray, "lengths rows"],
    levels: Float[np.ndarray, " levels"],
) -> Float[np.ndarray, "lengths errors"]:
    """How far ratings are from the grid, in the mean and squared, under each pair."""
    missed = np.empty((len(predicted), len(error)))
    step = common_step(levels)
    if not step:
        for number, one in enumerate(predicted):
            missed[number] = (distance_to_levels(error + one, levels) ** 2).mean(axis=1)
        return missed
    # single precision tells which pairs are fitted, in a third of the time
    error, predicted = (error / step).astype(np.float32), ((predicted - levels[0]) / step).astype(np.float32)
    off = np.empty_like(error)
    for number, one in enumerate(predicted):
        beside_levels(np.add(error, one, out=off), levels.size)
        missed[number] = np.einsum("er,er->e", off, off)
    return missed


def _fitted(trials: np.ndarray, one: FirstOrder, levels: np.ndarray) -> Pairs:
    """Pairs by least squares from the levels that they name, each once."""
    table = np.stack([one.g, one.h], axis=1)
    inverse = np.linalg.pinv(table, rcond=1e-10)
    for _ in range(4):
        named = nearest_level(trials @ table.T + one.offset, levels)
        trials = (named - one.offset) @ inverse.T
    value = trials @ table.T + one.offset
    named, first = np.unique(nearest_level(value, levels), axis=0, return_index=True)
    free = max(1, one.g.size - 2)
    missed = np.sqrt(((value[first] - named) ** 2).sum(axis=1) / free)
    order = np.argsort(missed, kind="stable")[:KEPT]
    numbers = trials[first][order]
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = missed[order] * np.linalg.norm((1 / numbers) @ inverse, axis=1)
    return Pairs(numbers, named[order], missed[order], np.where(np.isfinite(spread), spread, np.inf))


def _nats(pairs: Pairs, levels: np.ndarray) -> Float[np.ndarray, " pairs"]:
    """How improbable it is by chance that ratings are so near to the grid."""
    n = pairs.named.shape[1] - 2
    chance = step_of(levels) / np.sqrt(12)
    return n * np.log(chance / np.maximum(pairs.missed, 1e-9))


def _by_itself(one: Pairs, levels: np.ndarray) -> Bool[np.ndarray, " pairs"]:
    """Pairs that a client tells without others."""
    return (_nats(one, levels) > ALONE) & (one.missed < FARTHEST * step_of(levels)) & (one.spread < TELLING)


def _shared(pairs: dict[int, Pairs], levels: np.ndarray) -> float | None:
    """A B of most clients that can be read alone."""
    alone = {}
    for user, one in pairs.items():
        good = _by_itself(one, levels)
        if good.any():
            alone[user] = one.constant[good], one.tolerance[good]
    if len(alone) < FEWEST:
        return None
    every = np.concatenate([own for own, _ in alone.values()])
    votes = [sum((np.abs(own / c - 1) < near).any() for own, near in alone.values()) for c in every]
    best = every[int(np.argmax(votes))]
    # clients who use every second level alone fit half as large, too: others have to tell
    rival = np.max(votes, where=np.abs(every / best - 1) > VAGUE, initial=0)
    if max(votes) < max(FEWEST, MOST * len(alone)) or rival >= max(votes):
        return None
    like = [own[np.abs(own / best - 1).argmin()] for own, _ in alone.values()]
    return float(np.median([c for c in like if abs(c / best - 1) < VAGUE]))


def _all_told(
    pairs: dict[int, Pairs], clients: dict[int, FirstOrder], constant: float, levels: np.ndarray
) -> dict[int, Told]:
    """What is believed of each client whose A B is that of the others."""
    read = {user: _told(own, clients[user], constant, levels) for user, own in pairs.items()}
    return {user: told for user, told in read.items() if told is not None}


def _risks(read: list[Told]) -> Float[np.ndarray, " clients"]:
    """How probable it is, at most, that a rating of each client is one of a smaller minibatch by accident."""
    odd, power = (np.array([getattr(one, name) for one in read], float) for name in ("odd", "power"))
    unseen = poisson.cdf(odd.sum(), UNEVEN * power.sum())
    return np.minimum(unseen * UNEVEN * (1 - power) / [one.named.size for one in read], 1.0)


def _least_bound(read: list[Told]) -> float:
    """The least bound that errors may have been clipped to: several clients have some that are as large."""
    largest = np.sort([np.abs(one.error).max() for one in read])
    return float(largest[-FEWEST]) if largest.size >= FEWEST else 0.0


def _unclipped(told: Told, bound: float, levels: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Where no clipping changes the rating: errors smaller than a bound, however well they are told.

    Clipping makes errors smaller, so that the rating is farther from its prediction than it looks: at an end
    of the grid there is nothing farther.
    """
    under = np.abs(told.error) * (1 + told.tolerance) < bound
    last = np.where(told.error > 0, levels[-1], levels[0])
    return under | (told.named == last)


def _told(pairs: Pairs, one: FirstOrder, constant: float, levels: np.ndarray) -> Told | None:
    """What one client says, given the A B of the others."""
    step = step_of(levels)
    nats = _nats(pairs, levels)
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
    if _clipped(error, value - error, step):
        return None
    away = np.abs(value - named)
    inside = np.where((value > levels[0]) & (value < levels[-1]), away, 0.0)
    # what is left is partly a share of the error, and grows with it
    times = (1 + error**2 / np.mean(error**2)) / 2
    square = missed**2 * times
    usual = np.median(away) / NORMAL
    far = away > np.maximum(TAIL * usual * np.sqrt(np.maximum(times, 1.0)), HARMLESS * step)
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
    )


def _next(named: np.ndarray, predicted: np.ndarray, levels: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Where no level lies between a rating and its prediction."""
    low, high = (np.minimum(named, predicted), np.maximum(named, predicted))
    between = (levels > low[:, None]) & (levels < high[:, None])
    return ~between.any(axis=1)


def _on_a_coarser_grid(named: Float[np.ndarray, " n"], levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether all ratings are every second level, say: numbers with half the differences fit, and an offset.

    Predictions through a link that is nearly straight are such numbers.
    """
    steps = np.rint((named - levels[0]) / step_of(levels)).astype(int)
    return bool(np.gcd.reduce(steps - steps[0]) > 1)


def _clipped(error: np.ndarray, predicted: np.ndarray, step: float) -> bool:
    """Whether many errors are as large as the largest where predictions differ: they were cut to it."""
    size = np.abs(error)
    piled = size > LIKE_LARGEST * size.max()
    return bool(piled.sum() > 2 and piled.mean() > PILED and np.ptp(predicted[piled]) > step / 2)
