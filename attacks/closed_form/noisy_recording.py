"""Clients whom no closed form reads to the last digit: rows as a linear form of ratings, and noise.

Minibatches, local epochs, shuffles, rounding and noise leave rows that no equation holds for exactly, and a
posterior over ratings all the same (``attacks.linear_forms``). Rounds share ratings: what one tells is the
prior of the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from attacks.base import Estimates, Reconstruction
from attacks.closed_form.centres.sign_agreement import log_odds_upright
from attacks.closed_form.common_numbers import pulls_of
from attacks.closed_form.round_answers import NO_NUMBERS
from attacks.closed_form.uploads.answered import block_of
from attacks.closed_form.uploads.common_vector import NO_COMMON_VECTOR
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.linear_forms.forms import MOST_ROWS, Forms, forms_of, padded
from attacks.linear_forms.reading import LEARNERS, ROOM, Together, in_batches, learn, read, room_for, unit_of
from victims.common.seeds import Purpose, generator
from victims.transcript.view import ITEM, View

FEWEST_ROWS, ENOUGH_ROWS = (
    5,
    10,
)  # of a client: that tell more than the numbers that are open, and to learn from
FEWEST_CLIENTS = 5  # of whom what all share can be learned
ALL = 0.9  # share of all items, beyond which rows are of unrated ones, too: other numbers than ratings
MOST_LEVELS = 25  # of a grid
MISSING = 0.2  # share of entries that are 0: fewer may have been rounded to it
ROUNDS = 3  # that are read, from the first to the last
LARGEST_SHARE = 0.85  # of all answers, that one level may have
N_CHANCE, AGREEING = 100, 5.0  # deals of items, and standard deviations beyond what they say
EXACT = 64.0  # times the last digit, that rows of one direction may be across it
FOLLOWS = 0.5  # probability that a client's rows are of ratings at all, from where on it is answered
NOTHING_FITS = (NO_NUMBERS, NO_COMMON_VECTOR)  # reasons of those who are asked
NO_FORM = "no rows of the client's are a linear form of ratings on the grid, with what noise there is"
NOT_SHOWN = (
    "what all clients' rows say together does not tell ratings from other numbers with noise, or from those "
    "of other items"
)


class _Client(NamedTuple):
    """One client's rows in one round."""

    user: int
    rows: Float[np.ndarray, "rows K"]
    factors: Float[np.ndarray, "rows K"]
    items: Int[np.ndarray, " rows"]
    given: Float[np.ndarray, " rows"]  # that is added to predictions, in stars


class _Told(NamedTuple):
    """What is told of a client so far."""

    items: Int[np.ndarray, " rows"]
    probability: Float[np.ndarray, "rows levels"]
    follows: float
    noise: float  # of a level


def with_noise_term(found: Reconstruction, view: View, seed: int) -> Reconstruction:
    """Answer clients that are left open, where ratings show through the noise of all of them together."""
    levels = np.array(view.manifest.rating_levels, float)
    # where an exact reading leaves several answers, or none that can be trusted, noise tells no more
    open_ = np.array(sorted(user for user, why in found.abstained.items() if why in NOTHING_FITS), int)
    if open_.size < FEWEST_CLIENTS or not _may_show(view):
        return found
    told: dict[int, _Told] = {}
    shown = mirrored = False
    for round_ in np.unique(np.linspace(0, view.rounds.size - 1, ROUNDS).round().astype(int)):
        clients = list(_clients(view, int(round_), open_))
        if (found_here := _told_in(clients, told, levels, seed)) is not None:
            shown = True
            together, told = found_here
            mirrored = bool(together.ratings.program.offset) and not any(one.given.any() for one in clients)
    if mirrored:
        told = _either_way_round(told, levels)
    return _answered(found, open_, told, levels, NO_FORM if shown else NOT_SHOWN)


def clients_with_noise(view: View, seed: int) -> tuple[int, float] | None:
    """How many clients' rows of the last round are linear in ratings, and its nats; None where none show."""
    if not _may_show(view):
        return None
    levels = np.array(view.manifest.rating_levels, float)
    found = _told_in(list(_clients(view, view.rounds.size - 1, view.users)), {}, levels, seed)
    if found is None:
        return None
    together, told = found
    n_clients = sum(one.follows >= FOLLOWS for one in told.values())
    return n_clients, together.ratings.evidence - together.none.evidence


def _may_show(view: View) -> bool:
    """Whether levels may show through noise: there are a few, and what is 0 is a number."""
    return (
        3 <= len(view.manifest.rating_levels) <= MOST_LEVELS
        and bool(view.rounds.size)
        and not _sparsified(view)
    )


def _sparsified(view: View) -> bool:
    """Whether entries of rows are not sent: 0 is no number with noise then."""
    first = next(iter(view.batches(BATCH_BYTES)), None)
    if first is None or not first.rounds:
        return False
    rows = np.asarray(first.rounds[0].gradients)
    sent = rows[(rows != 0).any(axis=2)]
    return bool(sent.size and (sent == 0).mean() > MISSING)


def _told_in(
    clients: list[_Client], told: dict[int, _Told], levels: Float[np.ndarray, " levels"], seed: int
) -> tuple[Together, dict[int, _Told]] | None:
    """What one round tells beside what is told already; None where it does not show that it is of ratings."""
    if len(clients) < FEWEST_CLIENTS or (together := _learned(clients, levels, seed)) is None:
        return None
    told = dict(told)
    _read(clients, together, told, levels, seed)
    return (together, told) if _varies(told) and (together.paired or _agree(told, levels, seed)) else None


def _clients(view: View, round_: int, open_: Int[np.ndarray, " some"]) -> Iterator[_Client]:
    """Rows of those who are open, with enough of them in the round."""
    pull = pulls_of(view)[0]
    for batch in view.batches(BATCH_BYTES):
        uploads = batch.rounds[round_]
        rows = rows_of(view.manifest, uploads, None, pull=pull)
        there = rows.item & (rows.rows != 0).any(axis=2) & np.isfinite(rows.rows).all(axis=2)
        index = np.broadcast_to(uploads.index, there.shape)
        n_rows = there.sum(axis=1)
        enough = (n_rows >= FEWEST_ROWS) & (n_rows <= ALL * view.manifest.n_items)
        for place in np.flatnonzero(np.isin(batch.users, open_) & enough):
            here = np.flatnonzero(there[place])[:MOST_ROWS]
            if not np.ptp(rows.factors[place, here], axis=0).any():
                continue  # factors that are all alike predict alike: no length of the client's shows
            sizes = np.linalg.svd(rows.rows[place, here], compute_uv=False)
            if sizes[1:].max(initial=0.0) <= EXACT * rows.precision * sizes[0]:
                continue  # one exact step, and what its numbers are instead of ratings is no noise
            yield _Client(
                int(batch.users[place]),
                rows.rows[place, here],
                rows.factors[place, here].astype(float),
                index[place, here],
                rows.offset[place, here],
            )


def _stacked(clients: list[_Client], levels: Float[np.ndarray, " levels"]) -> Forms:
    """Forms of some clients, padded to the most rows that one has."""
    n_rows = max(one.items.size for one in clients)
    rows = np.zeros((len(clients), n_rows, clients[0].rows.shape[1]))
    factors, there, given = np.zeros_like(rows), np.zeros(rows.shape[:2], bool), np.zeros(rows.shape[:2])
    for place, one in enumerate(clients):
        here = place, slice(one.items.size)
        rows[here], factors[here], there[here], given[here] = one.rows, one.factors, True, one.given
    return forms_of(rows, factors, there, given / unit_of(levels))


def _learned(clients: list[_Client], levels: Float[np.ndarray, " levels"], seed: int) -> Together | None:
    """Learn what clients share from those with enough rows, drawn at random."""
    n_rows = np.array([one.items.size for one in clients])
    able = np.flatnonzero(n_rows >= min(ENOUGH_ROWS, np.median(n_rows)))
    some = generator(seed, Purpose.LINEAR_FORM_LEARNERS).permutation(able)[:LEARNERS]
    forms = _stacked([_shortened(clients[place], ROOM[0]) for place in some], levels)
    return learn(padded(forms, ROOM[0]), levels, seed)


def _shortened(one: _Client, n_rows: int) -> _Client:
    """At most so many rows of a client, spread over all."""
    here = np.unique(np.linspace(0, one.items.size - 1, min(n_rows, one.items.size)).astype(int))
    return _Client(one.user, one.rows[here], one.factors[here], one.items[here], one.given[here])


def _read(
    clients: list[_Client],
    together: Together,
    told: dict[int, _Told],
    levels: Float[np.ndarray, " levels"],
    seed: int,
) -> None:
    """Read all clients in one round, with what earlier ones tell of them."""
    for batch in in_batches(np.array([one.items.size for one in clients])):
        some = [clients[place] for place in batch]
        forms = _stacked(some, levels)
        n_rows = forms.there.shape[1]
        forms = padded(forms, room_for(n_rows))
        usual = together.ratings.shared.levels
        log_prior = np.tile(usual, (*forms.there.shape, 1))
        for place, one in enumerate(some):
            if (before := told.get(one.user)) is not None:
                _, own, earlier = np.intersect1d(one.items, before.items, return_indices=True)
                log_prior[place, own] = np.log(np.maximum(before.probability[earlier], 1e-6))
        new = read(forms, together, seed, log_prior)
        for place, one in enumerate(some):
            probability = new.probability[place, : one.items.size]
            before = told.get(one.user)
            follows = max(float(new.follows[place]), before.follows if before else 0.0)
            if before is not None and new.follows[place] < FOLLOWS <= before.follows:
                continue  # a round that tells nothing takes nothing away
            told[one.user] = _Told(one.items, probability, follows, float(new.noise[place]))


def _varies(told: dict[int, _Told]) -> bool:
    """Whether answers are of several levels: rows of one length, as of Adam or clipped ones, are not."""
    total = np.sum([one.probability.sum(axis=0) for one in told.values()], axis=0)
    return bool(total.max() <= LARGEST_SHARE * total.sum())


def _either_way_round(told: dict[int, _Told], levels: Float[np.ndarray, " levels"]) -> dict[int, _Told]:
    """Allow for the mirror image, which fits as well where predictions have an unknown number in them.

    What is taken is that people rate more high than low.
    """
    total = np.sum([one.probability.sum(axis=0) for one in told.values()], axis=0)
    share = (levels - levels[0]) / (levels[-1] - levels[0])
    mean = np.array(total @ share / total.sum() - 0.5)
    upright = float(expit(log_odds_upright(mean, np.array(0.0), levels.size)))
    return {
        user: one._replace(probability=upright * one.probability + (1 - upright) * one.probability[:, ::-1])
        for user, one in told.items()
    }


def _agree(told: dict[int, _Told], levels: Float[np.ndarray, " levels"], seed: int) -> bool:
    """Whether clients who rated the same items agree about them more than with items dealt anew."""
    means = [one.probability @ levels for one in told.values()]
    height = np.concatenate([mean - mean.mean() for mean in means])
    items = np.concatenate([one.items for one in told.values()])
    ends = np.cumsum([mean.size for mean in means])[:-1]
    n_raters = np.maximum(np.bincount(items), 1)

    def agreement(height: np.ndarray) -> float:
        return float((np.bincount(items, height) ** 2 / n_raters).sum())

    rng = generator(seed, Purpose.LINEAR_FORM_DEALS, 1)
    chance = np.array(
        [
            agreement(np.concatenate([rng.permutation(part) for part in np.split(height, ends)]))
            for _ in range(N_CHANCE)
        ]
    )
    return bool(agreement(height) > chance.mean() + AGREEING * chance.std())


def _answered(
    found: Reconstruction,
    open_: Int[np.ndarray, " some"],
    told: dict[int, _Told],
    levels: Float[np.ndarray, " levels"],
    reason: str,
) -> Reconstruction:
    """Put answers beside what was said before."""
    sure = [user for user in open_.tolist() if user in told and told[user].follows >= FOLLOWS]
    reasons = {**found.abstained, **{user: reason for user in open_.tolist() if user not in set(sure)}}
    if not sure:
        return replace(found, abstained=reasons)
    for user in sure:
        del reasons[user]
    width = max(told[user].items.size for user in sure)
    index = np.zeros((len(sure), width), int)
    value, probability = np.full((2, len(sure), width), np.nan)
    usual = sum(told[user].probability.sum(axis=0) for user in sure)
    usual = usual / usual.sum()
    for place, user in enumerate(sure):
        one = told[user]
        n, best = one.items.size, one.probability.argmax(axis=1)
        index[place, :n], value[place, :n] = one.items, levels[best]
        claim = one.probability[np.arange(n), best]
        claim = one.follows * claim + (1 - one.follows) * usual[best]
        probability[place, :n] = np.minimum(claim, 1.0)  # sums in single precision may be more
    block = Estimates(np.array(sure), np.full((1, width), ITEM, np.int8), index, value, probability)
    diagnostics = {name: column.copy() for name, column in found.diagnostics.items()}
    at = np.searchsorted(found.users, sure)
    for column in diagnostics.values():
        column[at] = np.nan
    diagnostics["misfit"][at] = [told[user].noise for user in sure]
    kept = [block_of(one, ~np.isin(one.users, sure)) for one in found.blocks]
    return replace(
        found,
        blocks=(*(one for one in kept if one.users.size), block),
        abstained=reasons,
        diagnostics=diagnostics,
    )
