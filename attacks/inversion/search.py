"""Fit a hypothesis to clients from many starts, and say whose ratings are told.

All starts take a few steps, the best of each client many. Then its ratings are put on the grid and held
there, and start and constants are fitted again: right ratings leave nothing of the rows but their last
digits, while a wrong one changes its row by a good part of it. A client is told where some ratings on the
grid leave nothing of its rows, and no others do; there have to be more equations than unknowns, and where the
hypothesis leaves a multiple of the ratings open, no other multiple may be on the grid.

Fits begin at what rows would say of a single short step. To first order a row is then sigma e u, so that a
rating is A g + B h: g the row and h the item's factor along the rows' common direction, B the length of u, A
= 1 / (sigma B) (``attacks.closed_form.fit.affine_grid``). A and B are open. Some lengths are tried with the A
that puts ratings nearest to the middle of their range, and the few pairs that put them nearest to the grid:
where steps are short these are close to the truth, and where steps are long the fit finds it from afar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.client_rules.differentiable import ClientRule
from attacks.closed_form.fit.affine_grid import nearest_numbers
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.images import one_multiple
from attacks.closed_form.numbers.integer_relation import precision_of
from attacks.closed_form.uploads.readings import Rows
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.inversion.compression import Compressed, compressed, spare_of, uncompressed
from attacks.inversion.least_squares import Fit, Guess, Problem, Unknowns, chosen, fitted, least

SHORT, LONG = 12, 120  # steps of all starts, and of the best
KEPT = 4  # starts of a client that take long
FEWEST = 2  # ratings of a client that is answered
LOOSE, TIGHT = 30.0, 1e-9  # what may be left of rows: times their last digits, and of their size, at least
OUTSIDE = 10.0  # times what may be left, that may lie outside the span
NEAR = 1e-6  # of a step of the grid, within which a multiple is on it
SPARE = 2  # equations more than unknowns, at least
LENGTHS = np.logspace(-1.3, 1, 7)  # of u
STRETCHES = np.array([[a, b] for a in (1.0, 0.25) for b in (1.0, 0.5, 2.0, 4.0, 8.0)])  # of A and B


class Told(NamedTuple):
    """What is told of some clients."""

    ratings: Float[np.ndarray, "clients n"]  # in stars, on the grid; NaN off the items
    at: Unknowns  # the best fit of each client, (clients, 1, ...), for a neighbour to start from
    left: Float[np.ndarray, " clients"]  # what the best ratings leave of the rows, relative to their size
    allowed: Float[np.ndarray, " clients"]  # what right ratings may leave
    rivals: Bool[np.ndarray, " clients"]  # whether other ratings leave as little
    spare: Int[np.ndarray, " clients"]  # equations less unknowns
    # whether other multiples of the ratings leave as little, and are on the grid
    several: Bool[np.ndarray, " clients"]

    @property
    def explained(self) -> Bool[np.ndarray, " clients"]:
        """Whose ratings are told up to a multiple: the hypothesis is right."""
        return (self.left <= self.allowed) & ~self.rivals & (self.spare >= SPARE)

    @property
    def answered(self) -> Bool[np.ndarray, " clients"]:
        """Whose ratings are told."""
        return self.explained & ~self.several


def judged(
    ratings: np.ndarray, at: Unknowns, left: np.ndarray, allowed: np.ndarray, spare: np.ndarray, rows: Rows
) -> Told:
    """Choose the best answer of each client, and tell whether another is as good."""
    left = np.where(np.isnan(left), np.inf, left)
    number = left.argmin(axis=1)[:, None]
    mine = np.take_along_axis(ratings, number[..., None], axis=1)
    rivals = ((ratings != mine).any(axis=2) & (left <= allowed[:, None])).any(axis=1)
    best = np.take_along_axis(left, number, axis=1)[:, 0]
    ratings = np.where(rows.item, mine[:, 0], np.nan)
    return Told(ratings, chosen(at, number), best, allowed, rivals, spare, np.zeros_like(rivals))


def of_one_multiple(new: Told, guess: Guess, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Told:
    """Tell whose ratings may be a multiple of the answer, where the hypothesis tells no length of a factor.

    Two rates, say, take up what a factor that is twice as long, and ratings half as large, change of the
    rows: whole stars of a grid of halves may then be their halves, whatever the number of equations.
    """
    if not guess.family.multiples or guess.constants is not None:
        return new
    several = np.zeros_like(new.rivals)
    for user in np.flatnonzero(new.explained):
        item = rows.item[user]
        offset = rows.offset[user, item]
        several[user] = not one_multiple(new.ratings[user, item] - offset, offset, levels)
    return new._replace(several=several)


class Starts(NamedTuple):
    """Several starts of each client."""

    factor: Float[np.ndarray, "clients starts K"]
    ratings: Float[np.ndarray, "clients starts n"]  # without what everybody adds to predictions
    sigma: Float[np.ndarray, "clients starts"]  # of either sign; NaN where there is no such start


def starts_of(rows: Rows, levels: Float[np.ndarray, " levels"]) -> Starts:
    """Collect the starts of some clients."""
    direction, columns = _along(rows)
    g, h = columns[..., 0], columns[..., 1]
    b = np.broadcast_to(np.concatenate([LENGTHS, -LENGTHS]), (len(g), 2 * LENGTHS.size))
    aim = (levels[0] + levels[-1]) / 2 - rows.offset[:, None] - b[..., None] * h[:, None]
    square = (g**2).sum(axis=1)[:, None]
    a = (aim * (g * rows.item)[:, None]).sum(axis=2) / np.where(square > 0, square, np.nan)
    near = nearest_numbers(columns, rows.offset, rows.item, levels)
    return _starts(np.concatenate([np.stack([a, b], axis=2), near], axis=1), direction, columns)


def starts_with(rows: Rows, ratings: Float[np.ndarray, "clients n"]) -> Starts:
    """The start at which rows fit known ratings best, and shorter and longer factors."""
    direction, columns = _along(rows)
    square = np.matmul(columns.transpose(0, 2, 1), columns)
    inverse = np.linalg.pinv(square, rcond=1e-12, hermitian=True)
    best = np.matmul(inverse, np.matmul(columns.transpose(0, 2, 1), ratings[..., None]))[..., 0]
    return _starts(best[:, None] * STRETCHES, direction, columns)


def _along(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The rows' common direction, and g and h along it; 0 off the items."""
    direction, _ = leading_direction(rows.rows)
    columns = np.stack(
        [np.matmul(part, direction[:, :, None])[..., 0] for part in (rows.rows, rows.factors)], axis=2
    )
    return direction, columns * rows.item[..., None]


def _starts(numbers: np.ndarray, direction: np.ndarray, columns: np.ndarray) -> Starts:
    """From A and B."""
    ratings = np.matmul(numbers, columns.transpose(0, 2, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        sigma = 1 / (numbers[..., 0] * numbers[..., 1])
    sigma[~np.isfinite(sigma) | ~np.isfinite(ratings).all(axis=2)] = np.nan
    return Starts(numbers[..., 1:] * direction[:, None], ratings, sigma)


def unknowns(
    starts: Starts,
    problem: Problem,
    ratings: Float[np.ndarray, "clients starts m"],
    constants_of: Callable[[float, float], tuple[float, ...]],
) -> Unknowns:
    """The starts as those of a problem."""
    size = np.abs(np.where(np.isnan(starts.sigma), 1.0, starts.sigma))
    square = np.matmul(problem.factors.transpose(0, 2, 1), problem.factors)
    stiffness = np.broadcast_to(np.linalg.eigvalsh(square)[:, -1:], size.shape)
    given = [constants_of(*pair) for pair in zip(size.ravel(), stiffness.ravel(), strict=True)]
    constants = np.array(given).reshape(*size.shape, -1)
    return Unknowns(np.nan_to_num(starts.factor), np.nan_to_num(ratings), constants)


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
