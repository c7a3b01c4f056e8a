"""What many clients tell together: what multiplies their rows, what else these hold, what ratings lack.

One client alone may leave each of these open. So the first round of some clients is read under an unknown
scale, and what most of them say is taken for all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.chain_readings import any_reading
from attacks.closed_form.common_scale import Scale, common_scale
from attacks.closed_form.decoding import distance_to_levels, nearest_level
from attacks.closed_form.goodness_of_fit import step_of
from attacks.closed_form.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.readings import Reading, Rows, some_of
from attacks.closed_form.upload_kind import mismatch
from victims.transcript.manifest import Manifest
from victims.transcript.view import Uploads, View

DECLARED = Scale("sum", 1.0, 1.0)
ENOUGH, AT_ONCE = 200, 32  # clients that are asked, and after how many it is seen whether they agree
ABLE, ALL = 6, 0.95  # ratings of a client that can be read alone; the share of those that have to agree
FEWEST_ALONE, SELDOM = 3, 0.1  # clients that must say that ratings are lowered; of these, as many may deny it
MANY = 11  # clients at the lowest level: a quarter of them with one below it would show with probability 0.95
OPEN_OFFSET = (
    "its ratings may as well be higher by the lowest level: nobody here has a rating that tells whether the "
    "program learns them, or numbers from 0 on"
)


class Learned(NamedTuple):
    """What many clients tell together.

    Attributes
    ----------
    shown : bool
        Whether most of the clients that can be read without the scale show one.
    scale : Scale or None
        What multiplies the rows, in units of the manifest's; None where it is not known.
    lowered : float
        What the program takes off every rating, stars.
    settled : bool
        Whether clients show that it is so much; otherwise it is open for all whose ratings allow both.
    pulls : tuple of float
        Multiples of their factors that rows may hold, the likeliest first.
    """

    shown: bool
    scale: Scale | None
    lowered: float
    settled: bool
    pulls: tuple[float, ...]


class Offset(NamedTuple):
    """What the program takes off every rating in stars, and whether clients show that it is so much."""

    lowered: float
    settled: bool


def learned_of(view: View, max_misfit: float) -> Learned:
    """Learn from some clients of a view.

    Parameters
    ----------
    view : View
    max_misfit : float
        Largest misfit at which a client is read.

    Returns
    -------
    Learned
    """
    wrong = mismatch(view)
    missing = 0.0 if wrong is None else -wrong.missing
    declared = view.manifest.upload.regularization
    # a declared regularisation may be none
    pulls = tuple(dict.fromkeys((declared + missing, missing)))
    if view.manifest.weighting == "include-unrated":
        return Learned(False, DECLARED, 0.0, True, pulls)
    asked = _asked(view, max_misfit, pulls[0])
    offset = _offset(view.manifest, asked, max_misfit, pulls[0])
    if offset.lowered:
        asked = _asked(view, max_misfit, pulls[0], offset.lowered)
    shown = _shown_scale(asked)
    return Learned(shown is not None, _known_scale(view.manifest, shown), *offset, pulls)


def untold_offset(view: View, max_misfit: float, pull: float | None = None) -> Offset:
    """What the program takes off every rating, to learn numbers from 0 on: the lowest level, or nothing.

    Who has no rating of the lowest level fits the grid either way, one level too low without it; who has one
    fits with it alone. It is believed where several clients do, and next to none fits without it alone, who
    are those with a rating of the highest level. Where nobody has one it is open: rows of ratings without the
    highest level, and of ratings less the lowest one without that level, are the same.

    Parameters
    ----------
    view : View
    max_misfit : float
        Largest misfit at which a client is read.
    pull : float, optional
        As of ``rows_of``.

    Returns
    -------
    Offset
    """
    return _offset(view.manifest, _asked(view, max_misfit, pull), max_misfit, pull)


class _Asked(NamedTuple):
    """The first round of some clients of a batch, and what its rows say under an unknown scale."""

    uploads: Uploads
    here: Int[np.ndarray, " some"]
    rows: Rows
    found: Reading


def _asked(view: View, max_misfit: float, pull: float | None, lowered: float = 0.0) -> list[_Asked]:
    """Read some clients at a time, of all sizes, until they say the same, or ``ENOUGH``, or a few more."""
    out: list[_Asked] = []
    for batch in view.batches(BATCH_BYTES):
        rows = rows_of(view.manifest, batch.rounds[0], None, lowered, pull)
        n_users = batch.users.size
        n_parts = -(-n_users // AT_ONCE)
        for first in range(n_parts):
            here = np.arange(first, n_users, n_parts)
            part = some_of(rows, here)
            out.append(_Asked(batch.rounds[0], here, part, any_reading(part, view.manifest, max_misfit)))
            if (
                _agreed(out, np.array(view.manifest.rating_levels))
                or sum(one.here.size for one in out) >= ENOUGH
            ):
                return out
    return out


def may_be_lowered(
    value: Float[np.ndarray, "users rows"], levels: Float[np.ndarray, " levels"]
) -> Bool[np.ndarray, " users"]:
    """Whose ratings would all be levels if each were higher by the lowest one.

    Parameters
    ----------
    value : (n_users, n_rows)
        Ratings as read without it, in stars; NaN where not told, 0 where unrated.
    levels : (n_levels,)
        Ascending, in stars.

    Returns
    -------
    (n_users,)

    Examples
    --------
    >>> may_be_lowered(np.array([[1.0, 4.0, np.nan], [1.0, 5.0, 3.0]]), np.arange(1.0, 6.0))
    array([ True, False])
    """
    told = ~np.isnan(value) & (value != 0)
    away = distance_to_levels(nearest_level(np.where(told, value, 0), levels) + levels[0], levels)
    return told.any(axis=1) & ((away < step_of(levels) / 4) | ~told).all(axis=1)


def _agreed(asked: list[_Asked], levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether next to all who can be read are, and say one scale, and several that nothing is lowered."""
    able = np.concatenate([one.rows.item.sum(axis=1) >= ABLE for one in asked])
    answered = np.concatenate([one.found.answered for one in asked])
    shown = _shown_scale(asked)
    told = (
        shown is not None
        and shown.share >= ALL
        and sum(_denying(one, levels) for one in asked) >= FEWEST_ALONE
    )
    return bool(told and (able & answered).sum() >= AT_ONCE / 2 and answered[able].mean() >= ALL)


def _denying(one: _Asked, levels: Float[np.ndarray, " levels"]) -> int:
    """How many fit without the lowest level taken off, and not with it."""
    return int((one.found.answered & ~may_be_lowered(one.found.value, levels)).sum())


def _offset(manifest: Manifest, asked: list[_Asked], max_misfit: float, pull: float | None) -> Offset:
    """The lowest level, or nothing; ``asked`` without it."""
    lowest = float(manifest.rating_levels[0])

    def less(one: _Asked, here: Bool[np.ndarray, " users"]) -> tuple[Rows, Reading]:
        rows = some_of(rows_of(manifest, one.uploads, None, lowest, pull), one.here[here])
        return rows, any_reading(rows, manifest, max_misfit)

    levels = np.array(manifest.rating_levels)
    denying = sum(_denying(one, levels) for one in asked)
    saying = low = hidden = 0  # clients that fit with it alone; at the lowest level; of whom not all is told
    for one in asked:
        answered = one.found.answered
        near_lowest = np.abs(one.found.value - lowest) < step_of(levels) / 2
        low += int((answered & near_lowest.any(axis=1)).sum())
        hidden += int((answered & (np.isnan(one.found.value) & one.rows.item).any(axis=1)).sum())
        if not one.found.answered.all():
            rows, found = less(one, ~one.found.answered)
            # who fits without it fits with it nowhere at the lowest level: that is one above a rating then
            at_lowest = np.abs(found.value - lowest) < max_misfit * lowest
            # nor sends zeros, which predictions clipped to the grid leave of the lowest level
            at_lowest |= rows.item & ~(rows.rows != 0).any(axis=2)
            saying += int((found.answered & at_lowest.any(axis=1)).sum())
    # where rows are clipped, the highest ratings are those that are not told
    return offset_by_votes(lowest, saying, denying, hidden > 0 and low >= MANY)


def offset_by_votes(lowest: float, saying: int, denying: int, unsaid: bool = False) -> Offset:
    """Judge by clients that fit either way alone what the program takes off every rating.

    Parameters
    ----------
    lowest : float
        The lowest level, in stars.
    saying, denying : int
        Clients that fit with it taken off alone, and without that alone.
    unsaid : bool
        Whether somebody would say so by chance, if it were.

    Returns
    -------
    Offset

    Examples
    --------
    >>> offset_by_votes(1.0, saying=5, denying=0), offset_by_votes(1.0, 0, 0)
    (Offset(lowered=1.0, settled=True), Offset(lowered=0.0, settled=False))
    """
    if saying >= FEWEST_ALONE and denying <= SELDOM * saying:
        return Offset(lowest, True)
    return Offset(0.0, denying > saying or (not saying and unsaid))


def _shown_scale(asked: list[_Asked]) -> Scale | None:
    """What multiplies the rows of most who can be read without knowing it."""
    told: list[np.ndarray] = []
    for one in asked:
        here = one.found.answered & np.isfinite(one.found.of_error)
        n_rated = one.rows.item.sum(axis=1)[here]
        told.append(np.stack([1 / (one.found.of_error * one.found.of_factor)[here], n_rated], axis=1))
    return common_scale(*np.concatenate(told).T)


def _known_scale(manifest: Manifest, shown: Scale | None) -> Scale | None:
    """What multiplies the rows: what clients show, else as declared."""
    declared = DECLARED if manifest.scale_known else None
    if shown is None or (declared is not None and shown.like(declared)):
        return declared
    return shown
