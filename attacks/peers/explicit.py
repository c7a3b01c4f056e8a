"""One sender's explicit rows of DPMF-Yang in one round: its ratings, and the direction of its factor.

Beyond Yang et al. 2022. A row is e' u + mu v, with u the sender's whole factor at that moment and mu the
ridge of the item. The planes of rows that follow each other meet, as those
of PDMFRec do (``attacks.peers.planes``), and tell mu; what is left is a chain. Where the receiver does not
hold the sender's v, neither holds to the last digit: the rows then count as along one direction, as u moves
little in a pass.

With x = u . v, e' is g'(x) (g(x) - R), R in 0..1. With u = c d and rows g d, x = c h for h = d . v, and

    R = g(c h) - g / (c g'(c h)),

so that one number c per sender gives all of its ratings, and the known levels tell which. Where the sender
steps after every rating, ``attacks.closed_form.uploads.moving_factor`` gives scalar and along of every row,
of which the same holds with one c.

Turning d turns R into 1 - R. Where the levels look the same from both ends the sign is open, and nothing is
answered unless something else tells it: rows about implicit feedback do (``attacks.peers.implicit``).

Symbols: g logistic function, R rating mapped to 0..1, d direction of u (Yang et al. 2022, Eq. 14).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import accidental, step_of
from attacks.closed_form.uploads.moving_factor import follow
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.peers.planes import meeting_planes

SHORTEST, LONGEST = 2.0, 400.0  # lengths that are tried, in units of the largest row
TRIED = 1500  # of them, of each sign, evenly spaced in their logarithm
FEW = 6  # nearest of them that are looked at more closely,
FINER = 5  # times,
PLACES = 17  # at so many places around the best
BLOCK = 1 << 21  # numbers of one table
ACCIDENT = 1e-4  # probability that rows about nothing are answered
TELLING = 3.0  # times the best distance from the grid that any other ratings must have
FAR = 1e6
EXACT = 1e-9  # of a step, below which distances are equal


class Fit(NamedTuple):
    """Ratings of each sender."""

    value: Float[np.ndarray, "senders rows"]  # in 0..1, not rounded; 0 off the rows
    # mean distance from the levels, 1 is chance; NaN where no length is clear
    misfit: Float[np.ndarray, " senders"]
    allowed: Float[np.ndarray, " senders"]  # the largest misfit at which an answer counts
    length: Float[np.ndarray, " senders"]  # c, with its sign; NaN where none is clear


def ratings_behind(
    scalar: Float[np.ndarray, "senders rows"],
    along: Float[np.ndarray, "senders rows"],
    there: Bool[np.ndarray, "senders rows"],
    levels: Float[np.ndarray, " levels"],
    max_misfit: float,
    sign: Float[np.ndarray, " senders"] | None = None,
) -> Fit:
    """Find the length of every sender's factor, and with it its ratings.

    Examples
    --------
    >>> rated, h = np.array([[0.2, 1.0, 0.6, 0.8, 0.4, 1.0]]), np.array([[0.3, -0.4, 0.1, 0.9, -0.2, 0.5]])
    >>> g = expit(1.7 * h)
    >>> row = 1.7 * g * (1 - g) * (g - rated)
    >>> ratings_behind(row, h, h < 1, np.arange(1, 6) / 5, 0.25).value.round(6)
    array([[0.2, 1. , 0.6, 0.8, 0.4, 1. ]])
    """
    parts = [
        _fit(scalar[row : row + 1], along[row : row + 1], there[row : row + 1], levels, max_misfit, one)
        for row, one in enumerate(np.zeros(len(scalar)) if sign is None else sign)
    ]
    columns = zip(*parts, strict=True)
    return Fit(*(np.concatenate(column) for column in columns))


def ratings_at(scalar: np.ndarray, along: np.ndarray, length: np.ndarray) -> np.ndarray:
    """R at a given length of the sender's factor."""
    g = expit(length * along)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.clip(np.nan_to_num(g - scalar / (length * g * (1 - g)), nan=FAR), -FAR, FAR)


def _fit(
    scalar: np.ndarray,
    along: np.ndarray,
    there: np.ndarray,
    levels: np.ndarray,
    max_misfit: float,
    sign: float,
) -> Fit:
    """One sender, (1, rows) each."""
    g, h = scalar[there], along[there]
    size = np.abs(g).max(initial=0)
    if not size > 0 or g.size < 2:
        return _nothing(scalar.shape)
    step = step_of(levels)
    half = size * np.geomspace(SHORTEST, LONGEST, TRIED)
    found = []
    for turn in (-1.0, 1.0) if sign == 0 else (float(np.sign(sign)),):
        tried = turn * half
        away = _distance(g, h, tried, levels)
        inner = (away[1:-1] <= away[:-2]) & (away[1:-1] <= away[2:])
        lowest = np.flatnonzero(inner) + 1
        found.append(tried[lowest[np.argsort(away[lowest])[:FEW]]])
    few = np.concatenate(found)
    if not few.size:
        return _nothing(scalar.shape)
    spread = np.log(LONGEST / SHORTEST) / TRIED
    for _ in range(FINER):
        near = few[:, None] * np.exp(spread * np.linspace(-1, 1, PLACES))
        away = _distance(g, h, near.ravel(), levels).reshape(near.shape)
        few = near[np.arange(few.size), away.argmin(axis=1)]
        spread /= (PLACES - 1) / 4
    away = _distance(g, h, few, levels)
    value = ratings_at(g, h, few[:, None])
    best = int(away.argmin())
    named = nearest_level(value, levels)
    other = (named != named[best]).any(axis=1)
    clear = bool((away[other] > TELLING * away[best] + EXACT * step).all())
    out = np.zeros(scalar.shape)
    out[there] = value[best]
    # rows that move no rating by half a level from its prediction say nothing: any small ones would do
    clear &= bool((np.abs(value[best] - expit(few[best] * h)) > step / 2).any())
    misfit = away[best] / (step / 4) if clear else np.nan
    allowed = np.minimum(max_misfit, accidental(np.array([g.size - 1]), 4 * levels.size, ACCIDENT))
    return Fit(out, np.array([misfit]), allowed, np.array([few[best] if clear else np.nan]))


def _nothing(shape: tuple[int, ...]) -> Fit:
    unknown = np.full(1, np.nan)
    return Fit(np.zeros(shape), unknown, np.zeros(1), unknown)


def _distance(g: np.ndarray, h: np.ndarray, tried: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Mean distance from the levels at each length."""
    return distance_to_levels(ratings_at(g, h, tried[:, None]), levels).mean(axis=1)


class Explicit(NamedTuple):
    """What is read of one sender in one round."""

    value: Float[np.ndarray, " rows"]  # R in 0..1, not rounded; NaN where not told
    misfit: float  # 1 is chance; NaN where nothing is told
    direction: Float[np.ndarray, " K"]  # of the sender's factor, of the right sign; 0 where nothing is told
    pull: float  # mu; NaN where the rows do not tell it


def pull_of(
    rows: Float[np.ndarray, "rows K"],
    factors: Float[np.ndarray, "rows K"],
    index: Int[np.ndarray, " rows"],
    precision: float,
) -> float:
    """Multiple of its factor that each of a sender's rows holds; NaN where no two planes meet."""
    met = meeting_planes(rows, factors, index, precision)
    return float(met.pull(np.zeros(met.first.size, int), 1)[0])


def read_explicit(
    rows: Float[np.ndarray, "rows K"],
    factors: Float[np.ndarray, "rows K"],
    index: Int[np.ndarray, " rows"],
    levels: Float[np.ndarray, " levels"],
    max_misfit: float,
    precision: float,
    pull: float = np.nan,
    toward: Float[np.ndarray, " K"] | None = None,
) -> Explicit:
    """Read one sender's explicit rows of a round."""
    told = pull if np.isfinite(pull) else pull_of(rows, factors, index, precision)
    clean = rows - (told if np.isfinite(told) else 0.0) * factors
    unread = Explicit(np.full(len(rows), np.nan), np.nan, np.zeros(rows.shape[1]), told)
    if not len(rows):
        return unread
    there = np.ones((1, len(rows)), bool)
    chain = follow(clean[None], factors[None], there, precision)
    direction = leading_direction(clean[None])[0][0]
    one = (clean @ direction)[None], (factors @ direction)[None], there
    for scalar, along, rows_there in ((chain.scalar, chain.along, chain.step >= 0), one):
        sign = None if toward is None else np.sign([_agreement(scalar[0], clean, toward)])
        fit = ratings_behind(scalar, along, rows_there, levels, max_misfit, sign)
        if fit.misfit[0] <= fit.allowed[0]:
            value = np.where(rows_there[0], fit.value[0], np.nan)
            predicted = fit.length[0] * along[0]
            return Explicit(value, float(fit.misfit[0]), _turned(direction, factors, predicted), told)
    return unread


def _agreement(scalar: np.ndarray, clean: np.ndarray, toward: np.ndarray) -> float:
    """Product of the direction, along which rows have these scalars, and another vector."""
    return float(scalar @ clean @ toward)


def _turned(
    direction: np.ndarray, factors: np.ndarray, predicted: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " K"]:
    """The direction, with the sign that predictions have."""
    return direction * (1.0 if np.sum((factors @ direction) * predicted) >= 0 else -1.0)


def mappings(levels: Float[np.ndarray, " levels"]) -> list[Float[np.ndarray, " levels"]]:
    """List the maps of stars to 0..1 that programs use: by the largest level, and from lowest to largest.

    Examples
    --------
    >>> [one.tolist() for one in mappings(np.array([1.0, 2.0, 4.0, 5.0]))]
    [[0.2, 0.4, 0.8, 1.0], [0.0, 0.25, 0.75, 1.0]]
    """
    by_the_largest = levels / levels[-1]
    if levels.size == 1:
        return [by_the_largest]
    return [by_the_largest, (levels - levels[0]) / (levels[-1] - levels[0])]


def starred(
    value: Float[np.ndarray, " rows"],
    mapped: Float[np.ndarray, " levels"],
    levels: Float[np.ndarray, " levels"],
) -> Float[np.ndarray, " rows"]:
    """Turn ratings in 0..1 to stars, on a straight line between and beyond the levels; NaN stays NaN.

    Examples
    --------
    >>> stars = np.array([1.0, 3.0, 5.0])
    >>> starred(np.array([0.5, 1.1]), mappings(stars)[1], stars)
    array([3. , 5.4])
    """
    if levels.size == 1:
        return np.where(np.isnan(value), np.nan, levels[0])
    slope = (levels[-1] - levels[0]) / (mapped[-1] - mapped[0])
    return levels[0] + slope * (value - mapped[0])
