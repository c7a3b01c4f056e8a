"""Implicit feedback with confidences: ratings weigh errors, and the target of every rated item is 1.

After Hu, Koren and Volinsky, and federated after them, a row of one step is

    sigma c_k (1 - s h_k) s d,    c_k = 1 + alpha r_k,    h_k = d . v_k,

so that its length along the common direction d is g_k = c_k (A + B h_k) with one A and B for all rows of a
client, and one alpha for all clients, or one of each. The ratings of three rows make a quadratic equation of
alpha, whatever A and B are, and these follow from two of them. c is known up to a factor: r + 1 and 2 r have
other alphas, so that clients with both ends of the grid tell alpha. Where all of them tell the same,
everybody's ratings follow with it, as exactly as theirs; where they differ nobody else is read. Any two
weights, and often three (1, 2 and 3 as levels 1, 3 and 5), are of some alpha: four levels are asked for.

What it assumes: one step, rows in the clear and without noise; alpha above 0, which is common to clients
where all who tell it say so.

References
----------
Y. Hu, Y. Koren, C. Volinsky 2008, doi:10.1109/ICDM.2008.22, Eq. (3).
M. Ammad-ud-din et al., "Federated Collaborative Filtering for Privacy-Preserving Personalized Recommendation
System", arXiv:1901.09888, Eq. (3) to (6).
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import accidental, step_of
from attacks.closed_form.uploads.readings import Numbers

FEWEST_TELLING, FEWEST = 8, 6  # rows of who tells alpha, and of who is read with it
ASKED = 20  # clients who may tell it
TELLING = 4  # levels among their ratings, or all that there are
FEWEST_AGREEING, ALIKE = 2, 1e-3  # clients who tell one alpha, and how nearly it is one
MOST_LEVELS = 12  # of a grid, the ratings of three rows being tried
ANCHORS = 4  # choices of rows whose ratings are tried
RIVAL, EXACT = 10.0, 1e-6  # times the best misfit, which may be rounding, within which others are as good
ALL = 0.9  # of those who tell alpha, that have to tell the same for it to be that of others
DIGITS = 1e-9  # of predictions, which must differ by more
FAR, BEST = 2.0, 20  # times chance, by which any number may be off; tries that are looked at again


class Weighed(NamedTuple):
    """Ratings that weigh errors."""

    value: Float[np.ndarray, "users rows"]  # in stars; NaN where not told
    misfit: Float[np.ndarray, " users"]  # of 1; NaN of who is not read
    allowed: Float[np.ndarray, " users"]  # that chance would leave with so many rows


class _Fit(NamedTuple):
    """The best ratings of one client, what they ask for, and whether no others are as good."""

    ratings: Float[np.ndarray, " rows"]
    misfit: float
    alpha: float
    tried: int
    alone: bool


def weighed_by_ratings(numbers: Numbers, levels: Float[np.ndarray, " levels"]) -> Weighed:
    """Read the ratings of clients that weigh errors with them, those of unrated items left out."""
    n_users = len(numbers.scalar)
    out = Weighed(np.full(numbers.there.shape, np.nan), np.full(n_users, np.nan), np.zeros(n_users))
    rows = [np.flatnonzero(there) for there in numbers.there]
    if not 3 <= levels.size <= MOST_LEVELS:
        return out
    telling = _telling(numbers, rows, levels)
    if len(telling) < FEWEST_AGREEING:
        return out
    alphas = _alphas_of(telling, n_users)
    # rows of others are as exact as those of who tell alpha: with another one they are off the grid by more
    left = max(fit.misfit for fit in telling.values())
    for user, own in enumerate(rows):
        alpha = float(alphas[user])
        if own.size < FEWEST or np.isnan(alpha):
            continue
        fit = _fit(numbers.scalar[user, own], numbers.along[user, own], levels, alpha)
        by_chance = accidental(np.array([own.size - 2]), fit.tried)[0]
        out.allowed[user] = min(by_chance, RIVAL * max(left, EXACT))
        if fit.alone and fit.misfit <= out.allowed[user]:
            out.value[user, own], out.misfit[user] = fit.ratings, fit.misfit
    return out


def _alphas_of(telling: dict[int, _Fit], n_users: int) -> Float[np.ndarray, " users"]:
    """The alpha of each client: what nearly all tell who do, or what it tells as another does; else NaN."""
    told = np.array([fit.alpha for fit in telling.values()])
    like = np.abs(told[:, None] / told - 1) < ALIKE
    most = like[like.sum(axis=1).argmax()]
    if most.sum() >= FEWEST_AGREEING and most.mean() >= ALL:
        return np.full(n_users, np.median(told[most]))
    out = np.full(n_users, np.nan)
    out[list(telling)] = np.where(like.sum(axis=1) >= FEWEST_AGREEING, told, np.nan)
    return out


def _telling(
    numbers: Numbers, rows: list[np.ndarray], levels: Float[np.ndarray, " levels"]
) -> dict[int, _Fit]:
    """Clients with both ends of the grid, who tell alpha."""
    out: dict[int, _Fit] = {}
    asked = 0
    for user, own in enumerate(rows):
        if own.size < FEWEST_TELLING:
            continue
        if (asked := asked + 1) > ASKED:
            break
        fit = _fit(numbers.scalar[user, own], numbers.along[user, own], levels, None)
        used = set(fit.ratings.tolist())
        telling = {levels[0], levels[-1]} <= used and len(used) >= min(TELLING, levels.size)
        if fit.alone and telling and fit.misfit <= accidental(np.array([own.size - 3]), fit.tried)[0]:
            out[user] = fit
    return out


def _fit(
    g: Float[np.ndarray, " rows"],
    h: Float[np.ndarray, " rows"],
    levels: Float[np.ndarray, " levels"],
    alpha: float | None,
) -> _Fit:
    """Try all ratings of a few rows, which tell A and B, and alpha where it is not given."""
    parts = [
        _judged(g, h, anchors, levels, None if alpha is None else np.array([alpha]))
        for anchors in _anchors(h, 3 if alpha is None else 2)
    ]
    misfit, alphas, ratings = (np.concatenate([part[number] for part in parts]) for number in range(3))
    tried = max(sum(part[3] for part in parts), 1)
    if not misfit.size:
        return _Fit(np.full(g.size, np.nan), np.inf, np.nan, tried, alone=False)
    best = int(misfit.argmin())
    near = ratings[misfit <= RIVAL * max(misfit[best], EXACT)]
    alone = bool((near == ratings[best]).all())
    return _Fit(ratings[best], float(misfit[best]), float(alphas[best]), tried, alone=alone)


def _anchors(h: Float[np.ndarray, " rows"], size: int) -> list[np.ndarray]:
    """Rows whose ratings are tried: as far apart in what their items predict as can be, and others."""
    order = np.argsort(h)
    ends = np.linspace(0, h.size - 1, size).round().astype(int)
    return [
        order[np.clip(ends + shift * (1 - 2 * (ends > h.size / 2)), 0, h.size - 1)]
        for shift in range(ANCHORS)
    ]


def _judged(
    g: Float[np.ndarray, " rows"],
    h: Float[np.ndarray, " rows"],
    anchors: np.ndarray,
    levels: Float[np.ndarray, " levels"],
    alpha: Float[np.ndarray, " one"] | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Misfit, alpha and ratings of all rows under the best that anchors may have, and how many were tried."""
    tried = np.array(list(product(levels, repeat=anchors.size)))
    own, at = g[anchors], h[anchors]
    if alpha is None:
        tried, alphas = _alphas(own, at, tried)
    else:
        alphas = np.full(len(tried), alpha[0])
    low, high = int(at.argmin()), int(at.argmax())
    of_ends = own[[low, high]] / (1 + alphas[:, None] * tried[:, [low, high]])
    slope = (of_ends[:, 1] - of_ends[:, 0]) / (at[high] - at[low])
    plain = of_ends[:, :1] + slope[:, None] * (h - at[low])
    value = (g / plain - 1) / alphas[:, None]
    away = np.minimum(distance_to_levels(value, levels) / (step_of(levels) / 4), FAR)
    misfit = np.where(np.isfinite(away).all(axis=1), away.mean(axis=1), np.inf)
    # lengths of rows that predict the same of all items are any numbers on one line
    left = misfit * alphas * step_of(levels) / 4
    varies = np.abs(of_ends[:, 1] - of_ends[:, 0]) > RIVAL * (left + DIGITS) * np.abs(of_ends).max(axis=1)
    misfit = np.where(varies, misfit, np.inf)
    keep = np.argsort(misfit)[:BEST]
    return misfit[keep], alphas[keep], nearest_level(value[keep], levels), misfit.size


def _alphas(
    g: Float[np.ndarray, " three"], h: Float[np.ndarray, " three"], ratings: Float[np.ndarray, "tried three"]
) -> tuple[np.ndarray, np.ndarray]:
    """Ratings of three rows, and each alpha above 0 under which g / (1 + alpha r) is a line in h."""
    weight = g * (np.roll(h, -1) - np.roll(h, -2))
    next_, last = np.roll(ratings, -1, axis=1), np.roll(ratings, -2, axis=1)
    square, middle, rest = (
        (next_ * last) @ weight,
        (next_ + last) @ weight,
        np.full(len(ratings), weight.sum()),
    )
    root = np.sqrt(middle**2 - 4 * square * rest)
    both = np.stack([(-middle + root) / (2 * square), (-middle - root) / (2 * square)], axis=1)
    some, which = np.nonzero(np.isfinite(both) & (both > 0))
    return ratings[some], both[some, which]
