"""All clients of a recording that average over minibatches, of which the last of each pass is smaller.

Minibatches and passes are the same for all of them, and so is A B
(``attacks.closed_form.orders.mixed_multiples``): clients that nothing else explains are asked together,
however many ratings they have, in up to ``ROUNDS`` rounds. What these say of a rating is taken together.

b and P are those under which all clients together are likeliest, where a last minibatch is smaller than the
others (``attacks.closed_form.orders.last_minibatch``); A B = b / (P eta) of
``attacks.closed_form.orders.mixed_multiples`` is the same for all of them.

How often an item was in the last minibatch is open, and a rating is answered where all numbers of times that
are likely leave one level (``SURE``, of distances that are ``WIDER`` than usual).

What it assumes: what ``attacks.closed_form.orders.hidden_orders`` does, but for one scale of all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import bdtrc, logsumexp

from attacks.closed_form.common_numbers import Learned
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.images import may_be_lowered
from attacks.closed_form.orders.hidden_orders import able_clients, agreed, on_one_grid
from attacks.closed_form.orders.last_minibatch import ONE, Batches, Multiples, multiples_of
from attacks.closed_form.orders.mixed_multiples import (
    FEW_ROUNDS,
    Mixed,
    best_mixed,
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
    answers_of,
    lack_biases,
)
from attacks.closed_form.orders.order_pairs import SEARCHED, SIGMAS, VAGUE, FirstOrder
from attacks.closed_form.uploads.answered import Answered, answered_alone, exchanged
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from victims.transcript.view import View

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


ROUNDS = 3  # that are asked: the first, the last, and one between
SAMPLE, VOTERS = 36, 200  # clients that tell minibatches and passes, and A B
ALIKE = 1e-3  # probability that two rounds have as many rows that are longer in both
MANY = 500  # clients, above which a round is asked of those alone whom others leave open


class _Client(NamedTuple):
    """One client in one round: its rows to first and to second order, and their items."""

    first: FirstOrder
    second: FirstOrder | None
    items: np.ndarray


class _Told(NamedTuple):
    """How likely each level of a client's ratings is by one round or several, and which rows are longer."""

    items: np.ndarray
    nats: Float[np.ndarray, "n levels"]
    missed: float
    longer: Float[np.ndarray, " n"]


def with_uneven(found: Sequence[Answered], view: View, learned: Learned) -> list[Answered]:
    """Read clients that are not answered as ones whose last minibatch is smaller than the others."""
    levels = np.array(view.manifest.rating_levels)
    open_ = np.array(sorted(user for one in found for user in one.reasons))
    if view.manifest.weighting == "include-unrated" or levels.size == 1 or open_.size < FEWEST:
        return list(found)
    chosen = np.unique(np.linspace(0, view.rounds.size - 1, ROUNDS).astype(int))
    rounds = view.rounds[chosen].tolist()
    some = _some(view, open_)
    asked = {number: _clients(view, number, some, learned) for number in rounds}
    batches = None
    for number in dict.fromkeys((rounds[0], rounds[-1])):
        if batches is None:
            batches = likeliest_batches([one.first for one in asked[number].values()], levels)
    if batches is None:
        return list(found)
    tells = {number: _n_sure(_told(asked[number], batches, levels), levels) for number in rounds}
    best: dict[int, _Told] = {}
    for number in sorted(rounds, key=lambda number: -tells[number]):
        # where there are many, whom a round leaves open
        rest = open_ if open_.size <= MANY else np.setdiff1d(open_, list(best))
        for user, told in _told(_clients(view, number, rest, learned), batches, levels).items():
            best[user] = _together(best[user], told) if user in best else told
    best = {user: told for user, told in best.items() if _n_sure({user: told}, levels)}
    if not best:
        return list(found)
    values = {user: (one.items, level_of(one.nats, levels)) for user, one in best.items()}
    misfit = np.array([best[user].missed for user in sorted(best)]) / (step_of(levels) / 4)
    answers = answered_alone(values, view, misfit)
    lowered = may_be_lowered(answers.block.value, levels) & (not learned.settled)
    return exchanged(found, answers._replace(doubted=lowered))


def _some(view: View, users: np.ndarray) -> np.ndarray:
    """Clients with about as many ratings as a search looks at."""
    sizes = [
        (
            batch.users,
            np.max(
                [np.broadcast_to(one.valid.sum(axis=-1), batch.users.size) for one in batch.rounds], axis=0
            ),
        )
        for batch in view.batches(BATCH_BYTES)
        if batch.rounds
    ]
    if not sizes:
        return np.zeros(0, int)
    every, n = (np.concatenate(part) for part in zip(*sizes, strict=True))
    here = np.isin(every, users) & (n > 1)
    return every[here][np.argsort(np.abs(n[here] - SEARCHED), kind="stable")[:SAMPLE]]


def _clients(view: View, number: int, users: np.ndarray, learned: Learned) -> dict[int, _Client]:
    """Clients in one round that can be read."""
    out = {}
    for batch in view.batches(BATCH_BYTES):
        uploads = next((one for one in batch.rounds if one.round == number), None)
        if uploads is None or not uploads.index.shape[-1] or not np.isin(batch.users, users).any():
            continue
        rows = rows_of(view.manifest, uploads, None, learned.lowered, learned.pulls[0])
        index = np.broadcast_to(uploads.index, rows.item.shape)
        here = set(np.flatnonzero(np.isin(batch.users, users)).tolist())
        for at, (first, second) in able_clients(rows, here).items():
            out[int(batch.users[at])] = _Client(first, second, index[at, first.here])
    return out


def _told(clients: dict[int, _Client], batches: Batches, levels: np.ndarray) -> dict[int, _Told]:
    """What clients of one round are answered; nobody where few agree on A B."""
    mixed = {}
    for user, client in clients.items():
        more = client.first.g.size > batches.size
        trials = rough_pairs(client.first, levels).numbers if more else np.zeros((0, 2))
        if len(trials):
            each = [one for one in (client.first, client.second) if one is not None]
            both = [(one, best_mixed(one, batches, trials, levels)) for one in each]
            mixed[user] = max(both, key=lambda one: one[1].nats[0])
    votes = {user: votes_of(one, own, batches, levels) for user, (one, own) in mixed.items()}
    alone = {user: vote for user, vote in votes.items() if vote[0].size}
    constant = agreed(dict(list(alone.items())[:: max(1, len(alone) // VOTERS)]))
    every = {user: told_by_mixture(one, own, batches, constant, levels) for user, (one, own) in mixed.items()}
    told = {user: one for user, (one, _) in every.items() if one is not None}
    if lack_biases(told, {user: one for user, (one, _) in mixed.items()}):
        return {}
    free = answers_of(told, 0, levels)
    nats = {user: np.where(np.isnan(free[user])[:, None], 0.0, every[user][1]) for user in free}
    answers = {user: level_of(own, levels) for user, own in nats.items()}
    if not on_one_grid(answers, {user: mixed[user][0] for user in answers}, levels):
        return {}
    return {
        user: _Told(clients[user].items, own, told[user].missed, _longer(told[user]))
        for user, own in nats.items()
    }


def _longer(told: Told) -> Float[np.ndarray, " n"]:
    """Which rows are longer for their number of turns, NaN for small errors, which do not tell."""
    assert told.others is not None
    size = np.abs(told.error)
    return np.where(size > np.median(size), size < told.others[:, 0] * (1 - 1e-9), np.nan)


def _together(one: _Told, other: _Told) -> _Told:
    """What two rounds say, if their minibatches were drawn apart; otherwise the first."""
    if _drawn_alike(one, other):
        return one
    items, place = np.unique(np.concatenate([one.items, other.items]), return_inverse=True)
    nats = np.zeros((items.size, one.nats.shape[1]))
    np.add.at(nats, place, np.concatenate([one.nats, other.nats]))
    longer = np.full(items.size, np.nan)
    longer[np.searchsorted(items, one.items)] = one.longer
    return _Told(items, nats, max(one.missed, other.missed), longer)


def _drawn_alike(one: _Told, other: _Told) -> bool:
    """Whether the same items are in the last minibatches of both rounds, more than by chance."""
    _, first, second = np.intersect1d(one.items, other.items, return_indices=True)
    a, b = one.longer[first], other.longer[second]
    here = np.isfinite(a) & np.isfinite(b)
    if not here.any():
        return False
    a, b = a[here], b[here]
    chance = a.mean() * b.mean() + (1 - a.mean()) * (1 - b.mean())
    return bool(bdtrc((a == b).sum() - 1, a.size, chance) < ALIKE)


def _n_sure(told: dict[int, _Told], levels: np.ndarray) -> int:
    """How many ratings are answered."""
    return sum(int(np.isfinite(level_of(one.nats, levels)).sum()) for one in told.values())
