"""Other ratings that send the same rows: maps r -> a r + c that leave a client's ratings on the levels.

Rows of an unknown scale tell ratings less a number up to a multiple (a > 0), with the client's factor negated
up to their mirror image (a < 0), and where a program may take something off every rating up to a shift (c).
The levels that a client uses exclude most of these: {1, 2, 3, 4, 5} all of them, {1, 3, 5} not 3, 4 and 5
less 2.5, times 2. What is common to all clients, the number that is taken off and, where rows show one, the
scale, is excluded for all by any of them. What is left decides what is answered (``attacks.base.Scope``):

- nothing: ratings;
- a shift alone: by how many levels ratings differ;
- a mirror image: the sizes of these differences (``attacks.closed_form.centres``);
- another multiple: nothing.

Programs that take off the lowest level, or each client's own lowest one, make shifts that levels alone
exclude: somebody has a rating of the highest level, or of the lowest one, or nobody lacks the latter.

What it assumes: what is taken off lies in the range of the levels, as a mean, their middle or their ends do.
Beyond the papers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import RELATIVE, Reconstruction, Scope, silent_about
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.uploads.readings import Reading
from victims.transcript.view import ITEM

NEAR = 1e-6  # of a step, within which numbers are one
MOST_LEVELS = 32  # of a grid that is searched: finer ones have a rating to tell them apart
SMALL = 1e-3  # of a step, below which a bias is at a bound
ALL_ALIKE = (
    "everybody would have rated everything alike, which the rows of some optimizers say of any ratings"
)
OPEN_OFFSET = (
    "its ratings may as well be higher by the lowest level: nobody here has a rating that tells whether the "
    "program learns them, or numbers from 0 on"
)
OPEN_SCALE = (
    "a multiple of its ratings is on the rating grid, too, and nobody else tells the scale of its rows"
)
OPEN_SHIFT = (
    "its ratings may as well be others, less a number that nobody told: the levels that are used here leave "
    "several such numbers"
)
OPEN_LOWEST = (
    "its ratings may as well be less its own lowest one: everybody here is read with the lowest level, and "
    "it has not the highest one, too, or rates in larger steps"
)


def may_be_lowered(
    value: Float[np.ndarray, "users rows"], levels: Float[np.ndarray, " levels"]
) -> Bool[np.ndarray, " users"]:
    """Whose ratings would all be levels if each were higher by the lowest one.

    Examples
    --------
    >>> may_be_lowered(np.array([[1.0, 4.0, np.nan], [1.0, 5.0, 3.0]]), np.arange(1.0, 6.0))
    array([ True, False])
    """
    told = ~np.isnan(value) & (value != 0)
    away = distance_to_levels(nearest_level(np.where(told, value, 0), levels) + levels[0], levels)
    return told.any(axis=1) & ((away < step_of(levels) / 4) | ~told).all(axis=1)


def in_larger_steps(told: Float[np.ndarray, " n"], levels: Float[np.ndarray, " levels"]) -> bool:
    """Tell whether all ratings of a client are every second level from one of them on, or every third, say.

    Examples
    --------
    >>> stars = np.arange(1.0, 6.0)
    >>> in_larger_steps(np.array([5.0, 1, 3]), stars), in_larger_steps(np.array([5.0, 1, 2]), stars)
    (True, False)
    """
    steps = np.rint((told - told[0]) / step_of(levels)).astype(int)
    return bool(np.gcd.reduce(steps) > 1)


def rows_against_multiples(
    ratings: Float[np.ndarray, " n"], offset: Float[np.ndarray, " rows"], levels: Float[np.ndarray, " levels"]
) -> int:
    """Count how many ratings less the offset the next best multiple leaves off the grid.

    Examples
    --------
    >>> halves = np.arange(1, 11) / 2
    >>> [rows_against_multiples(np.array(r), np.zeros(1), halves) for r in ([1.0, 2.0, 5.0], [2.0, 4.0, 3.5])]
    [0, 1]
    """
    told = ratings[ratings != 0]
    if np.ptp(offset) > 0 or not told.size:
        return int(ratings.size)
    grid = levels - offset[0]
    times = np.unique((grid[grid != 0] / np.unique(told)[:, None]).ravel())
    times = times[np.abs(times - 1) > NEAR]
    off = np.abs(times[:, None, None] * ratings[:, None] - grid).min(axis=2) > NEAR * np.abs(grid).max()
    return int(off.sum(axis=1).min(initial=ratings.size))


def one_multiple(
    ratings: Float[np.ndarray, " n"], offset: Float[np.ndarray, " rows"], levels: Float[np.ndarray, " levels"]
) -> bool:
    """Tell whether no other multiple of ratings less the offset is on the grid.

    Examples
    --------
    >>> halves = np.arange(1, 11) / 2
    >>> [one_multiple(np.array(r), np.zeros(1), halves) for r in ([1.0, 2.0, 5.0], [1.5, 4.0])]
    [False, True]
    """
    if np.ptp(offset) > 0:
        return True
    # nothing times anything is nothing
    return bool(ratings.any()) and rows_against_multiples(ratings, offset, levels) > 0


def other_shifts(
    used: Float[np.ndarray, " some"],
    levels: Float[np.ndarray, " levels"],
    lowered: float = 0.0,
    *,
    higher: bool = True,
    alike: bool = False,
) -> Float[np.ndarray, " n"]:
    """What else may be taken off ratings that are read as these levels.

    Examples
    --------
    >>> stars = np.arange(1.0, 6.0)
    >>> other_shifts(np.array([1.0, 3.0, 5.0]), stars), other_shifts(np.array([1.0, 2.0, 5.0]), stars)
    (array([1.5, 2.5]), array([], dtype=float64))
    """
    first, second = (part.ravel() for part in np.meshgrid(levels, levels))
    times = (second - first) / (used[-1] - used[0])
    near = NEAR * step_of(levels)
    of_length = np.abs(times - 1) <= NEAR
    possible = (times > 0) & ~(of_length & (alike or (not higher and first >= used[0] + near)))
    images = first[:, None] + times[:, None] * (used - used[0])
    on_grid = possible & (distance_to_levels(images, levels) <= near).all(axis=1)
    shift = first - times * (used[0] - lowered)
    within = (shift >= levels[0] - near) & (shift <= levels[-1] + near) | (np.abs(shift) <= near)
    return np.unique(np.round(shift[on_grid & within & (np.abs(shift - lowered) > near)], 9))


def differences_if_all_open(
    found: Reconstruction, open_: Bool[np.ndarray, " users"], reason: str
) -> Reconstruction:
    """Answer differences where the ratings of all who are answered may be shifted; else abstain on those."""
    answered = ~np.isin(found.users, list(found.abstained))
    if answered.any() and open_[answered].all():
        return replace(found, scope=Scope.DIFFERENCES)
    return silent_about(found, answered & open_, reason)


def abstain_if_all_alike(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> Reconstruction:
    """Answer nobody where several clients are all told to have rated everything alike.

    Rows of one length, as optimizers make them, say so wherever a length of the factor happens to allow it.
    """
    if levels.size == 1:
        return found
    named, clients, answers = set[float](), 0, 0
    for block in found.blocks:
        here = (block.kind == ITEM) & np.isfinite(block.value) & (block.value != 0)
        named.update(np.unique(nearest_level(block.value[here], levels)).tolist())
        if len(named) > 1:
            return found
        clients, answers = clients + int(here.any(axis=1).sum()), answers + int(here.sum())
    if clients < BARS.fewest or answers < BARS.alike:
        return found
    return silent_about(found, ~np.isin(found.users, list(found.abstained)), ALL_ALIKE)


def abstain_if_higher(
    found: Reconstruction,
    levels: Float[np.ndarray, " levels"],
    doubted: Bool[np.ndarray, " users"] | None = None,
    *,
    unscaled: bool = False,
) -> Reconstruction:
    """Answer differences alone where all who are answered may have ratings one level higher.

    The declared scale does not tell the two apart. Of several clients somebody has a rating of the highest
    level, or the program learns ratings less the lowest one; which of these, their rows leave open. Nothing
    is known of how many programs do that, so that few clients without such a rating say as little.
    """
    found = abstain_if_all_alike(found, levels)
    told = _ratings_of(found)
    if not told or not all(may_be_lowered(own[None], levels).all() for own in told.values()):
        return found if doubted is None else silent_about(found, doubted, OPEN_OFFSET)
    everybody = np.isin(found.users, list(told))
    claims = [one.probability for one in found.blocks if one.probability is not None]
    if min((np.nanmean(own) for own in claims if np.isfinite(own).any()), default=1.0) < BARS.certain:
        return silent_about(found, everybody, OPEN_OFFSET)  # noise may have left no difference, either
    found = replace(found, scope=Scope.DIFFERENCES)
    none, lowest = np.zeros(1), levels[:1]
    multiples = [
        user
        for user, own in told.items()
        if unscaled
        and not (
            one_multiple(near := nearest_level(own, levels), none, levels)
            and one_multiple(near, lowest, levels)
        )
    ]
    return silent_about(found, np.isin(found.users, multiples), OPEN_SCALE)


def abstain_if_shifted(
    found: Reconstruction,
    levels: Float[np.ndarray, " levels"],
    plain: Bool[np.ndarray, " users"],
    lowered: float,
    *,
    one_scale: bool,
    settled: bool = False,
    alike: bool = False,
) -> Reconstruction:
    """Answer nobody whose ratings ask for no other constant, where another shift explains all of them.

    Where differences alone are answered, a shift that leaves these is no other answer.
    """
    told = _ratings_of(found)
    asked = plain & np.isin(found.users, list(told))
    if not asked.any() or levels.size > MOST_LEVELS:
        return found
    used = [np.unique(nearest_level(told[user], levels)) for user in found.users[asked].tolist()]
    if one_scale:
        used = [np.unique(np.concatenate(used))]
    alike = alike or found.scope in RELATIVE
    left: Float[np.ndarray, " n"] | None = None
    for one in used:
        if one.size < 2:  # a single level tells nothing
            continue
        own = other_shifts(one, levels, lowered, higher=not settled, alike=alike)
        left = own if left is None else left[(np.abs(left[:, None] - own) < NEAR).any(axis=1)]
        if not left.size:
            return found
    return found if left is None else silent_about(found, asked, OPEN_SHIFT)


def abstain_if_own_lowest(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> Reconstruction:
    """Leave open whose ratings may be less their own lowest one, as by min-max scaling of each client.

    Nobody lacks the lowest level then. Where people rate as they like somebody does: the expected number is
    the sum of (1 - f)^n over clients with n ratings, f the share of ratings of that level.
    """
    told, half = _ratings_of(found), step_of(levels) / 2
    if found.scope != Scope.RATINGS_AND_ATTRIBUTES or not told:
        return found
    count, low = np.array([(own.size, (own < levels[0] + half).sum()) for own in told.values()]).T
    if (low == 0).any() or ((1 - low.sum() / count.sum()) ** count).sum() < BARS.expected:
        return found
    coarse = [user for user, own in told.items() if in_larger_steps(own, levels)]
    open_ = [*coarse, *(user for user, own in told.items() if own.max() < levels[-1] - half)]
    found = differences_if_all_open(found, np.isin(found.users, open_), OPEN_LOWEST)
    return silent_about(found, np.isin(found.users, coarse), OPEN_LOWEST)


def implausible(
    bias: Float[np.ndarray, "*shape"], levels: Float[np.ndarray, " levels"]
) -> Bool[np.ndarray, "*shape"]:
    """Find numbers that leave no ratings: those of mirror images, and less than 0 by more than the grid.

    The mirror image of ratings as they are is less the lowest and the highest level together, and less the
    highest alone where the lowest is taken off already. Somebody who rates high has a bias between the two.

    Examples
    --------
    >>> implausible(np.array([3.5, 5.2, -1.0, 6.0, 5.0, -5.0]), np.arange(1.0, 6.0)).tolist()
    [False, False, False, True, True, True]
    """
    small, low, high = SMALL * step_of(levels), levels[0], levels[-1]
    mirrored = (bias > low + high - small) | (np.abs(bias - high) < small)
    return np.asarray(mirrored | (bias < low - high - small))


def without_implausible_biases(found: Reading, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave clients open who are read with a bias that is none, or with one and in larger steps."""
    doubted = found.answered & implausible(found.own_bias, levels)
    for user in np.flatnonzero(found.answered & (found.own_bias != 0) & ~doubted):
        told = found.value[user, np.isfinite(found.value[user])]
        doubted[user] = told.size >= BARS.fewest_ratings and in_larger_steps(told, levels)
    return found._replace(misfit=np.where(doubted, np.nan, found.misfit))


def _ratings_of(found: Reconstruction) -> dict[int, Float[np.ndarray, " ratings"]]:
    """Ratings of each client that is answered, unrated items left out."""
    out = {}
    for block in found.blocks:
        for user, own in zip(block.users.tolist(), block.value, strict=True):
            told = own[np.isfinite(own) & (own != 0)]
            if told.size and user not in found.abstained:
                out[user] = told
    return out
