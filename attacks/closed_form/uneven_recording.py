"""All clients of a recording that average over minibatches, of which the last of each pass is smaller.

Minibatches and passes are the same for all of them, and so is A B
(``attacks.closed_form.orders.uneven_batches``): clients that nothing else explains are asked together,
however many ratings they have, in up to ``ROUNDS`` rounds. What these say of a rating is taken together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import bdtrc

from attacks.closed_form.common_numbers import Learned
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.shunned_level import may_be_lowered
from attacks.closed_form.orders.hidden_orders import able_clients, agreed, on_one_grid
from attacks.closed_form.orders.last_minibatch import Batches
from attacks.closed_form.orders.mixed_multiples import best_mixed, rough_pairs
from attacks.closed_form.orders.order_answers import FEWEST, Told, answers_of, lack_biases
from attacks.closed_form.orders.order_pairs import SEARCHED, FirstOrder
from attacks.closed_form.orders.uneven_batches import level_of, likeliest_batches, told_by_mixture, votes_of
from attacks.closed_form.uploads.answered import Answered, answered_alone, exchanged
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from victims.transcript.view import View

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
