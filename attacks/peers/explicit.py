"""One sender's explicit rows of DPMF-Yang in one round: its ratings, and the direction of its factor.

Beyond Yang et al. 2022. A row is e' u + mu v, with u the sender's whole factor at that moment and mu the
ridge of the item (``attacks.peers.sigmoid_grid``). The planes of rows that follow each other meet, as those
of PDMFRec do (``attacks.peers.planes``), and tell mu; what is left is a chain. Where the receiver does not
hold the sender's v, neither holds to the last digit: the rows then count as along one direction, as u moves
little in a pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.uploads.moving_factor import follow
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.peers.planes import meeting_planes
from attacks.peers.sigmoid_grid import ratings_behind


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
