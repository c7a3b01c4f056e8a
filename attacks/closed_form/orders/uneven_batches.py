"""Several passes over minibatches that are averaged, of which the last of each pass is smaller.

A client with n ratings goes P times through them, by minibatches of b in an order that nobody sees; n is no
multiple of b, and the last minibatch of each pass has c = n mod b ratings. A mean weighs an error by 1 / b,
and by 1 / c in the last one. In place of the one scale of all rows of a client
(``attacks.closed_form.orders.hidden_orders``) there are P + 1: of an item that was in the last one l times

    D_j . d = P eta |u| m_l e_j / b + second order,    m_l = 1 + l (b / c - 1) / P,
    r_j = A D_j . d / m_l + B w_j . d + s_j,    l ~ Binomial(P, c / n),

and A B = b / (P eta) is the same for all clients. A, B and the size of s are fitted to a mixture over l and the
levels (expectation maximisation). b and P are those under which all clients together are likeliest: pairs of A
and B that put many of a client's rows near the grid, whatever the others do, are tried under each.

How often an item was in the last minibatch is open, and a rating is answered where all numbers of times that
are likely leave one level (``SURE``); another round tells more, and rounds are taken together.

What it assumes: what ``attacks.closed_form.orders.hidden_orders`` does, but for one scale of all rows. The
scheme is that of H. B. McMahan et al., arXiv:1602.05629, Algorithm 1, as programs run it that shuffle and
average. Beyond the papers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp
from scipy.stats import binom

from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.orders.order_answers import (
    ALONE,
    FEWEST,
    HARMLESS,
    OFF,
    OTHERS,
    RIVAL,
    SURE,
    TAIL,
    Told,
)
from attacks.closed_form.orders.order_pairs import SEARCHED, SIGMAS, VAGUE, FirstOrder, crowded_pairs

PASSES = (*range(2, 13), 15, 20, 25, 30, 40, 50)  # that are tried
LARGEST = 256  # minibatch that is tried
RARE = 1e-4  # share of a client's ratings, below which a number of times is left out
MOST_TIMES = 12  # numbers of times in the last minibatch that are told apart
STRAY, OTHERS_STRAY = 0.02, 0.5  # share of rows that may be anywhere, and while only one multiple is known
MISSED = 0.05  # of a step, that ratings miss the grid by at most
WIDER = 1.5  # times the usual distance from the grid: what is left is not normal
HUGE = 1e6  # stars, that a prediction drifts by at most
TRIED = 24  # pairs of a client
LOG_CELL, CELL = 0.01, 0.03  # relative, and of a step, within which two pairs are alike
NEARLY, LEAST_SPREAD = 0.15, 0.02  # relative, that A B of clients may differ, and that errors may, at least
CLOSE, FAR = 0.002, 0.15  # of a step: what ratings may miss the grid by, at least and at most
ROUNDS, FEW_ROUNDS, MANY_ROUNDS = (
    10,
    3,
    40,
)  # of expectation maximisation, in the search for b and P, and at last
REFINED = 6  # pairs of a client that are fitted to the end
ASKED = 12  # clients that tell b and P
HALVED, LEAST = 3, 8  # what is left of b and P after every few clients, and at least


class Batches(NamedTuple):
    """How often clients go through their ratings, and by how many at a time.

    Attributes
    ----------
    size, passes : int
        b and P.
    """

    size: int
    passes: int


class Multiples(NamedTuple):
    """By how much rows of one client are longer than others, for how often they were in the last minibatch.

    Attributes
    ----------
    times : (times,)
        m_l, of which the first is 1.
    nats : (times,)
        Logarithm of the share of the ratings.
    spread : (times,)
        Standard deviation of a rating, of the drift of its prediction: the passes in which the item was in
        the last minibatch count more, and may be early ones or late ones, and that comes last in each.
    before : (times,)
        Share of the way of an item's own copy, less half of it, that lies before its errors in the mean: a
        step is taken after its error is.
    """

    times: Float[np.ndarray, " times"]
    nats: Float[np.ndarray, " times"]
    spread: Float[np.ndarray, " times"]
    before: Float[np.ndarray, " times"]


class Mixed(NamedTuple):
    """Pairs of A and B under a mixture of scales.

    Attributes
    ----------
    numbers : (pairs, 2)
        A and B.
    missed : (pairs,)
        Standard deviation of what ratings miss the grid by, stars.
    nats : (pairs,)
        How much likelier the rows are than rows anywhere.
    """

    numbers: Float[np.ndarray, "pairs 2"]
    missed: Float[np.ndarray, " pairs"]
    nats: Float[np.ndarray, " pairs"]

    @property
    def constant(self) -> Float[np.ndarray, " pairs"]:
        """A B."""
        return self.numbers[:, 0] * self.numbers[:, 1]


ONE = Multiples(np.ones(1), *np.zeros((3, 1)))


def multiples_of(n: int, batches: Batches) -> Multiples:
    """By how much rows of a client with n ratings differ in length.

    Parameters
    ----------
    n : int
    batches : Batches

    Returns
    -------
    Multiples
        One, where all minibatches are equally large.

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
    # a part that is the same for all is in A
    before = (1 / batches.passes - squares) / 2
    in_last = often * (batches.size / last) / (batches.passes * times)
    late = (in_last - last / n) / (2 * batches.passes)
    spread = np.hypot(more * np.sqrt(often / 12) / times, late)
    return Multiples(times, nats[kept], spread, before)


def mixed_pairs(
    one: FirstOrder,
    multiples: Multiples,
    trials: Float[np.ndarray, "pairs 2"],
    levels: Float[np.ndarray, " levels"],
    rounds: int = ROUNDS,
    missed: Float[np.ndarray, " pairs"] | None = None,
    stray: float = STRAY,
) -> Mixed:
    """Fit pairs of A and B to the levels and numbers of times that they make likely.

    Parameters
    ----------
    one : FirstOrder
    multiples : Multiples
    trials : (pairs, 2)
    levels : (levels,)
        Ratings that exist, ascending, stars.
    rounds : int
        Of expectation maximisation.
    missed : (pairs,), optional
        What ratings miss the grid by, at the start, stars.
    stray : float
        Share of rows that may be anywhere.

    Returns
    -------
    Mixed
        The likeliest first.
    """
    step = step_of(levels)
    numbers = trials.copy()
    missed = np.full(len(trials), FAR / 2 * step) if missed is None else missed
    errors, predicted = one.g[:, None] / multiples.times, _predicted(one, multiples)
    for _ in range(rounds):
        value = _values(one, multiples, numbers)
        named = nearest_level(value, levels)
        rest = named - value
        size = _sizes(one, multiples, numbers, missed)
        share, _ = _shares(rest, multiples, size, step, stray)
        share *= (missed[:, None, None] / size) ** 2
        numbers = _weighted_fit(errors, predicted, named - one.offset[:, None], share, numbers)
        square = (share * rest**2).sum(axis=(1, 2)) / np.maximum(share.sum(axis=(1, 2)), 1.0)
        missed = np.clip(np.sqrt(square), CLOSE * step, FAR * step)
    rest = distance_to_levels(_values(one, multiples, numbers), levels)
    _, nats = _shares(rest, multiples, _sizes(one, multiples, numbers, missed), step, stray)
    order = np.argsort(-nats, kind="stable")
    return Mixed(numbers[order], missed[order], nats[order])


def best_mixed(
    one: FirstOrder, batches: Batches, trials: Float[np.ndarray, "pairs 2"], levels: np.ndarray
) -> Mixed:
    """Fit pairs that put many rows near the grid, whatever number of times those have in common.

    Parameters
    ----------
    one : FirstOrder
    batches : Batches
    trials : (pairs, 2)
        Of ``rough_pairs``.
    levels : (levels,)

    Returns
    -------
    Mixed
    """
    multiples = multiples_of(one.g.size, batches)
    best = mixed_pairs(one, multiples, _by_times(trials, multiples), levels).numbers[:REFINED]
    told = mixed_pairs(one, multiples, best, levels, MANY_ROUNDS)
    # biases in the middle of the grid leave each pair's opposite, and whole stars on one of halves the half
    every = np.concatenate([told.numbers * times for times in (1, -1, 2, 0.5)])
    return mixed_pairs(one, multiples, every, levels, FEW_ROUNDS, np.tile(told.missed, 4))


def told_by_mixture(
    one: FirstOrder, mixed: Mixed, batches: Batches, constant: float, levels: np.ndarray
) -> Told | None:
    """Take what one client says, given the A B of the others.

    Parameters
    ----------
    one : FirstOrder
    mixed : Mixed
    batches : Batches
    constant : float
        A B of most clients.
    levels : (levels,)

    Returns
    -------
    Told or None
        None where it is not believed.
    """
    step, multiples = step_of(levels), multiples_of(one.g.size, batches)
    posteriors = [_posterior(one, multiples, mixed, number, levels) for number in range(len(mixed.nats))]
    spreads = [_spreads(one, error, mixed, number) for number, (_, error) in enumerate(posteriors)]
    off = np.abs(mixed.constant / constant - 1)
    here = np.flatnonzero(off < VAGUE)
    if not here.size or mixed.nats[here[0]] < ALONE or mixed.missed[here[0]] > MISSED * step:
        return None
    best = here[0]
    nats, error = posteriors[best]
    named = levels[nats.argmax(axis=1)]
    for number, (other, _) in enumerate(posteriors):
        agrees = off[number] < max(VAGUE, SIGMAS * spreads[number][1])
        differ = (levels[other.argmax(axis=1)] != named).mean()
        if agrees and differ > OTHERS and mixed.nats[best] - mixed.nats[number] < RIVAL:
            return None
    ordered = np.sort(nats, axis=1)
    sure = ordered[:, -1] - logsumexp(ordered[:, :-1], axis=1) > np.log(SURE)
    chosen = slice(best, best + 1)
    away = distance_to_levels(_values(one, multiples, mixed.numbers[chosen])[0], levels)
    size = _sizes(one, multiples, mixed.numbers[chosen], mixed.missed[chosen])[0]
    far = ((away / size).min(axis=1) > TAIL) & (away.min(axis=1) > HARMLESS * step)
    sure &= np.abs(error) < np.abs(error[far]).min(initial=np.inf) / 2
    return Told(
        named,
        error,
        float(np.clip(SIGMAS * spreads[best][0], LEAST_SPREAD, VAGUE)),
        sure,
        np.ones(named.size, bool),
        float(away.min(axis=1).mean()),
        mixed.numbers[best],
        bool(far.mean() > OFF),
        0.0,
        0.0,
    )


def _spreads(
    one: FirstOrder, error: Float[np.ndarray, " n"], mixed: Mixed, number: int
) -> tuple[float, float]:
    """How well A is told, and how well A B is, relative."""
    table = np.stack([error, mixed.numbers[number, 1] * one.h], axis=1)
    inverse = mixed.missed[number] * np.linalg.pinv(table, rcond=1e-10)
    return float(np.linalg.norm(inverse[0])), float(np.linalg.norm(inverse.sum(axis=0)))


def _posterior(
    one: FirstOrder, multiples: Multiples, mixed: Mixed, number: int, levels: np.ndarray
) -> tuple[Float[np.ndarray, "n levels"], Float[np.ndarray, " n"]]:
    """How likely each level is, nats, and the error under the number of times that is likeliest."""
    here = slice(number, number + 1)
    value = _values(one, multiples, mixed.numbers[here])[0]
    error = mixed.numbers[number, 0] * one.g[:, None] / multiples.times
    rest = distance_to_levels(value, levels)
    mixed_size = _sizes(one, multiples, mixed.numbers[here], mixed.missed[here])
    shares, _ = _shares(rest[None], multiples, mixed_size, step_of(levels))
    error_here = np.take_along_axis(error, shares[0].argmax(axis=1)[:, None], axis=1)[:, 0]
    # what is left is partly a share of the error, and grows with it
    size = WIDER * mixed_size[0] * np.sqrt((1 + error**2 / np.mean(error_here**2)) / 2)
    prior = multiples.nats - np.log(multiples.times) - np.log(size)
    off = (value[:, :, None] - levels) / size[:, :, None]
    return logsumexp(prior[:, :, None] - off**2 / 2, axis=1), error_here


def _values(
    one: FirstOrder, multiples: Multiples, numbers: Float[np.ndarray, "pairs 2"]
) -> Float[np.ndarray, "pairs n times"]:
    """Ratings, for each number of times that an item may have been in the last minibatch."""
    error = numbers[:, :1, None] * (one.g[:, None] / multiples.times)
    return error + numbers[:, 1:, None] * _predicted(one, multiples) + one.offset[:, None]


def _predicted(one: FirstOrder, multiples: Multiples) -> Float[np.ndarray, "n times"]:
    """Predictions in the units of h."""
    return one.h[:, None] + np.broadcast_to(one.own, one.g.shape)[:, None] * multiples.before


def _sizes(
    one: FirstOrder,
    multiples: Multiples,
    numbers: Float[np.ndarray, "pairs 2"],
    missed: Float[np.ndarray, " pairs"],
) -> Float[np.ndarray, "pairs n times"]:
    """Standard deviations of ratings."""
    own, pull = (np.broadcast_to(part, one.g.shape) for part in (one.own, one.pull))
    length = numbers[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        drift = np.nan_to_num(length * own + pull / length, posinf=HUGE, neginf=-HUGE)
        longer = np.nan_to_num(one.longer / length**2, posinf=HUGE, neginf=-HUGE)
    error = (numbers[:, :1] * longer)[:, :, None] * (one.g[:, None] / multiples.times)
    moved = np.hypot(drift[:, :, None], error) * multiples.spread
    return np.sqrt(missed[:, None, None] ** 2 + moved**2)


def _shares(
    rest: Float[np.ndarray, "pairs n times"],
    multiples: Multiples,
    size: Float[np.ndarray, "pairs n times"],
    step: float,
    stray: float = STRAY,
) -> tuple[Float[np.ndarray, "pairs n times"], Float[np.ndarray, " pairs"]]:
    """How probable each number of times is, and how likely all rows are beside rows anywhere, nats.

    A longer row leaves as much more room for where it may be.
    """
    nats = multiples.nats - np.log(multiples.times) - (rest / size) ** 2 / 2
    nats += np.log(step * (1 - stray) / (np.sqrt(2 * np.pi) * size))
    total = np.logaddexp(logsumexp(nats, axis=2), np.log(stray))
    return np.exp(nats - total[:, :, None]), total.sum(axis=1)


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
    whole = np.abs(np.linalg.det(normal)) > 1e-12 * normal[:, 0, 0] * normal[:, 1, 1]
    normal[~whole] = np.eye(2)
    return np.where(whole[:, None], np.linalg.solve(normal, right[..., None])[..., 0], before)


def rough_pairs(one: FirstOrder, levels: np.ndarray) -> Float[np.ndarray, "pairs 2"]:
    """Find pairs of A and B that put many rows near the grid, whatever the others do, the best first.

    Parameters
    ----------
    one : FirstOrder
    levels : (levels,)

    Returns
    -------
    (pairs, 2)
        No two of them alike.
    """
    trials = crowded_pairs(one, levels)
    if not len(trials):
        return trials
    numbers = mixed_pairs(one, ONE, trials, levels, stray=OTHERS_STRAY).numbers
    a, b = numbers.T
    length = b * np.abs(one.h).max() / (CELL * step_of(levels))
    cells = np.stack([np.log(np.abs(a)) / LOG_CELL, length, np.sign(a)], axis=1)
    first = np.unique(np.rint(cells), axis=0, return_index=True)[1]
    return numbers[np.sort(first)][:TRIED]


def likeliest_batches(clients: Iterable[FirstOrder], levels: np.ndarray) -> Batches | None:
    """Find how many ratings a minibatch has, and how often clients go through them.

    Parameters
    ----------
    clients : iterable of FirstOrder
        Most of which have more ratings than a minibatch.
    levels : (levels,)

    Returns
    -------
    Batches or None
        None where nothing is likelier than equal minibatches.
    """
    every = list(clients)
    if len(every) < FEWEST:
        return None
    # few rows cost little, and with very few the number of times is open
    asked = sorted(every, key=lambda one: abs(one.g.size - SEARCHED))[:ASKED]
    tried = _tried(sorted(one.g.size for one in asked)[FEWEST - 1])
    plain, nats = 0.0, np.zeros(len(tried))
    for number, one in enumerate(asked, 1):
        equal, own = _nats_of_batches(one, tried, levels)
        # rows may be anywhere
        plain, nats = plain + max(equal, 0.0), nats + np.maximum(own, 0.0)
        if number % FEWEST == 0:
            kept = np.argsort(-nats, kind="stable")[: max(LEAST, len(tried) // HALVED)]
            tried, nats = [tried[at] for at in kept], nats[kept]
    best = int(nats.argmax()) if tried else 0
    return tried[best] if tried and nats[best] > plain + ALONE else None


def _nats_of_batches(
    one: FirstOrder, tried: Sequence[Batches], levels: np.ndarray
) -> tuple[float, Float[np.ndarray, " tried"]]:
    """How likely a client's rows are under one scale, and under what is tried."""
    trials = rough_pairs(one, levels)
    if not len(trials):
        return 0.0, np.zeros(len(tried))
    some = slice(None, None, max(1, -(-one.g.size // SEARCHED)))
    own, pull = (np.broadcast_to(part, one.g.shape)[some] for part in (one.own, one.pull))
    part = FirstOrder(one.g[some], one.h[some], one.offset[some], one.here, own, pull, one.longer)
    equal = _best_nats(part, ONE, trials, levels)
    every = (multiples_of(one.g.size, batches) for batches in tried)
    own = [_best_nats(part, each, trials, levels) if each.times.size > 1 else equal for each in every]
    return equal, np.array(own)


def _tried(smallest: int) -> list[Batches]:
    """What is tried for clients that have more ratings than a minibatch."""
    sizes = range(2, min(smallest, LARGEST + 1))
    return [Batches(size, passes) for size in sizes for passes in PASSES]


def _best_nats(
    one: FirstOrder, multiples: Multiples, trials: Float[np.ndarray, "pairs 2"], levels: np.ndarray
) -> float:
    """Of the likeliest pair."""
    return float(mixed_pairs(one, multiples, _by_times(trials, multiples), levels, FEW_ROUNDS).nats[0])


def _by_times(trials: Float[np.ndarray, "pairs 2"], multiples: Multiples) -> Float[np.ndarray, "pairs 2"]:
    """Pairs, where the rows that they put near the grid have either of the commonest numbers of times."""
    usual = multiples.times[np.argsort(-multiples.nats, kind="stable")[:2]]
    return np.concatenate([trials * [one, 1.0] for one in usual])
