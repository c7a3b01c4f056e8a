"""Several rounds of a client fitted as one: what a single round of few ratings leaves open.

A client that keeps its factor and its ratings has no more unknowns in several rounds than in the first of
them, the start, the ratings and the constants (``attacks.inversion.several_rounds``). So every further round
is so many equations more, though not all of them tell something new. A factor drawn anew, other ratings or
another rate in a later round are explained by no fit of all rounds to their last digits: such clients are
not answered.

Many equations tell little where steps are short: other ratings may leave as little of the rows. So the
answer's neighbours on the grid are fitted as well, and each has to leave more than right ratings may.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.client_rules.differentiable import ClientRule
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.answers import Found
from attacks.inversion.clients import BATCH_BYTES, SAMPLE
from attacks.inversion.compression import uncompressed
from attacks.inversion.guess import Guess
from attacks.inversion.least_squares import Unknowns
from attacks.inversion.many_starts import chosen, fitted, least
from attacks.inversion.search import KEPT, LONG, SHORT, allowed_of, begun, on_the_grid
from attacks.inversion.several_rounds import RoundAfterRound, Together, part_of, spare_together, together
from attacks.inversion.starts import starts_of
from attacks.inversion.told import SPARE, Told, judged, of_one_multiple
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

LIKELY = 2  # families of a rule that are tried where no client tells which
MOSTLY = 0.5  # of a sample, that a hypothesis has to explain
MARGIN = 10.0  # times what right ratings may leave, that others have to
NEAR = 0.1  # of the rows, above which an answer has no neighbours tried: it explains nothing
AT_ONCE = 16  # fits of one call: one shape, one compiled program
MOVES = 4  # times that an answer gives way to a neighbour that leaves less
CHANGED = (
    "no ratings on the grid and no factor that is kept from round to round explain its rounds together: "
    "factors drawn anew, other ratings or rates in each, or another rule"
)


def answer_together(view: View, rule: ClientRule, guess: Guess | None, found: Found) -> Guess | None:
    """Take up whose ratings are told by several rounds."""
    levels = np.array(view.manifest.rating_levels)
    groups = [group for batch in view.batches(BATCH_BYTES) for group in together(view, batch, found)]
    if guess is None and groups:
        guess = _chosen(rule, view.manifest, groups, levels)
    if guess is None:
        return None
    _answer(rule, guess, groups, levels, found)
    if guess.constants is None and (constants := found.common(guess.family)) is not None:
        _answer(rule, guess._replace(constants=constants), groups, levels, found)
    return guess


def _answer(rule: ClientRule, guess: Guess, groups: list[Together], levels: np.ndarray, found: Found) -> None:
    """Fit a hypothesis to those that are open."""
    for group in groups:
        here = np.flatnonzero(~found.answered[np.searchsorted(found.users, group.users)])
        if here.size:
            some = part_of(group, here)
            before = {user: found.reasons[user] for user in some.users.tolist() if user in found.reasons}
            new = told_together(rule, guess, some, levels)
            found.add_by_fit(some.users, some.items, new)
            unexplained = some.users[(new.left > new.allowed) & (new.spare >= SPARE)]
            for user in unexplained.tolist():  # what one round says stays, and this beside it
                said = before.get(user, CHANGED)
                found.reasons[user] = said if said.endswith(CHANGED) else f"{said}; {CHANGED}"


def _chosen(
    rule: ClientRule, manifest: Manifest, groups: list[Together], levels: Float[np.ndarray, " levels"]
) -> Guess | None:
    """The likeliest hypothesis that explains most of a few clients; None where none does."""
    few = min(groups, key=lambda group: group.items.shape[1])
    most = np.lexsort((-few.first.item.sum(axis=1), -few.n_rounds))
    few = part_of(few, most[:SAMPLE])
    for family in rule.families(manifest)[:LIKELY]:
        for value in family.values if family.first is None else (family.first,):
            guess = Guess(family, value)
            explained = _on_the_grid(rule, guess, few, levels).left.min(axis=1) <= _allowed(few)
            if explained.mean() > MOSTLY:
                return guess
    return None


def told_together(
    rule: ClientRule, guess: Guess, group: Together, levels: Float[np.ndarray, " levels"]
) -> Told:
    """Fit one hypothesis to several rounds of some clients whose ratings are unknown."""
    allowed = _allowed(group)
    tried = _on_the_grid(rule, guess, group, levels)
    settled = np.zeros(len(group.users), bool)
    for _ in range(MOVES):
        centre = tried.best()
        centre = centre._replace(there=centre.there & ~settled[:, None])
        if not centre.there.any():
            break
        about = _tried(rule, guess, group, _neighbours(centre, group.first, levels))
        settled |= centre.there[:, 0] & (about.left.argmin(axis=1) == 0)
        tried = tried.joined(about)
    new = judged(tried.ratings, tried.at, tried.left, allowed, _spare(guess, group), group.first)
    others = (tried.ratings != np.nan_to_num(new.ratings)[:, None]).any(axis=2)
    close = (others & (tried.left <= MARGIN * allowed[:, None])).any(axis=1)
    new = new._replace(rivals=new.rivals | close | ~settled)
    return of_one_multiple(new, guess, group.first, levels)


def _on_the_grid(rule: ClientRule, guess: Guess, group: Together, levels: np.ndarray) -> _Tried:
    """Fit from many starts, put ratings on the grid, and fit start and constants again."""
    all_rounds = RoundAfterRound(rule)
    one = uncompressed(group.first)
    begin, sign, there = begun(starts_of(group.first, levels), one, guess)
    there &= (_spare(guess, group) >= SPARE)[:, None]
    first = fitted(all_rounds, group.joined, begin, sign, there, guess.free, SHORT, at_once=AT_ONCE)
    best = least(first, KEPT)
    sign, there = (np.take_along_axis(part, best, axis=1) for part in (sign, there))
    second = fitted(
        all_rounds, group.joined, chosen(first.at, best), sign, there, guess.free, LONG, at_once=AT_ONCE
    )
    ratings, held = on_the_grid(second.at, one, group.first, levels)
    return _tried(rule, guess, group, _Trials(ratings, held, sign, there))


def _spare(guess: Guess, group: Together) -> Int[np.ndarray, " clients"]:
    n_rated, factors = group.first.item.sum(axis=1), group.first.rows.shape[2]
    return spare_together(n_rated, factors, int(guess.free.sum()), group.n_rounds)


def _allowed(group: Together) -> Float[np.ndarray, " clients"]:
    """What right ratings may leave of all rounds."""
    return allowed_of(group.first._replace(rows=group.joined.rows, factors=group.joined.factors))


class _Trials(NamedTuple):
    """Ratings on the grid that are held, where fits with them start, the rows' sign, and which there are."""

    ratings: Float[np.ndarray, "clients trials n"]
    held: Unknowns
    sign: Float[np.ndarray, "clients trials"]
    there: Bool[np.ndarray, "clients trials"]


class _Tried(NamedTuple):
    """Ratings that were held, the fits with them, and what these leave; infinite where there is none."""

    ratings: Float[np.ndarray, "clients trials n"]
    at: Unknowns
    sign: Float[np.ndarray, "clients trials"]
    left: Float[np.ndarray, "clients trials"]

    def best(self) -> _Trials:
        """The trial of each client that leaves least, where it is near."""
        number = self.left.argmin(axis=1)[:, None]
        ratings = np.take_along_axis(self.ratings, number[..., None], axis=1)
        sign, left = (np.take_along_axis(part, number, axis=1) for part in (self.sign, self.left))
        return _Trials(ratings, chosen(self.at, number), sign, left <= NEAR)

    def joined(self, more: _Tried) -> _Tried:
        """These and more."""
        at = Unknowns(*(np.concatenate(pair, axis=1) for pair in zip(self.at, more.at, strict=True)))
        rest = (
            np.concatenate([getattr(one, name) for one in (self, more)], axis=1)
            for name in ("ratings", "sign", "left")
        )
        ratings, sign, left = rest
        return _Tried(ratings, at, sign, left)


def _tried(rule: ClientRule, guess: Guess, group: Together, trials: _Trials) -> _Tried:
    """Fit start and constants with ratings that are held."""
    fits = fitted(
        RoundAfterRound(rule),
        group.joined,
        trials.held,
        trials.sign,
        trials.there,
        guess.free,
        LONG,
        ratings=False,
        at_once=AT_ONCE,
    )
    return _Tried(trials.ratings, fits.at, trials.sign, np.where(np.isfinite(fits.left), fits.left, np.inf))


def _neighbours(centre: _Trials, first: Rows, levels: Float[np.ndarray, " levels"]) -> _Trials:
    """Ratings, then those with one of them a level higher or lower, then with all higher or lower alike."""
    n, most = first.item.shape[1], levels.size - 1
    own = np.concatenate([np.eye(n, dtype=int), -np.eye(n, dtype=int)])
    by = np.arange(-most, most + 1)
    change = np.concatenate([np.zeros((1, n), int), own, np.repeat(by[by != 0][:, None], n, axis=1)])
    level = np.abs(centre.ratings[..., None] - levels).argmin(axis=3)
    other = np.clip(level + change, 0, most)
    ratings = levels[other] * first.item[:, None]
    differs = (ratings != centre.ratings).any(axis=2)
    differs[:, 0] = True
    held = Unknowns(*(np.repeat(part, len(change), axis=1) for part in centre.held))
    held = held._replace(ratings=(ratings - first.offset[:, None]) * first.item[:, None])
    sign = np.repeat(centre.sign, len(change), axis=1)
    return _Trials(ratings, held, sign, differs & centre.there)
