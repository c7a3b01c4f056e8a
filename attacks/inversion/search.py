"""Fit a hypothesis to clients from many starts, and say whose ratings are told.

All starts take a few steps, the best of each client many. Then its ratings are put on the grid and held
there, and start and constants are fitted again: right ratings leave nothing of the rows but their last
digits, while a wrong one changes its row by a good part of it. A client is told where there are more
equations than unknowns, some ratings on the grid leave nothing, and no others do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.client_rules.differentiable import ClientRule, Family
from attacks.closed_form.credible import one_multiple
from attacks.closed_form.decoding import nearest_level
from attacks.closed_form.integer_relation import precision_of
from attacks.closed_form.row_readings import Rows
from attacks.inversion.compression import Compressed, compressed, spare_of, uncompressed
from attacks.inversion.least_squares import Fit, Problem, Unknowns, fit
from attacks.inversion.starts import Starts, starts_of, starts_with, unknowns

SHORT, LONG = 12, 120  # steps of all starts, and of the best
KEPT = 4  # starts of a client that take long
AT_ONCE, FEW = 64, 16  # fits of one call, and of one where there are no more
SPARE = 2  # equations more than unknowns, at least
FEWEST = 2  # ratings of a client that is answered
LOOSE, TIGHT = 30.0, 1e-9  # what may be left of rows: times their last digits, and of their size, at least
OUTSIDE = 10.0  # times what may be left, that may lie outside the span


class Guess(NamedTuple):
    """A member of a family; constants (c,) where they are known, and fits with a neighbour to start from."""

    family: Family
    value: float
    constants: np.ndarray | None = None
    nearby: Unknowns | None = None

    @property
    def free(self) -> Bool[np.ndarray, " c"]:
        """Which constants are fitted."""
        return np.array(self.family.free) & (self.constants is None)

    def constants_of(self, sigma: float, stiffness: float) -> tuple[float, ...]:
        """Where a fit starts."""
        if self.constants is not None:
            return tuple(self.constants.tolist())
        return self.family.start(self.value, sigma, stiffness)


class Told(NamedTuple):
    """What is told of some clients.

    Attributes
    ----------
    ratings : (clients, n)
        In stars, on the grid; NaN off the items.
    at : Unknowns
        The best fit of each client, (clients, 1, ...), for a neighbour to start from.
    left : (clients,)
        What the best ratings leave of the rows, relative to their size.
    allowed : (clients,)
        What right ratings may leave.
    rivals : (clients,) bool
        Whether other ratings leave as little.
    spare : (clients,) int
        Equations less unknowns.
    several : (clients,) bool
        Whether other multiples of the ratings leave as little, and are on the grid.
    """

    ratings: Float[np.ndarray, "clients n"]
    at: Unknowns
    left: Float[np.ndarray, " clients"]
    allowed: Float[np.ndarray, " clients"]
    rivals: Bool[np.ndarray, " clients"]
    spare: Int[np.ndarray, " clients"]
    several: Bool[np.ndarray, " clients"]

    @property
    def explained(self) -> Bool[np.ndarray, " clients"]:
        """Whose ratings are told up to a multiple: the hypothesis is right."""
        return (self.left <= self.allowed) & ~self.rivals & (self.spare >= SPARE)

    @property
    def answered(self) -> Bool[np.ndarray, " clients"]:
        """Whose ratings are told."""
        return self.explained & ~self.several


def told(rule: ClientRule, guess: Guess, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Told:
    """Fit one hypothesis to one round of some clients whose ratings are unknown.

    Parameters
    ----------
    rule : ClientRule
    guess : Guess
    rows : Rows
        0 where a row is of no item.
    levels : (levels,)
        Ratings that exist, ascending, stars.

    Returns
    -------
    Told
    """
    small, allowed = _small(rule, rows), allowed_of(rows)
    begin, sign, there = _begin(starts_of(rows, levels), small, guess)
    able = (small.outside <= OUTSIDE * allowed) & (rows.item.sum(axis=1) >= FEWEST)
    there &= able[:, None]
    first = fitted(rule, small.problem, begin, sign, there, guess.free, SHORT)
    best = _least(first, KEPT)
    sign, there = (np.take_along_axis(part, best, axis=1) for part in (sign, there))
    second = fitted(rule, small.problem, _best(first.at, best), sign, there, guess.free, LONG)
    ratings, held = on_the_grid(second.at, small, rows, levels)
    third = fitted(rule, small.problem, held, sign, there, guess.free, LONG, ratings=False)
    left = np.hypot(third.left, _off_span(ratings, held.ratings, small, rows))
    at = third.at._replace(ratings=second.at.ratings)
    n = np.minimum(rows.item.sum(axis=1), small.problem.rows.shape[1])
    spare = spare_of(n, rows.rows.shape[2], int(guess.free.sum()))
    return of_one_multiple(judged(ratings, at, left, allowed, spare, rows), guess, rows, levels)


def explained(
    rule: ClientRule, guess: Guess, rows: Rows, ratings: Float[np.ndarray, "clients n"]
) -> tuple[Fit, Float[np.ndarray, " clients"]]:
    """Fit start and constants to clients whose ratings are known, and say what may be left.

    Parameters
    ----------
    rule : ClientRule
    guess : Guess
    rows : Rows
        0 where a row is of no item.
    ratings : (clients, n)
        In stars.

    Returns
    -------
    fit : Fit
    allowed : (clients,)
    """
    small = _small(rule, rows)
    value = np.where(rows.item, ratings - rows.offset, 0.0)
    begin, sign, there = _begin(starts_with(rows, value), small, guess)
    begin = begin._replace(ratings=np.repeat(small.of(value[:, None]), there.shape[1], axis=1))
    first = fitted(rule, small.problem, begin, sign, there, guess.free, SHORT, ratings=False)
    best = _least(first, KEPT)
    sign, there = (np.take_along_axis(part, best, axis=1) for part in (sign, there))
    found = fitted(rule, small.problem, _best(first.at, best), sign, there, guess.free, LONG, ratings=False)
    best = _least(found, 1)
    return Fit(_best(found.at, best), np.take_along_axis(found.left, best, axis=1)[:, 0]), allowed_of(rows)


def _small(rule: ClientRule, rows: Rows) -> Compressed:
    return compressed(rows) if rule.mixes_rows else uncompressed(rows)


def _begin(starts: Starts, small: Compressed, guess: Guess) -> tuple[Unknowns, np.ndarray, np.ndarray]:
    """Where fits start, the sign of their rows, and which there are; the neighbour's first."""
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
    """What right ratings may leave of rows, relative to their size.

    Parameters
    ----------
    rows : Rows

    Returns
    -------
    (clients,)
        At least ``TIGHT``.
    """
    return np.maximum(TIGHT, LOOSE * precision_of(rows.rows, rows.factors, rows.precision))


def _least(fits: Fit, most: int) -> Int[np.ndarray, "clients some"]:
    """The starts of each client that leave least."""
    left = np.where(np.isnan(fits.left), np.inf, fits.left)
    return np.argsort(left, axis=1, kind="stable")[:, :most]


def _best(at: Unknowns, number: np.ndarray) -> Unknowns:
    return Unknowns(*(np.take_along_axis(part, number[..., None], axis=1) for part in at))


def fitted(
    rule: ClientRule,
    problem: Problem,
    start: Unknowns,
    sign: np.ndarray,
    there: np.ndarray,
    free_constants: np.ndarray,
    steps: int,
    *,
    ratings: bool = True,
    at_once: int | None = None,
) -> Fit:
    """Fit all starts, so many at a time; the answer is NaN where there is none.

    Parameters
    ----------
    rule : ClientRule
    problem : Problem
        Of all clients, rows and factors (clients, n, K).
    start : Unknowns
        (clients, starts, ...).
    sign : (clients, starts)
        1 or -1, which the rows are multiplied with.
    there : (clients, starts) bool
        Which starts are taken; the others stay as they are.
    free_constants : (c,) bool
        Which constants are fitted.
    steps : int
        At most.
    ratings : bool
        Whether ratings are fitted, or held.
    at_once : int, optional
        Fits of one call; few shapes make few compiled programs.

    Returns
    -------
    Fit
        (clients, starts, ...).
    """
    client, trial = np.nonzero(there)
    at_once = at_once or (FEW if client.size <= FEW else AT_ONCE)
    out = Unknowns(*(np.array(part) for part in start))
    left = np.full(there.shape, np.nan)
    for begin in range(0, client.size, at_once):
        some = np.arange(begin, min(begin + at_once, client.size))
        full = np.resize(some, at_once)  # few shapes, few compiled programs
        c, t = client[full], trial[full]
        own = Problem(problem.rows[c] * sign[c, t][:, None, None], problem.factors[c])
        at = Unknowns(*(part[c, t] for part in start))
        free = Unknowns(
            np.ones(at.factor.shape),
            np.full(at.ratings.shape, float(ratings)),
            np.broadcast_to(free_constants.astype(float), at.constants.shape),
        )
        found = fit(rule, own, at, free, steps)
        for whole, part in zip(out, found.at, strict=True):
            whole[client[some], trial[some]] = part[: some.size]
        left[client[some], trial[some]] = found.left[: some.size]
    return Fit(out, left)


def on_the_grid(
    at: Unknowns, small: Compressed, rows: Rows, levels: np.ndarray, *, turn: bool = True
) -> tuple[Float[np.ndarray, "clients starts n"], Unknowns]:
    """Ratings at their nearest levels, 0 off the items, and the fit with them.

    Without what everybody adds, factor and ratings of the other sign give the same rows: ratings are
    positive.

    Parameters
    ----------
    at : Unknowns
        Fits (clients, starts, ...), of the compressed problem.
    small : Compressed
        What leads from its ratings to those of the clients' rows.
    rows : Rows
    levels : (levels,)
        Ratings that exist, ascending, in stars.
    turn : bool
        Whether a fit of the other sign is turned.

    Returns
    -------
    ratings : (clients, starts, n)
        In stars.
    at : Unknowns
        The same fits with these ratings.
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


def judged(
    ratings: np.ndarray, at: Unknowns, left: np.ndarray, allowed: np.ndarray, spare: np.ndarray, rows: Rows
) -> Told:
    """Choose the best answer of each client, and tell whether another is as good.

    Parameters
    ----------
    ratings : (clients, starts, n)
        On the grid, in stars.
    at : Unknowns
        The fits with them, (clients, starts, ...).
    left : (clients, starts)
        What they leave of the rows, relative to their size; NaN counts as all.
    allowed : (clients,)
        What right ratings may leave.
    spare : (clients,) int
        Equations less unknowns.
    rows : Rows

    Returns
    -------
    Told
    """
    left = np.where(np.isnan(left), np.inf, left)
    number = left.argmin(axis=1)[:, None]
    mine = np.take_along_axis(ratings, number[..., None], axis=1)
    rivals = ((ratings != mine).any(axis=2) & (left <= allowed[:, None])).any(axis=1)
    best = np.take_along_axis(left, number, axis=1)[:, 0]
    ratings = np.where(rows.item, mine[:, 0], np.nan)
    return Told(ratings, _best(at, number), best, allowed, rivals, spare, np.zeros_like(rivals))


def of_one_multiple(new: Told, guess: Guess, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Told:
    """Tell whose ratings may be a multiple of the answer, where the hypothesis tells no length of a factor.

    Two rates, say, take up what a factor that is twice as long, and ratings half as large, change of the
    rows: whole stars of a grid of halves may then be their halves, whatever the number of equations.

    Parameters
    ----------
    new : Told
    guess : Guess
    rows : Rows
    levels : (levels,)
        Ratings that exist, ascending, in stars.

    Returns
    -------
    Told
    """
    if not guess.family.multiples or guess.constants is not None:
        return new
    several = np.zeros_like(new.rivals)
    for user in np.flatnonzero(new.explained):
        item = rows.item[user]
        offset = rows.offset[user, item]
        several[user] = not one_multiple(new.ratings[user, item] - offset, offset, levels)
    return new._replace(several=several)
