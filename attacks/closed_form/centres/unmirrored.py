"""Ratings less a number that nobody told, put on the grid: which of the mirror images, and how far shifted.

Beyond the papers. What one client's rows leave open (``attacks.closed_form.centres.centred``) is told, or
not, by three things:

- the grid: a client with both ends of it cannot be shifted;
- the others: a number that all clients take off their ratings has one place on the grid
  (``attacks.closed_form.centres.mirrored``). Where its mirror image is another number one bit is open for the
  whole recording, and where that is whole levels away (half stars up to 5 less 3) so is the place. Where it
  is its own (stars less 3), or each client takes off its own mean, one bit of each client is open: clients
  who rated the same items tell each other's (``attacks.closed_form.centres.sign_agreement``);
- how people rate: more high than low, which tells the last bit. It is an assumption, as in ``likelihood``.

Answers carry their probability, and are given where a client's bit has at least ``SURE`` and the common one
``UPRIGHT``. A shift that is open is not guessed. Where nobody is answered so, what holds either way is:
by how many levels a client's ratings differ (``attacks.base.Scope.SIZES``).

What it assumes: as ``attacks.closed_form.centres.mirrored``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.centres.mirrored import Patterns, centre_of, means, placed
from attacks.closed_form.centres.sign_agreement import Agreement, Evidence, agreement
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import step_of

NOT_READ = "no numbers, or more than one set of them, put its rows on steps of the rating grid"
OPEN_SHIFT = (
    "its ratings are read up to a shift by whole levels: they are less a number that nobody told, "
    "and it has not both the lowest and the highest level"
)
OPEN_MIRROR = (
    "its ratings and their mirror image make the same rows, and what others rated does not say which they "
    "are (probability {:.3f})"
)
MIRRORED = "all ratings and their mirror image make the same rows"


class Answer(NamedTuple):
    """What is said of clients."""

    lowest: Float[np.ndarray, " clients"]  # the rating where w is 0, in stars; NaN where it is not told
    per_step: Float[np.ndarray, " clients"]  # what each w adds, in stars, of either sign
    probability: Float[np.ndarray, " clients"]  # that it is no mirror image; NaN where nothing was read
    reason: tuple[str, ...]  # why a client is not answered; empty where it is
    upright: float  # the part of that probability that is common to all: that the whole is no mirror image
    sizes_alone: bool = False  # whether nothing is told of ratings but the sizes of their differences

    def of(self, some: slice) -> Answer:
        """What is said of some clients."""
        return self._replace(
            lowest=self.lowest[some],
            per_step=self.per_step[some],
            probability=self.probability[some],
            reason=self.reason[some],
        )


class _Shifts(NamedTuple):
    """Where clients' w of 0 may lie on the grid."""

    usable: Bool[np.ndarray, " clients"]  # who takes part
    # steps from its end of the grid under either sign; -1 where it does not fit, or is open
    placing: Int[np.ndarray, "clients 2"]
    known: Int[np.ndarray, " clients"]  # the sign; 0 where both are possible


def unmirrored(found: Patterns, levels: Float[np.ndarray, " levels"], rng: np.random.Generator) -> Answer:
    """Put clients' ratings on the grid where shift and sign are told."""
    if not (found.times > 0).any():
        unknown = np.full(found.times.size, np.nan)
        return Answer(unknown, unknown, unknown, (NOT_READ,) * unknown.size, 0.5)
    shifts = _shifts(found, levels)
    told = agreement(_evidence(found, shifts, levels), rng)
    plus = np.full(shifts.usable.size, np.nan)
    plus[shifts.usable] = told.plus
    return _answer(found, shifts, plus, told, levels)


def _shifts(found: Patterns, levels: Float[np.ndarray, " levels"]) -> _Shifts:
    """By the number that all take off, or by both ends of the grid where there is none."""
    centre, usable = centre_of(found, levels), found.times > 0
    if centre.placed:
        placing = placed(found, centre.value, levels)
        usable &= (placing >= 0).any(axis=1)
    else:
        whole = usable & (found.times * found.reach == levels.size - 1)
        placing = np.where(whole[:, None], 0, -1) * np.ones((1, 2), int)
    both = (placing >= 0).all(axis=1) | (placing < 0).all(axis=1)
    return _Shifts(usable, placing, np.where(both, 0, np.where(placing[:, 0] >= 0, 1, -1)))


def _evidence(found: Patterns, shifts: _Shifts, levels: Float[np.ndarray, " levels"]) -> Evidence:
    """The ratings of those who take part, by number."""
    usable = shifts.usable
    mean = means(found, shifts.placing, levels)
    # whose sign is told has one mean
    mean = np.where(np.isnan(mean), mean[:, ::-1], mean)
    here = usable[found.owner]
    owner = (np.cumsum(usable) - 1)[found.owner[here]]
    # items by number, and those that nobody read left out
    _, item = np.unique(found.item[here], return_inverse=True)
    value = found.above[here] * found.times[found.owner[here]] * step_of(levels) / (levels[-1] - levels[0])
    return Evidence(
        owner=owner,
        item=item,
        value=value,
        mean=mean[usable],
        deviation=_deviation(value, owner, int(usable.sum())),
        known=shifts.known[usable],
        n_levels=levels.size,
    )


def _deviation(
    value: Float[np.ndarray, " ratings"], owner: Int[np.ndarray, " ratings"], n_clients: int
) -> Float[np.ndarray, " clients"]:
    """Standard deviation of each client's ratings, shrunk to that of all by one rating."""
    count = np.bincount(owner, minlength=n_clients)
    mean = np.bincount(owner, value, minlength=n_clients) / np.maximum(count, 1)
    square = np.bincount(owner, (value - mean[owner]) ** 2, minlength=n_clients)
    usual = square.sum() / max(value.size, 1)
    return np.asarray(np.sqrt((square + usual) / (count + 1)))


def _answer(
    found: Patterns,
    shifts: _Shifts,
    plus: Float[np.ndarray, " clients"],
    told: Agreement,
    levels: Float[np.ndarray, " levels"],
) -> Answer:
    """What is said of clients, given the probability of each one's sign."""
    step, known = step_of(levels), shifts.known
    up = np.where(known == 0, plus >= 0.5, known > 0)
    sure = np.where(known == 0, np.maximum(plus, 1 - plus), 1.0)
    shift = np.where(up, shifts.placing[:, 0], shifts.placing[:, 1])
    lowest = np.where(up, levels[0] + shift * step, levels[-1] - shift * step)
    per_step = np.where(up, 1.0, -1.0) * found.times * step
    if told.turned:
        lowest, per_step = levels[0] + levels[-1] - lowest, -per_step
    reasons = tuple(
        _reason(*one, told.upright)
        for one in zip(shifts.usable.tolist(), shift.tolist(), sure.tolist(), strict=True)
    )
    answered = np.array([not reason for reason in reasons], bool)
    if not answered.any() and shifts.usable.any():
        return _sizes(found, shifts, up ^ told.turned, told.upright, levels)
    return Answer(
        lowest=np.where(answered, lowest, np.nan),
        per_step=per_step,
        probability=np.where(shifts.usable, sure * told.upright, np.nan),
        reason=reasons,
        upright=told.upright,
    )


def _sizes(
    found: Patterns,
    shifts: _Shifts,
    up: Bool[np.ndarray, " clients"],
    upright: float,
    levels: Float[np.ndarray, " levels"],
) -> Answer:
    """Ratings of which neither shift nor sign is told: the likelier way round, from that end of the grid."""
    unsaid = np.full(up.size, np.nan)
    return Answer(
        lowest=np.where(shifts.usable, np.where(up, levels[0], levels[-1]), np.nan),
        per_step=np.where(up, 1.0, -1.0) * found.times * step_of(levels),
        probability=unsaid,
        reason=tuple("" if usable else NOT_READ for usable in shifts.usable.tolist()),
        upright=upright,
        sizes_alone=True,
    )


def _reason(usable: bool, shift: int, sure: float, upright: float) -> str:
    """Why a client is not answered, or nothing."""
    if not usable:
        return NOT_READ
    if shift < 0:
        return OPEN_SHIFT
    if upright < BARS.upright:
        return MIRRORED
    return "" if sure >= BARS.sure else OPEN_MIRROR.format(sure)
