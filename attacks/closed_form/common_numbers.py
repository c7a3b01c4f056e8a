"""What many clients tell together: what multiplies their rows, what else these hold, what ratings lack.

One client alone may leave each of these open. So the first round of some clients is read under an unknown
scale, and what most of them say is taken for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.centres.untold_centre import ABLE, untold_centre
from attacks.closed_form.clipping.common_bound import NONE, bound_of, not_lowered
from attacks.closed_form.fit.credible import HALF
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.shunned_level import MANY, may_be_lowered
from attacks.closed_form.last_readings import reading_of_rated
from attacks.closed_form.rows.unrated_rows import reading_with_unrated
from attacks.closed_form.uploads.common_scale import FEWEST, Scale, Told, contradicted, shown_scale
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.pull_of_steps import pull_of_hidden_steps, pull_of_steps
from attacks.closed_form.uploads.readings import Reading, Rows, some_of
from attacks.closed_form.uploads.upload_kind import mismatch
from victims.transcript.manifest import Manifest
from victims.transcript.view import Uploads, View

DECLARED = Scale("sum", 1.0, 1.0)
ENOUGH, AT_ONCE = 200, 32  # clients that are asked, and after how many it is seen whether they agree
ALL = 0.95  # of the clients that can be read alone have to agree
FEWEST_ALONE, SELDOM = 3, 0.1  # clients that must say that ratings are lowered; of these, as many may deny it
CONFIRMING = 2  # clients that a scale of fewer than ``FEWEST`` must let be read
MOSTLY = 0.5  # share of the clients with enough ratings that are read: nothing else is looked for


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
    upright : float
        Probability that ratings less ``lowered`` are no mirror image; 1 where nothing says that they may be.
    centred : bool
        Whether ratings are less a number of which each client's rows leave the mirror image open.
    bound : float
        Of the absolute errors, stars: clients clip them to it; infinite where nothing says so.
    """

    shown: bool
    scale: Scale | None
    lowered: float
    settled: bool
    pulls: tuple[float, ...]
    upright: float = 1.0
    centred: bool = False
    bound: float = NONE


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
    told = _told_pull(view)
    # and rows about as long as equal factors look like copies of these
    pulls = tuple(dict.fromkeys((*told, declared + missing, missing, declared)))
    asked = _asked(view, max_misfit, pulls[0])
    levels = np.array(view.manifest.rating_levels)
    if view.manifest.weighting == "include-unrated":
        return Learned(False, DECLARED, *_untold(view, asked, max_misfit, pulls[0]), pulls)
    centre, upright = 0.0, 1.0
    if asked and not _mostly_read(view, asked, max_misfit, pulls[0]):
        n_answered = sum(int(one.found.answered.sum()) for one in asked)
        centre, upright = untold_centre([one.rows for one in asked], n_answered, levels)
    if np.isnan(centre):
        return Learned(False, None, 0.0, True, pulls, centred=True)
    offset = Offset(centre, True) if centre else _untold(view, asked, max_misfit, pulls[0])
    if offset.lowered:
        asked = _asked(view, max_misfit, pulls[0], offset.lowered)
    shown = _shown_scale(asked) or _confirmed_scale(view, asked, max_misfit, pulls[0], offset.lowered)
    known = _known_scale(view.manifest, shown, _told_scales(asked))
    bound = bound_of(((one.found, one.rows) for one in asked), levels)
    return Learned(shown is not None, known, *offset, pulls, upright, bound=bound)


def _told_pull(view: View) -> tuple[float, ...]:
    """The multiple of its factor in every row, where steps between the rows of the first clients tell one."""
    for batch in view.batches(BATCH_BYTES):
        rows = rows_of(view.manifest, batch.rounds[0], None, pull=0.0)
        some = some_of(rows, np.arange(min(ENOUGH, batch.users.size)))
        told = pull_of_steps(some)
        told = pull_of_hidden_steps(some) if told is None else told
        return () if told is None else (told * view.manifest.upload.scale,)
    return ()


def untold_offset(view: View, max_misfit: float, pull: float | None = None) -> Offset:
    """What the program takes off every rating, to learn numbers from 0 on: the lowest level, or nothing.

    Who has no rating of the lowest level fits the grid either way, one level too low without it; who has one
    fits with it alone. It is believed where several clients do, and next to none fits without it alone, who
    are those with a rating of the highest level. Where nobody has one it is open: rows of ratings without the
    highest level, and of ratings less the lowest one without that level, are the same, however many they are.

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
    return _untold(view, _asked(view, max_misfit, pull), max_misfit, pull)


def _untold(view: View, asked: list[_Asked], max_misfit: float, pull: float | None) -> Offset:
    """By clients as they are read under an unknown scale; where next to none is, under the declared one."""
    if view.manifest.scale_known and sum(int(one.found.answered.sum()) for one in asked) < MANY:
        known = _asked(view, max_misfit, pull, scale=DECLARED)
        return _offset(view.manifest, known, max_misfit, pull, DECLARED)
    return _offset(view.manifest, asked, max_misfit, pull)


class _Asked(NamedTuple):
    """A first round of some clients of a batch, and what its rows say under an unknown scale."""

    uploads: Uploads
    here: Int[np.ndarray, " some"]
    rows: Rows
    found: Reading


def _mostly_read(view: View, asked: list[_Asked], max_misfit: float, pull: float) -> bool:
    """Whether clients with enough ratings are read as they are, some with the scale that the others show.

    Who uses every second level alone is read with that scale only: half of its ratings fit the grid, too.
    """
    if _share_read(asked) >= MOSTLY:
        return True
    shown = _shown_scale(asked) or _confirmed_scale(view, asked, max_misfit, pull)
    return shown is not None and _share_read(_asked(view, max_misfit, pull, scale=shown)) >= MOSTLY


def _share_read(asked: list[_Asked]) -> float:
    """Of the clients with enough ratings; 1 where there is none."""
    able = np.concatenate([one.rows.item.sum(axis=1) >= ABLE for one in asked])
    answered = np.concatenate([one.found.answered for one in asked])
    return float(answered[able].mean()) if able.any() else 1.0


def reading_of(manifest: Manifest) -> Callable[[Rows, Manifest, float], Reading]:
    """Choose how rows are read.

    Parameters
    ----------
    manifest : Manifest
        Says whether rows of unrated items are among them.

    Returns
    -------
    callable
        From rows, the manifest and the largest misfit at which a client is answered to a reading.
    """
    return reading_with_unrated if manifest.weighting == "include-unrated" else reading_of_rated


def _asked(
    view: View, max_misfit: float, pull: float | None, lowered: float = 0.0, scale: Scale | None = None
) -> list[_Asked]:
    """Read some clients at a time, of all sizes, until they say the same, or ``ENOUGH``, or a few more."""
    out: list[_Asked] = []
    reading, levels = reading_of(view.manifest), np.array(view.manifest.rating_levels)
    for batch in view.batches(BATCH_BYTES):
        left = np.ones(batch.users.size, bool)
        for uploads in batch.rounds:  # of each client the first in which it takes part
            rows = rows_of(view.manifest, uploads, scale, lowered, pull)
            new = np.flatnonzero(left & rows.item.any(axis=1))
            left[new] = False
            n_parts = -(-new.size // AT_ONCE)
            for first in range(n_parts):
                here = new[first::n_parts]
                part = some_of(rows, here)
                out.append(_Asked(uploads, here, part, reading(part, view.manifest, max_misfit)))
                if _agreed(out, levels) or sum(one.here.size for one in out) >= ENOUGH:
                    return out
            if not left.any():
                break
    return out


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


def _denying(one: _Asked, levels: Float[np.ndarray, " levels"], bound: float = NONE) -> int:
    """How many fit without the lowest level taken off alone, and with no bias of their own instead of it."""
    alone = one.found.answered & (one.found.own_bias == 0)
    shown = ~may_be_lowered(one.found.value, levels) | not_lowered(one.found, one.rows, bound, levels)
    return int((alone & shown).sum())


def _offset(
    manifest: Manifest,
    asked: list[_Asked],
    max_misfit: float,
    pull: float | None,
    scale: Scale | None = None,
) -> Offset:
    """The lowest level, or nothing; ``asked`` without it."""
    lowest = float(manifest.rating_levels[0])

    def less(one: _Asked, here: Bool[np.ndarray, " users"]) -> tuple[Rows, Reading]:
        rows = some_of(rows_of(manifest, one.uploads, scale, lowest, pull), one.here[here])
        return rows, reading_of(manifest)(rows, manifest, max_misfit)

    levels = np.array(manifest.rating_levels)
    bound = bound_of(((one.found, one.rows) for one in asked), levels)
    denying = sum(_denying(one, levels, bound) for one in asked)
    # clients that fit with it alone; at the lowest level; of whom not all is told, and all
    saying = low = hidden = shown = 0
    for one in asked:
        answered = one.found.answered
        near_lowest = np.abs(one.found.value - lowest) < step_of(levels) / 2
        whole = answered & ~(np.isnan(one.found.value) & one.rows.item).any(axis=1)
        hidden += int((answered & ~whole).sum())
        shown += int(whole.sum())
        low += int((answered & near_lowest.any(axis=1)).sum())
        if not one.found.answered.all():
            rows, found = less(one, ~one.found.answered)
            # who fits without it fits with it nowhere at the lowest level: that is one above a rating then
            at_lowest = np.abs(found.value - lowest) < max_misfit * lowest
            # nor sends zeros, which predictions clipped to the grid leave of the lowest level
            at_lowest |= rows.item & ~(rows.rows != 0).any(axis=2)
            saying += int((found.answered & at_lowest.any(axis=1)).sum())
    # where rows are clipped, the highest ratings are those that are not told; of as many they would be
    return offset_by_votes(lowest, saying, denying, hidden > 0 and low >= MANY > shown)


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
    return shown_scale(_told_scales(asked))


def _told_scales(asked: list[_Asked]) -> Told:
    """What multiplies the rows of each who is read without knowing it."""
    told = [np.zeros((0, 3))]
    for one in asked:
        found = one.found
        here = found.answered & np.isfinite(found.of_error)
        of_all = 1 / (found.of_error * found.of_factor), one.rows.item.sum(axis=1), found.steps
        told.append(np.stack([part[here] for part in of_all], axis=1))
    return Told(*np.concatenate(told).T)


def _confirmed_scale(
    view: View, asked: list[_Asked], max_misfit: float, pull: float, lowered: float = 0.0
) -> Scale | None:
    """What multiplies the rows of one or two who can be read without knowing it, if it lets others be read.

    Where few clients have a rating off the whole stars of a grid of halves, the others' ratings may as well
    be half as large; to the last digit, no other scale than the program's puts them on the grid.
    """
    scale, n_rated, _ = _told_scales(asked)
    read = sum(int(_exactly(one).sum()) for one in asked)
    for value, size in zip(scale, n_rated, strict=True) if 0 < scale.size < FEWEST else ():
        for one in (Scale("sum", value, 1.0), Scale("mean", value * size, 1.0)):
            again = _asked(view, max_misfit, pull, lowered, one)
            if sum(int(_exactly(part).sum()) for part in again) >= read + CONFIRMING:
                return one
    return None


def _exactly(one: _Asked) -> Bool[np.ndarray, " users"]:
    """Who has enough ratings and is read to the last digits."""
    return (
        one.found.answered
        & (one.found.misfit <= one.rows.precision**HALF)
        & (one.rows.item.sum(axis=1) >= ABLE)
    )


def _known_scale(manifest: Manifest, shown: Scale | None, told: Told) -> Scale | None:
    """What multiplies the rows: what clients show, else as declared, unless they show that it is not so."""
    declared = DECLARED if manifest.scale_known and not contradicted(DECLARED, told) else None
    if shown is None or (declared is not None and shown.like(declared)):
        return declared
    return shown
