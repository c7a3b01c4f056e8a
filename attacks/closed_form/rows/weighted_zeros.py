"""Rows of unrated items among the others, though nobody declared them: zeros with a weight of their own.

Federated collaborative filtering sends a row for every item, and takes unrated ones for zeros of weight
alpha. All rows of a client have its direction, and along it an unrated row is

    g_j = -alpha sigma s (s h_j) = kappa h_j,        h_j = d . v_j,

with one kappa for all of them, while a rated one is sigma (r_j - s h_j) s. So unrated rows are those that lie
on the one line through the origin that many rows share, whatever alpha, sigma and s; and the others are read
as any rows of one step (``attacks.closed_form.grid.grid_reading``). With what these tell, r = A g + B h,
alpha is -kappa A / B, which must be above 0. Where one level is all that there is (implicit feedback),
whoever is off the line has it, and one such row is enough.

What it assumes: one step, rows in the clear and without noise, a quarter of them of unrated items.

References
----------
M. Ammad-ud-din et al., "Federated Collaborative Filtering for Privacy-Preserving Personalized Recommendation
System", arXiv:1901.09888, Eq. (3) to (6).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.uploads.readings import Numbers

AGREEING, LEAST_ROWS = 0.25, 8  # share of a client's rows, and their number, that must lie on one line
HALF = 0.5  # of the digits of rows, to which they do
ROUGH = 3e-3  # relative size of the line's largest row, to which rows in half precision do
FAR = 0.05  # the same, from which a row is surely off the line
ALIKE = 1e-3  # relative difference of predictions that are one


class Line(NamedTuple):
    """The rows that are the same multiple of what their items predict."""

    here: Bool[np.ndarray, "users rows"]  # nobody's where too few rows agree
    off: Bool[np.ndarray, "users rows"]  # rows that are surely not on it
    kappa: Float[np.ndarray, " users"]  # the multiple


def on_one_line(numbers: Numbers, tolerance: float) -> Line:
    """Find the rows that are the same multiple of what their items predict.

    Examples
    --------
    >>> h = np.linspace(-1, 2, 20)[None]
    >>> g = np.where(np.arange(20) < 12, -0.3 * h, 2 - h)
    >>> one, all_ = np.ones(1), np.ones(g.shape, bool)
    >>> line = on_one_line(Numbers(g, h, all_, one > 0, one, one, one), 1e-8)
    >>> int(line.here.sum()), round(float(line.kappa[0]), 6)
    (12, -0.3)
    """
    g, h = numbers.scalar, numbers.along
    there = numbers.there & (g != 0) & (h != 0)
    ratio = np.sort(np.where(there, g / np.where(h == 0, 1, h), np.inf), axis=1)
    size = there.sum(axis=1)
    width = np.maximum(np.ceil(AGREEING * size), LEAST_ROWS).astype(int)
    kappa = np.full(size.size, np.nan)
    for user in np.flatnonzero(size >= width):
        own, n = ratio[user, : size[user]], width[user] - 1
        spread = own[n:] - own[: own.size - n]
        first = int(spread.argmin())
        kappa[user] = np.median(own[first : first + n + 1])
    line = np.nan_to_num(kappa)[:, None] * h
    # rows of unrated items may be small beside the others: their own size says how exact they are
    largest = np.minimum(*(np.abs(part).max(axis=1, initial=0, where=there) for part in (g, line)))[:, None]
    away = np.where(there & ~np.isnan(kappa)[:, None], np.abs(g - line), np.nan)
    here = away <= tolerance * largest
    # equal predictions are on one line with any equal ratings
    low, high = np.where(here, h, np.inf).min(axis=1), np.where(here, h, -np.inf).max(axis=1)
    told = (here.sum(axis=1) >= width) & (high - low > ALIKE * np.maximum(np.abs(low), np.abs(high)))
    return Line(here & told[:, None], (away > FAR * largest) & told[:, None], kappa)
