"""The last step of a client's chain, whose length no step after it tells.

A chain (``attacks.closed_form.uploads.moving_factor``) takes the length of the factor at each step from how
the next step turns it. At the last step it is what the steps before say, |u'| = shrink |u| |d + beta w|,
which is wrong where the factor was put back onto a ball after the step (Hu & Fang 2023), and inexact where
one link tells no shrink. The other steps tell A and B to the last digit; with a and b a row's error and
prediction at the length that was thought, a rating of the last step is

    r = a t + b / t + offset,

with one t for all rows of the step. Tried are the length of the step before and the longest one, as on a
ball, shrinks that other clients show, and every t that puts the row with the largest error on a level.
Ratings are those that all t name which put the whole step on the grid, as exactly as the other steps.

What it assumes: as ``attacks.closed_form.uploads.moving_factor``, and exact rows.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.grid.grid_reading import read
from attacks.closed_form.uploads.fitted_chain import chain_of
from attacks.closed_form.uploads.moving_factor import Chain
from attacks.closed_form.uploads.readings import Numbers, Reading, Rows, fitting_better, some_of, spread_over
from victims.transcript.manifest import Manifest

ASKED = 8  # clients with most ratings, who say whether the others are tried; as many tell them what they know


def with_last_step(best: Reading, rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read clients of several steps again by all steps but the last."""
    levels = np.array(manifest.rating_levels)
    n_rated = rows.item.sum(axis=1)
    most = np.argsort(-n_rated, kind="stable")
    open_ = exact_ratings(best, rows, levels)[most] < n_rated[most]
    others = most[~open_ & (best.steps[most] > 2)][:ASKED]
    most = most[open_]
    for part in (most[:ASKED], most[ASKED:]):
        if not part.size:
            break
        asked = np.isin(np.arange(best.misfit.size), [*part, *others])
        some = spread_over(_by_the_others(some_of(rows, asked), manifest, max_misfit), asked)
        if not some.answered[part].any():
            break
        more = exact_ratings(some, rows, levels) > exact_ratings(best, rows, levels)
        best = fitting_better(best, some._replace(misfit=np.where(more, some.misfit, np.nan)), more)
    return best


def exact_ratings(
    best: Reading, rows: Rows, levels: Float[np.ndarray, " levels"]
) -> Int[np.ndarray, " users"]:
    """Count the ratings of each client that are on the grid to half of their digits."""
    exact = distance_to_levels(best.value, levels) <= rows.precision**BARS.half * step_of(levels)
    return np.where(best.answered, (exact & rows.item).sum(axis=1), 0)


def _by_the_others(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """The steps that another follows, where they are exact, and the last one by their numbers."""
    levels = np.array(manifest.rating_levels)
    chain = chain_of(rows)
    there = rows.item & (chain.step >= 0)
    whole = (chain.whole | (there.sum(axis=1) == rows.item.sum(axis=1))) & (chain.n_steps > 1)
    last = there & (chain.step == chain.n_steps[:, None] - 1)
    others = there & ~last
    none = np.zeros(whole.size)
    known = Numbers(chain.scalar, chain.along, others, whole, chain.n_steps.astype(float), none, none)
    found = read(known, rows, manifest, max_misfit)
    off = np.where(others, distance_to_levels(found.value, levels), 0.0).max(axis=1, initial=0.0)
    exact = found.answered & (off <= rows.precision**BARS.half * step_of(levels))
    value = found.value.copy()
    lengths = _lengths(chain, rows, last, np.where(exact, np.abs(found.of_factor), 0.0))
    for user in np.flatnonzero(exact):
        here = last[user]
        error = found.of_error[user] * chain.scalar[user, here]
        predicted = found.of_factor[user] * chain.along[user, here]
        near = max(BARS.closer * off[user], rows.precision**BARS.half * step_of(levels))
        value[user, here] = ratings_of_step(
            error, predicted, rows.offset[user, here], lengths[user], levels, near
        )
    return found._replace(value=value, misfit=np.where(exact, found.misfit, np.nan))


def _lengths(
    chain: Chain,
    rows: Rows,
    last: Bool[np.ndarray, "users rows"],
    unit: Float[np.ndarray, " users"],
) -> Float[np.ndarray, "users 5"]:
    """Likely t: as thought; the length before; the longest of any client; the usual shrink and the least.

    A factor is ``unit`` long, B, over the root of beta, which is a row's scalar over its length.
    """
    size = np.linalg.norm(rows.rows, axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        length = np.where(chain.step >= 0, unit[:, None] * size / np.abs(chain.scalar), 0.0)
    before = chain.step == chain.n_steps[:, None] - 2
    now, then = ((length * which).max(axis=1) for which in (last, before))
    longest = (length * ~last).max(initial=0.0)
    telling = chain.n_steps > 2  # two links
    shrink = chain.shrink[telling & (unit > 0)]
    usual, least = (np.median(shrink), shrink.max()) if shrink.size else (1.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        tried = [np.ones(now.size), now / then, now / longest, chain.shrink / usual, chain.shrink / least]
    return np.stack(tried, axis=1)


def ratings_of_step(
    error: Float[np.ndarray, " n"],
    predicted: Float[np.ndarray, " n"],
    offset: Float[np.ndarray, " n"],
    lengths: Float[np.ndarray, " m"],
    levels: Float[np.ndarray, " levels"],
    near: float,
) -> Float[np.ndarray, " n"]:
    """Find the ratings of one step whose factor is some unknown number times as long as was thought.

    Examples
    --------
    >>> u, v = np.array([1.0, 2.0]), np.array([[0.7, 0.5], [0.1, 1.2], [1.1, 0.4]])
    >>> r = np.array([3.0, 5.0, 4.0])
    >>> e, p = (r - v @ u) / 1.02, v @ u * 1.02
    >>> ratings_of_step(e, p, np.zeros(3), np.ones(1), np.arange(1.0, 6.0), 1e-8).round(6)
    array([3., 5., 4.])
    """
    tried = np.concatenate([lengths, _of_levels(error, predicted, offset, levels, near)])
    value = error * tried[:, None] + predicted / tried[:, None] + offset
    off = distance_to_levels(value, levels).max(axis=1)
    good = value[off <= near]
    if not len(good) and off[0] <= BARS.exact * step_of(
        levels
    ):  # a shrink that is next to none, and not told
        return value[0]
    named = nearest_level(good, levels)
    told = len(good) > 0 and (named == named[:1]).all()
    return good[0] if told else np.full(error.shape, np.nan)


def _of_levels(
    error: np.ndarray, predicted: np.ndarray, offset: np.ndarray, levels: np.ndarray, near: float
) -> Float[np.ndarray, " tried"]:
    """Each t > 0 that puts the row with the largest error on a level; none where others meet by accident."""
    chance = 2 * levels.size * (2 * near / step_of(levels)) ** (error.size - 1)
    row = np.abs(error).argmax()
    if chance > BARS.accident_of_many or error[row] == 0:
        return np.zeros(0)
    rating = levels - offset[row]
    inside = rating**2 - 4 * error[row] * predicted[row]
    root = np.sqrt(inside[inside >= 0])
    found = np.concatenate([rating[inside >= 0] + root, rating[inside >= 0] - root]) / (2 * error[row])
    return found[found > 0]
