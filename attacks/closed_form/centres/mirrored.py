"""The number that all clients take off their ratings, which nobody told: its place on the grid.

Beyond the papers. What one client's rows leave open (``attacks.closed_form.centres.centred``), a shift by
whole levels and the sign, others tell: a number that all clients take off their ratings has one place on the
grid where all of them fit. Where its mirror image is another number (the mean of all ratings, 3.53, and 2.47)
every client has the sign of all others, and one bit is open for the whole recording
(``attacks.closed_form.centres.unmirrored``).

What it assumes: as ``attacks.closed_form.centres.centred``; of the scale of the rows, that clients whose
ratings leave multiples open share it with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from attacks.closed_form.centres.centred import Centred, even, read_centred
from attacks.closed_form.centres.sign_agreement import log_odds_upright, mean_and_variance
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.uploads.common_scale import ALIKE, common_scale
from attacks.closed_form.uploads.readings import Rows, some_of

FEWEST, ALL = 3, 0.95  # clients that must be read, and the share of them that one number has to fit
ONE = (
    1  # client with room for no other number is enough where all have one sign: the others confirm its digits
)
NEAR = 1e-3  # of a step, within which two numbers are one
ABLE = 6  # ratings of a client that can be read alone
FEWEST_TOLD = 3  # clients that must be read so
BEYOND, FEWEST_BEYOND = 0.1, 2  # clients that the grid is too short for, of those told, and how many at least
OWN_MIRROR = 1e-2  # of a step, within which a number's mirror image is not told from it by rows


class Patterns(NamedTuple):
    """Ratings of some clients up to a shift and a mirror image, as ``Centred`` has them."""

    owner: Int[np.ndarray, " ratings"]  # w of each rating
    item: Int[np.ndarray, " ratings"]  # w of each rating
    above: Int[np.ndarray, " ratings"]  # w of each rating
    start: Float[np.ndarray, " clients"]  # r - m where w is 0, or m - r, in stars; for w in lowest terms
    times: Int[np.ndarray, " clients"]  # what w is to be multiplied by; 0 where it is not told
    reach: Int[np.ndarray, " clients"]  # largest w, in lowest terms; number of ratings
    n_rated: Int[np.ndarray, " clients"]  # largest w, in lowest terms; number of ratings


class Centre(NamedTuple):
    """The number that all clients take off their ratings, in stars; NaN where there is none in common.

    ``placed`` says whether one number, or it and its mirror image, fits, and no other.
    """

    value: float
    placed: bool


def patterns_of(read: list[tuple[Centred, np.ndarray]], n_levels: int) -> Patterns:
    """Gather what was read of all clients."""
    owner, item, above = [], [], []
    first = 0
    for found, index in read:
        user, row = np.nonzero(found.above >= 0)
        owner.append(user + first)
        item.append(np.broadcast_to(index, found.above.shape)[user, row])
        above.append(found.above[user, row])
        first += found.told.size
    start, told, reach, scale = (
        np.concatenate(parts)
        for parts in zip(
            *((one.start, one.told, one.reach, 1 / _product(one)) for one, _ in read), strict=True
        )
    )
    owners = np.concatenate(owner)
    count = np.bincount(owners, minlength=told.size)
    times = _times(told, reach, scale, count, n_levels)
    return Patterns(owners, np.concatenate(item), np.concatenate(above), start, times, reach, count)


def _product(found: Centred) -> Float[np.ndarray, " users"]:
    """A B, which is one over the scale of the rows; 1 where nothing is told."""
    return np.where(found.told, found.numbers.prod(axis=1), 1.0)


def _times(
    told: Bool[np.ndarray, " clients"],
    reach: Int[np.ndarray, " clients"],
    scale: Float[np.ndarray, " clients"],
    count: Int[np.ndarray, " clients"],
    n_levels: int,
) -> Int[np.ndarray, " clients"]:
    """What patterns are to be multiplied by: 1 where no multiple has room on the grid, else as scales say."""
    most = np.where(told, (n_levels - 1) // np.maximum(reach, 1), 0)
    alone = most == 1
    shared = common_scale(scale[alone], count[alone].astype(float))
    if shared is None:
        return alone.astype(int)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.nan_to_num(np.sqrt(scale / shared.of(np.maximum(count, 1).astype(float))))
    times = np.rint(ratio).astype(int)
    return np.where(told & (np.abs(ratio - times) <= ALIKE * ratio) & (times <= most), times, 0)


def centre_of(found: Patterns, levels: Float[np.ndarray, " levels"]) -> Centre:
    """Find the number that all clients take off their ratings."""
    step, usable = step_of(levels), np.flatnonzero(found.times > 0)
    nothing = Centre(np.nan, False)
    if usable.size < FEWEST:
        return nothing
    total = np.bincount(found.owner, found.above, minlength=found.n_rated.size)[usable]
    mean = found.start[usable] + step * total / found.n_rated[usable]
    if np.mean(np.abs(mean) * found.times[usable] < NEAR * step) >= ALL:
        return nothing
    shift = np.arange(levels.size)
    times = found.times[usable, None]
    there = shift + times * found.reach[usable, None] < levels.size
    up = levels[0] + shift * step - times * found.start[usable, None]
    both = np.concatenate([up, levels[0] + levels[-1] - up], axis=1)
    value = both[np.concatenate([there, there], axis=1)]
    client = np.repeat(np.arange(usable.size), 2 * there.sum(axis=1))
    value, client = value[np.argsort(value)], client[np.argsort(value)]
    group = np.concatenate([[0], np.cumsum(np.diff(value) > NEAR * step)])
    pairs = np.unique(np.stack([group, client]), axis=1)[0]
    fitting = np.bincount(pairs)
    middle = np.bincount(group, value) / np.bincount(group)
    best = fitting.max()
    if best < max(ALL * usable.size, FEWEST):
        return nothing
    lower = float(middle[fitting == best][0])
    mirror = levels[0] + levels[-1] - lower
    near = (np.abs(middle - lower) < NEAR * step) | (np.abs(middle - mirror) < NEAR * step)
    told_apart = has_other_mirror(lower, levels)
    fewest = ONE if told_apart else FEWEST
    placed = bool(np.all(fitting[~near] <= min(best - fewest, ALL * usable.size)))
    return Centre(lower, placed and bool(told_apart or mirror - lower < NEAR * step))


def has_other_mirror(centre: float, levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether rows tell a centre from its mirror image, up to whole levels: all clients have one sign then.

    Examples
    --------
    >>> stars = np.arange(1.0, 6.0)
    >>> has_other_mirror(3.53, stars), has_other_mirror(3.0, stars), has_other_mirror(3.5, stars)
    (True, False, False)
    """
    halves = 2 * (centre - float(levels[0])) / step_of(levels)
    return abs(halves - round(halves)) > 2 * OWN_MIRROR


def higher_centre(
    found: Patterns, centre: float, levels: Float[np.ndarray, " levels"]
) -> tuple[float, float]:
    """Choose between a centre and its mirror image, where these differ, by how high the ratings are then."""
    placing = placed(found, centre, levels)
    there = (placing >= 0).any(axis=1)
    mean = means(found, placing, levels)
    own = np.where(placing[:, 0] >= 0, mean[:, 0], mean[:, 1])
    count = np.where(there, found.n_rated, 0).astype(float)
    odds = float(
        log_odds_upright(*mean_and_variance(np.where(there, own, 0.0)[:, None], count), levels.size)[0]
    )
    chosen = centre if odds >= 0 else levels[0] + levels[-1] - centre
    return float(chosen), float(expit(abs(odds)))


def placed(
    found: Patterns, centre: float, levels: Float[np.ndarray, " levels"]
) -> Int[np.ndarray, "clients 2"]:
    """Place each client's w of 0 on the grid, where a number is taken off, under either sign."""
    step = step_of(levels)
    start = found.times * found.start
    place = np.stack([centre + start - levels[0], levels[-1] + start - centre], axis=1) / step
    near = np.rint(place)
    fits = (np.abs(place - near) < 2 * NEAR) & (near >= 0) & (found.times > 0)[:, None]
    fits &= near + (found.times * found.reach)[:, None] < levels.size
    return np.where(fits, near, -1).astype(int)


def means(
    found: Patterns, placing: Int[np.ndarray, "clients 2"], levels: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, "clients 2"]:
    """Mean rating of each client under either sign."""
    total = np.bincount(found.owner, found.above, minlength=found.n_rated.size)
    above = found.times * total / np.maximum(found.n_rated, 1)
    mean = (placing + above[:, None]) / (levels.size - 1) - 0.5
    return np.where(placing >= 0, mean * np.array([1.0, -1.0]), np.nan)


def untold_centre(
    asked: Sequence[Rows], n_answered: int, levels: Float[np.ndarray, " levels"]
) -> tuple[float, float]:
    """Say what the program takes off every rating where that is neither nothing nor the lowest level."""
    plain = (0.0, 1.0)
    if not even(levels) or any((rows.offset != 0).any() for rows in asked):
        return plain
    no_items = np.zeros((1, 1), int)
    read = [(read_centred(rows, levels), no_items) for rows in asked]
    told = sum(int(found.told.sum()) for found, _ in read)
    if told < max(FEWEST_TOLD, 2 * n_answered):
        return plain
    beyond = sum(_beyond(rows, found, levels) for rows, (found, _) in zip(asked, read, strict=True))
    if beyond >= max(FEWEST_BEYOND, BEYOND * told):  # steps finer than the grid's, not less a number
        return plain
    found = patterns_of(read, levels.size)
    centre = centre_of(found, levels)
    mirror = levels[0] + levels[-1] - centre.value
    if any(abs(one - usual) < NEAR for one in (centre.value, mirror) for usual in (0.0, levels[0])):
        return plain
    if centre.placed and has_other_mirror(centre.value, levels):
        return higher_centre(found, centre.value, levels)
    return np.nan, 1.0


def _beyond(rows: Rows, found: Centred, levels: Float[np.ndarray, " levels"]) -> int:
    """How many whom the grid does not tell are told by one that goes on, over more levels than it has."""
    longer = levels[0] + step_of(levels) * np.arange(2 * levels.size - 1)
    if not even(longer):
        return 0
    open_ = ~found.told & (rows.item.sum(axis=1) >= ABLE)
    again = read_centred(some_of(rows, open_), longer, linear=True)
    return int((again.told & (again.reach >= levels.size)).sum())
