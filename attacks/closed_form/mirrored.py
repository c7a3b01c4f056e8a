"""Ratings less a number that nobody told, put on the grid: which of the mirror images, and how far shifted.

Beyond the papers. What one client's rows leave open (``attacks.closed_form.centred``) is told, or not, by
three things:

- the grid: a client with both ends of it cannot be shifted;
- the others: a number that all clients take off their ratings has one place on the grid where all of them
  fit. Where its mirror image is another number (the mean of all ratings, 3.53, and 2.47) every client has the
  sign of all others, and one bit is open for the whole recording. Where it is its own (stars less 3), or each
  client takes off its own mean, one bit of each client is open: clients who rated the same items tell each
  other's (``attacks.closed_form.sign_agreement``);
- how people rate: more high than low, which tells the last bit. It is an assumption, as in ``likelihood``.

Answers carry their probability, and are given where a client's bit has at least ``SURE`` and the common one
``UPRIGHT``. A shift that is open is not guessed.

What it assumes: as ``attacks.closed_form.centred``; of the scale of the rows, that clients whose ratings
leave multiples open share it with the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from attacks.closed_form.centred import Centred
from attacks.closed_form.common_scale import ALIKE, common_scale
from attacks.closed_form.goodness_of_fit import step_of
from attacks.closed_form.sign_agreement import (
    Evidence,
    agreement,
    log_odds_upright,
    mean_and_variance,
)

SURE, UPRIGHT = 0.99, 0.95  # probabilities of a client's sign, and of the way round of all, to be answered
FEWEST, ALL = 3, 0.95  # clients that must be read, and the share of them that one number has to fit
NEAR = 1e-3  # of a step, within which two numbers are one
OWN_MIRROR = 1e-2  # of a step, within which a number's mirror image is not told from it by rows
NOT_READ = "no numbers, or more than one set of them, put its rows on steps of the rating grid"
OPEN_SHIFT = (
    "its ratings are read up to a shift by whole levels: they are less a number of its own that nobody told, "
    "and it has not both the lowest and the highest level"
)
OPEN_MIRROR = (
    "its ratings and their mirror image make the same rows, and what others rated does not say which they "
    "are (probability {:.3f})"
)
OPEN_FOR_ALL = (
    "all ratings and their mirror image make the same rows, and the mean of the ratings does not say clearly "
    "which they are (probability {:.3f} of the higher ones)"
)


class Patterns(NamedTuple):
    """Ratings of some clients up to a shift and a mirror image, as ``Centred`` has them.

    Attributes
    ----------
    owner, item, above : (n_ratings,) int
        w of each rating.
    start : (n_clients,)
        r - m where w is 0, or m - r, in stars; for w in lowest terms.
    times : (n_clients,) int
        What w is to be multiplied by; 0 where it is not told.
    reach, n_rated : (n_clients,) int
        Largest w, in lowest terms; number of ratings.
    """

    owner: Int[np.ndarray, " ratings"]
    item: Int[np.ndarray, " ratings"]
    above: Int[np.ndarray, " ratings"]
    start: Float[np.ndarray, " clients"]
    times: Int[np.ndarray, " clients"]
    reach: Int[np.ndarray, " clients"]
    n_rated: Int[np.ndarray, " clients"]


class Centre(NamedTuple):
    """The number that all clients take off their ratings, in stars; NaN where there is none in common.

    ``placed`` says whether one number, or it and its mirror image, fits, and no other.
    """

    value: float
    placed: bool


class Answer(NamedTuple):
    """What is said of clients.

    Attributes
    ----------
    lowest : (n_clients,)
        The rating where w is 0, in stars; NaN where it is not told.
    per_step : (n_clients,)
        What each w adds, in stars, of either sign.
    probability : (n_clients,)
        That it is no mirror image; NaN where nothing was read.
    reason : tuple of str
        Why a client is not answered; empty where it is.
    upright : float
        The part of that probability that is common to all: that the whole is no mirror image.
    """

    lowest: Float[np.ndarray, " clients"]
    per_step: Float[np.ndarray, " clients"]
    probability: Float[np.ndarray, " clients"]
    reason: tuple[str, ...]
    upright: float

    def of(self, some: slice) -> Answer:
        """What is said of some clients."""
        told = (self.lowest[some], self.per_step[some], self.probability[some])
        return Answer(*told, self.reason[some], self.upright)


def patterns_of(read: list[tuple[Centred, np.ndarray]], n_levels: int) -> Patterns:
    """Gather what was read of all clients.

    Parameters
    ----------
    read : list of (Centred, (users, rows) int)
        Of each batch, with the items of its rows.
    n_levels : int
        Of the grid.

    Returns
    -------
    Patterns
        Clients in the order of the batches.
    """
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
    """Find the number that all clients take off their ratings.

    Parameters
    ----------
    found : Patterns
    levels : (n_levels,)
        An even grid, ascending, in stars.

    Returns
    -------
    Centre
        The lower of two mirror images. None where each takes off its own mean: those may be equal.
    """
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
    placed = bool(np.all(fitting[~near] <= min(best - FEWEST, ALL * usable.size)))
    return Centre(lower, placed)


def has_other_mirror(centre: float, levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether rows tell a centre from its mirror image, up to whole levels: all clients have one sign then.

    Parameters
    ----------
    centre : float
        In stars.
    levels : (n_levels,)
        An even grid, ascending, in stars.

    Returns
    -------
    bool

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
    """Choose between a centre and its mirror image, where these differ, by how high the ratings are then.

    Parameters
    ----------
    found : Patterns
    centre : float
        In stars.
    levels : (n_levels,)
        An even grid, ascending, in stars.

    Returns
    -------
    centre : float
    probability : float
        0.5 to 1.
    """
    placing = _placed(found, centre, levels)
    there = (placing >= 0).any(axis=1)
    mean = _means(found, placing, levels)
    own = np.where(placing[:, 0] >= 0, mean[:, 0], mean[:, 1])
    count = np.where(there, found.n_rated, 0).astype(float)
    odds = float(
        log_odds_upright(*mean_and_variance(np.where(there, own, 0.0)[:, None], count), levels.size)[0]
    )
    chosen = centre if odds >= 0 else levels[0] + levels[-1] - centre
    return float(chosen), float(expit(abs(odds)))


def unmirrored(found: Patterns, levels: Float[np.ndarray, " levels"], rng: np.random.Generator) -> Answer:
    """Put clients' ratings on the grid where shift and sign are told.

    Parameters
    ----------
    found : Patterns
    levels : (n_levels,)
        An even grid, ascending, in stars.
    rng : numpy.random.Generator
        Draws signs.

    Returns
    -------
    Answer
    """
    step, span = step_of(levels), levels[-1] - levels[0]
    centre = centre_of(found, levels)
    usable = found.times > 0
    if not usable.any():
        nothing = np.full(usable.size, np.nan)
        return Answer(nothing, nothing, nothing, (NOT_READ,) * usable.size, 0.5)
    if centre.placed:
        placing = _placed(found, centre.value, levels)
        usable &= (placing >= 0).any(axis=1)
    else:
        whole = usable & (found.times * found.reach == levels.size - 1)
        placing = np.where(whole[:, None], 0, -1) * np.ones((1, 2), int)
    both = (placing >= 0).all(axis=1) | (placing < 0).all(axis=1)
    known = np.where(both, 0, np.where(placing[:, 0] >= 0, 1, -1))
    mean = _means(found, placing, levels)
    # whose sign is told has one mean
    mean = np.where(np.isnan(mean), mean[:, ::-1], mean)
    some = np.flatnonzero(usable)
    here = usable[found.owner]
    number = np.cumsum(usable) - 1
    # items by number, and those that nobody read left out
    _, item = np.unique(found.item[here], return_inverse=True)
    value = found.above[here] * found.times[found.owner[here]] * step / span
    owner = number[found.owner[here]]
    told = agreement(
        Evidence(
            owner, item, value, mean[some], _deviation(value, owner, some.size), known[some], levels.size
        ),
        rng,
    )
    plus = np.full(usable.size, np.nan)
    plus[some] = told.plus
    up = np.where(known == 0, plus >= 0.5, known > 0)
    sure = np.where(known == 0, np.maximum(plus, 1 - plus), 1.0)
    shift = np.where(up, placing[:, 0], placing[:, 1])
    lowest = np.where(up, levels[0] + shift * step, levels[-1] - shift * step)
    per_step = np.where(up, 1.0, -1.0) * found.times * step
    if told.turned:
        lowest, per_step = levels[0] + levels[-1] - lowest, -per_step
    reasons = tuple(
        _reason(*one, told.upright)
        for one in zip(usable.tolist(), shift.tolist(), sure.tolist(), strict=True)
    )
    answered = np.array([not reason for reason in reasons], bool)
    return Answer(
        np.where(answered, lowest, np.nan),
        per_step,
        np.where(usable, sure * told.upright, np.nan),
        reasons,
        told.upright,
    )


def _reason(usable: bool, shift: int, sure: float, upright: float) -> str:
    """Why a client is not answered, or nothing."""
    if not usable:
        return NOT_READ
    if shift < 0:
        return OPEN_SHIFT
    if upright < UPRIGHT:
        return OPEN_FOR_ALL.format(upright)
    return "" if sure >= SURE else OPEN_MIRROR.format(sure)


def _placed(
    found: Patterns, centre: float, levels: Float[np.ndarray, " levels"]
) -> Int[np.ndarray, "clients 2"]:
    """Steps from its end of the grid to each client's w of 0, under either sign; -1 where it does not fit."""
    step = step_of(levels)
    start = found.times * found.start
    place = np.stack([centre + start - levels[0], levels[-1] + start - centre], axis=1) / step
    near = np.rint(place)
    fits = (np.abs(place - near) < 2 * NEAR) & (near >= 0) & (found.times > 0)[:, None]
    fits &= near + (found.times * found.reach)[:, None] < levels.size
    return np.where(fits, near, -1).astype(int)


def _means(
    found: Patterns, placing: Int[np.ndarray, "clients 2"], levels: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, "clients 2"]:
    """Mean rating of each client under either sign, share of the grid, less 1/2; NaN where not placed."""
    total = np.bincount(found.owner, found.above, minlength=found.n_rated.size)
    above = found.times * total / np.maximum(found.n_rated, 1)
    mean = (placing + above[:, None]) / (levels.size - 1) - 0.5
    return np.where(placing >= 0, mean * np.array([1.0, -1.0]), np.nan)


def _deviation(
    value: Float[np.ndarray, " ratings"], owner: Int[np.ndarray, " ratings"], n_clients: int
) -> Float[np.ndarray, " clients"]:
    """Standard deviation of each client's ratings, shrunk to that of all by one rating."""
    count = np.bincount(owner, minlength=n_clients)
    mean = np.bincount(owner, value, minlength=n_clients) / np.maximum(count, 1)
    square = np.bincount(owner, (value - mean[owner]) ** 2, minlength=n_clients)
    usual = square.sum() / max(value.size, 1)
    return np.asarray(np.sqrt((square + usual) / (count + 1)))
