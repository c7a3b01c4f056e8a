"""Minibatches and passes of clients that average, and which ratings are answered.

b and P are those under which all clients together are likeliest, where a last minibatch is smaller than the
others (``attacks.closed_form.orders.last_minibatch``); A B = b / (P eta) of
``attacks.closed_form.orders.mixed_multiples`` is the same for all of them.

How often an item was in the last minibatch is open, and a rating is answered where all numbers of times that
are likely leave one level (``SURE``, of distances that are ``WIDER`` than usual).

What it assumes: what ``attacks.closed_form.orders.hidden_orders`` does, but for one scale of all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.orders.last_minibatch import ONE, Batches, Multiples, multiples_of
from attacks.closed_form.orders.mixed_multiples import (
    FEW_ROUNDS,
    Mixed,
    by_times,
    mixed_pairs,
    rough_pairs,
    shares_of,
    sizes_of,
    values_of,
)
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
from attacks.closed_form.orders.order_pairs import SEARCHED, SIGMAS, VAGUE, FirstOrder

PASSES = (*range(2, 13), 15, 20, 25, 30, 40, 50)  # that are tried
LARGEST = 256  # minibatch that is tried
ASKED = 12  # clients that tell b and P
LEAST = 16  # b and P that are left at least, of which every client leaves half
ROUGHLY = 6.0  # nats of a client in the mean, that rows of one length must give: a good part of all have it
MISSED = 0.05  # of a step, that ratings miss the grid by at most
WIDER = 1.5  # times the usual distance from the grid: what is left is not normal
NEARLY = 0.15  # relative, that A B of clients may differ at least
AS_GOOD = 0.5  # of the nats of a client's likeliest pair
ASTRAY = 1e-3  # share of rows that may be anywhere, in the answer
LEAST_SPREAD = 0.02  # relative, that errors may be off at least


def votes_of(
    one: FirstOrder, mixed: Mixed, batches: Batches, levels: np.ndarray
) -> tuple[Float[np.ndarray, " pairs"], Float[np.ndarray, " pairs"]]:
    """A B of the pairs that a client tells without others, and by how much each may differ."""
    good = np.flatnonzero(mixed.nats > max(ALONE, AS_GOOD * mixed.nats[0])).tolist()
    multiples = multiples_of(one.g.size, batches)
    errors = [_posterior(one, multiples, mixed, number, levels)[1] for number in good]
    spread = [_spreads(one, error, mixed, number)[1] for number, error in zip(good, errors, strict=True)]
    return mixed.constant[good], np.clip(SIGMAS * np.array(spread), NEARLY, VAGUE)


def told_by_mixture(
    one: FirstOrder, mixed: Mixed, batches: Batches, constant: float | None, levels: np.ndarray
) -> tuple[Told | None, Float[np.ndarray, "n levels"]]:
    """Take what one client says, given the A B of the others."""
    step, multiples = step_of(levels), multiples_of(one.g.size, batches)
    posteriors = [_posterior(one, multiples, mixed, number, levels) for number in range(len(mixed.nats))]
    spreads = [_spreads(one, error, mixed, number) for number, (_, error) in enumerate(posteriors)]
    # where clients do not tell A B, one that does not, either, is clear by itself or not at all
    off = np.full(mixed.constant.shape, 1.0) if constant is None else np.abs(mixed.constant / constant - 1)
    vague = SIGMAS * np.array([spread for _, spread in spreads])
    agrees = off < np.maximum(VAGUE, vague)
    here = np.flatnonzero(agrees & ((off < VAGUE) | (mixed.nats > 2 * ALONE)))
    if not here.size or mixed.nats[here[0]] < ALONE or mixed.missed[here[0]] > MISSED * step:
        return None, posteriors[0][0]
    best = here[0]
    nats, error = posteriors[best]
    named = levels[nats.argmax(axis=1)]
    for number, (other, _) in enumerate(posteriors):
        differ = (levels[other.argmax(axis=1)] != named).mean()
        if agrees[number] and differ > OTHERS and mixed.nats[best] - mixed.nats[number] < RIVAL:
            return None, nats
    chosen = slice(best, best + 1)
    away = distance_to_levels(values_of(one, multiples, mixed.numbers[chosen])[0], levels)
    size = sizes_of(one, multiples, mixed.numbers[chosen], mixed.missed[chosen])[0]
    far = ((away / size).min(axis=1) > TAIL) & (away.min(axis=1) > HARMLESS * step)
    told = Told(
        named,
        error,
        float(np.clip(SIGMAS * spreads[best][0], LEAST_SPREAD, VAGUE)),
        np.abs(error) < np.abs(error[far]).min(initial=np.inf) / 2,
        np.ones(named.size, bool),
        float(away.min(axis=1).mean()),
        mixed.numbers[best],
        bool(far.mean() > OFF),
        power=0.0,
        unseen=0.0,
        others=np.abs(mixed.numbers[best, 0] * one.g[:, None] / multiples.times),
    )
    return told, nats


def level_of(
    nats: Float[np.ndarray, "n levels"], levels: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, " n"]:
    """Take the likeliest level where all others together are ``SURE`` times less likely.

    Examples
    --------
    >>> level_of(np.array([[0.0, 20.0, 1.0], [0.0, 2.0, 1.0]]), np.array([1.0, 2.0, 3.0])).tolist()
    [2.0, nan]
    """
    ordered = np.sort(nats, axis=1)
    sure = ordered[:, -1] - logsumexp(ordered[:, :-1], axis=1) > np.log(SURE)
    return np.where(sure, levels[nats.argmax(axis=1)], np.nan)


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
    value = values_of(one, multiples, mixed.numbers[here])[0]
    error = mixed.numbers[number, 0] * one.g[:, None] / multiples.times
    rest = distance_to_levels(value, levels)
    mixed_size = sizes_of(one, multiples, mixed.numbers[here], mixed.missed[here])
    shares, _ = shares_of(rest[None], multiples, mixed_size, step_of(levels))
    error_here = np.take_along_axis(error, shares[0].argmax(axis=1)[:, None], axis=1)[:, 0]
    # what is left is partly a share of the error, and grows with it
    size = WIDER * mixed_size[0] * np.sqrt((1 + error**2 / np.mean(error_here**2)) / 2)
    prior = multiples.nats - np.log(multiples.times) - np.log(size)
    off = (value[:, :, None] - levels) / size[:, :, None]
    elsewhere = np.log(ASTRAY * np.sqrt(2 * np.pi) / (step_of(levels) * levels.size))
    return np.logaddexp(logsumexp(prior[:, :, None] - off**2 / 2, axis=1), elsewhere), error_here


def likeliest_batches(clients: Iterable[FirstOrder], levels: np.ndarray) -> Batches | None:
    """Find how many ratings a minibatch has, and how often clients go through them."""
    every = list(clients)
    if len(every) < FEWEST:
        return None
    # few rows cost little, and with very few the number of times is open
    asked = sorted(every, key=lambda one: abs(one.g.size - SEARCHED))[:ASKED]
    tried = _tried(sorted(one.g.size for one in asked)[FEWEST - 1])
    rough = [rough_pairs(one, levels) for one in asked[:FEWEST]]
    if sum(max(pairs.nats.max(initial=0.0), 0.0) for pairs in rough) < FEWEST * ROUGHLY:
        return None
    plain, nats = 0.0, np.zeros(len(tried))
    for number, one in enumerate(asked, 1):
        pairs = rough[number - 1] if number <= FEWEST else rough_pairs(one, levels)
        equal, own = _nats_of_batches(one, pairs.numbers, tried, levels)
        # rows may be anywhere
        plain, nats = plain + max(equal, 0.0), nats + np.maximum(own, 0.0)
        if number == FEWEST and nats.max() < FEWEST * ALONE:
            return None
        kept = np.argsort(-nats, kind="stable")[: max(LEAST, len(tried) // 2)]
        tried, nats = [tried[at] for at in kept.tolist()], nats[kept]
    best = int(nats.argmax()) if tried else 0
    return tried[best] if tried and nats[best] > plain + ALONE else None


def _nats_of_batches(
    one: FirstOrder, trials: Float[np.ndarray, "pairs 2"], tried: Sequence[Batches], levels: np.ndarray
) -> tuple[float, Float[np.ndarray, " tried"]]:
    """How likely a client's rows are under one scale, and under what is tried."""
    if not len(trials):
        return 0.0, np.zeros(len(tried))
    some = slice(None, None, max(1, -(-one.g.size // SEARCHED)))
    own, pull = (np.broadcast_to(part, one.g.shape)[some] for part in (one.own, one.pull))
    part = FirstOrder(one.g[some], one.h[some], one.offset[some], one.here, own, pull, one.longer)
    equal = _best_nats(part, ONE, trials, levels)
    every = (multiples_of(one.g.size, batches) for batches in tried)
    return equal, np.array(
        [_best_nats(part, each, trials, levels) if each.times.size > 1 else equal for each in every]
    )


def _tried(smallest: int) -> list[Batches]:
    """What is tried for clients that have more ratings than a minibatch."""
    sizes = range(2, min(smallest, LARGEST + 1))
    return [Batches(size, passes) for size in sizes for passes in PASSES]


def _best_nats(
    one: FirstOrder, multiples: Multiples, trials: Float[np.ndarray, "pairs 2"], levels: np.ndarray
) -> float:
    """Of the likeliest pair."""
    return float(mixed_pairs(one, multiples, by_times(trials, multiples), levels, FEW_ROUNDS).nats[0])
