"""Fit a hypothesis to clients from many starts, and say whose ratings are told.

All starts take a few steps, the best of each client many. Then its ratings are put on the grid and held
there, and start and constants are fitted again: right ratings leave nothing of the rows but their last
digits, while a wrong one changes its row by a good part of it. Who is told is judged by
``attacks.inversion.told``.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.client_rules.differentiable import ClientRule
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.numbers.integer_relation import precision_of
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.compression import Compressed, compressed, spare_of, uncompressed
from attacks.inversion.least_squares import Fit, Guess, Unknowns, chosen, fitted, least
from attacks.inversion.starts import Starts, starts_of, starts_with, unknowns
from attacks.inversion.told import Told, judged, of_one_multiple

SHORT, LONG = 12, 120  # steps of all starts, and of the best
KEPT = 4  # starts of a client that take long
FEWEST = 2  # ratings of a client that is answered
LOOSE, TIGHT = 30.0, 1e-9  # what may be left of rows: times their last digits, and of their size, at least
OUTSIDE = 10.0  # times what may be left, that may lie outside the span
NEAR = 1e-6  # of a step of the grid, within which a multiple is on it


def told(rule: ClientRule, guess: Guess, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Told:
    """Fit one hypothesis to one round of some clients whose ratings are unknown."""
    allowed = allowed_of(rows)
    small = _small(rule, rows)
    begin, sign, there = begun(starts_of(rows, levels), small, guess)
    able = (small.outside <= OUTSIDE * allowed) & (rows.item.sum(axis=1) >= FEWEST)
    there &= able[:, None]
    first = fitted(rule, small.problem, begin, sign, there, guess.free, SHORT)
    best = least(first, KEPT)
    sign, there = (np.take_along_axis(part, best, axis=1) for part in (sign, there))
    second = fitted(rule, small.problem, chosen(first.at, best), sign, there, guess.free, LONG)
    ratings, held = on_the_grid(second.at, small, rows, levels)
    third = fitted(rule, small.problem, held, sign, there, guess.free, LONG, ratings=False)
    left = np.hypot(third.left, _off_span(ratings, held.ratings, small, rows))
    at = third.at._replace(ratings=second.at.ratings)
    n = np.minimum(rows.item.sum(axis=1), small.problem.rows.shape[1])
    spare = spare_of(n, rows.rows.shape[2], int(guess.free.sum()))
    new = of_one_multiple(judged(ratings, at, left, allowed, spare, rows), guess, rows, levels)
    best = np.where(np.isnan(left), np.inf, left).argmin(axis=1)[:, None]
    sign = np.take_along_axis(sign, best, axis=1)[:, 0]
    return unless_multiples(rule, guess, new, small, sign, rows, levels)


def explained(
    rule: ClientRule, guess: Guess, rows: Rows, ratings: Float[np.ndarray, "clients n"]
) -> tuple[Fit, Float[np.ndarray, " clients"]]:
    """Fit start and constants to clients whose ratings are known, and say what may be left."""
    allowed = allowed_of(rows)
    small = _small(rule, rows)
    value = np.where(rows.item, ratings - rows.offset, 0.0)
    begin, sign, there = begun(starts_with(rows, value), small, guess)
    begin = begin._replace(ratings=np.repeat(small.of(value[:, None]), there.shape[1], axis=1))
    first = fitted(rule, small.problem, begin, sign, there, guess.free, SHORT, ratings=False)
    best = least(first, KEPT)
    sign, there = (np.take_along_axis(part, best, axis=1) for part in (sign, there))
    found = fitted(rule, small.problem, chosen(first.at, best), sign, there, guess.free, LONG, ratings=False)
    best = least(found, 1)
    return Fit(chosen(found.at, best), np.take_along_axis(found.left, best, axis=1)[:, 0]), allowed


def unless_multiples(
    rule: ClientRule,
    guess: Guess,
    new: Told,
    small: Compressed,
    sign: Float[np.ndarray, " clients"],
    rows: Rows,
    levels: Float[np.ndarray, " levels"],
) -> Told:
    """Fit the other multiples of answers that are on the grid, and leave open whose rows they explain.

    A factor c times as long and ratings c times as large make rows c^2 times as large, and with another rate
    or scale the same rows to first order. What bends the rows tells them apart, to as many digits as short
    steps leave it: with few, a client that rated all its items 4 may have rated all of them 3.5.
    """
    if not guess.free.any():
        return new
    offset = np.where(rows.item, rows.offset, 0.0)
    own = np.where(rows.item, new.ratings - offset, 0.0)
    largest = np.take_along_axis(own, np.abs(own).argmax(axis=1)[:, None], axis=1)
    first = np.take_along_axis(offset, np.abs(own).argmax(axis=1)[:, None], axis=1)
    times = (levels - first) / np.where(largest == 0, np.inf, largest)
    images = times[..., None] * own[:, None]
    away = distance_to_levels(images + offset[:, None], levels) / step_of(levels)
    there = ((away <= NEAR) | ~rows.item[:, None]).all(axis=2) & (times > 0) & (np.abs(times - 1) > NEAR)
    there &= new.explained[:, None]
    if not there.any():
        return new
    start = Unknowns(
        new.at.factor / np.where(there, times, 1.0)[..., None],
        small.of(images),
        np.repeat(new.at.constants, levels.size, axis=1),
    )
    signs = np.repeat(sign[:, None], levels.size, axis=1)
    left = fitted(rule, small.problem, start, signs, there, guess.free, LONG, ratings=False).left
    as_well = (there & (left <= new.allowed[:, None])).any(axis=1)
    return new._replace(several=new.several | as_well)


def _small(rule: ClientRule, rows: Rows) -> Compressed:
    return compressed(rows) if rule.mixes_rows else uncompressed(rows)


def begun(starts: Starts, small: Compressed, guess: Guess) -> tuple[Unknowns, np.ndarray, np.ndarray]:
    """Say where fits start, the sign of their rows, and which there are; the neighbour's first."""
    begin = unknowns(starts, small.problem, small.of(starts.ratings), guess.constants_of)
    sign = np.where(starts.sigma < 0, -1.0, 1.0)
    there = ~np.isnan(starts.sigma)
    if guess.nearby is None:
        return begin, sign, there
    near = guess.nearby._replace(constants=guess.family.carried(guess.nearby.constants, guess.value))
    both = Unknowns(*(np.concatenate(pair, axis=1) for pair in zip(near, begin, strict=True)))
    able = np.isfinite(near.constants).all(axis=2)
    return both, np.concatenate([sign[:, :1], sign], axis=1), np.concatenate([able, there], axis=1)


def allowed_of(rows: Rows) -> Float[np.ndarray, " clients"]:
    """What right ratings may leave of rows, relative to their size."""
    return np.maximum(TIGHT, LOOSE * precision_of(rows.rows, rows.factors, rows.precision))


def on_the_grid(
    at: Unknowns, small: Compressed, rows: Rows, levels: np.ndarray, *, turn: bool = True
) -> tuple[Float[np.ndarray, "clients starts n"], Unknowns]:
    """Ratings at their nearest levels, 0 off the items, and the fit with them.

    Without what everybody adds, factor and ratings of the other sign give the same rows: ratings are
    positive.
    """
    item = rows.item[:, None]
    offset = np.where(item, rows.offset[:, None], 0.0)
    raw = small.expanded(at.ratings)
    turned = ((raw.sum(axis=2, where=item) < 0) & ~(offset != 0).any(axis=2) & turn)[..., None]
    ratings = nearest_level(np.where(turned, -raw, raw) + offset, levels) * item
    return ratings, Unknowns(
        np.where(turned, -at.factor, at.factor), small.of(ratings - offset), at.constants
    )


def _off_span(
    ratings: np.ndarray, inside: np.ndarray, small: Compressed, rows: Rows
) -> Float[np.ndarray, "clients starts"]:
    """Share of ratings that no rows of the problem have."""
    target = ratings - np.where(rows.item, rows.offset, 0.0)[:, None]
    missed = np.linalg.norm(target - small.expanded(inside), axis=2)
    size = np.linalg.norm(target, axis=2)
    return missed / np.where(size > 0, size, 1)
