"""What many clients tell together: what multiplies their rows, what else these hold, what ratings lack.

One client alone may leave each of these open. So the first round of some clients is read under an unknown
scale (``attacks.closed_form.asked_clients``), and what most of them say is taken for all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from attacks.base import RELATIVE, Reconstruction, silent_about
from attacks.closed_form.asked_clients import (
    ENOUGH,
    FEWEST_ALONE,
    Asked,
    asked_of,
    deniers,
    exactly,
    reading_of,
    scale_shown,
    share_read,
    told_scales,
)
from attacks.closed_form.centres.mirrored import untold_centre
from attacks.closed_form.clipping.common_bound import NONE, bound_of
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.images import abstain_if_higher
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.common_scale import FEWEST, Scale, contradicted
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.pull_of_steps import pull_of_hidden_steps, pull_of_steps
from attacks.closed_form.uploads.readings import Reading, Rows, some_of
from attacks.closed_form.uploads.reduction import NOISES
from attacks.closed_form.uploads.upload_kind import mismatch
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

DECLARED = Scale("sum", 1.0, 1.0)
SELDOM = 0.1  # of the clients that say that ratings are lowered, as many may deny it
CONFIRMING = 2  # clients that a scale of fewer than ``FEWEST`` must let be read
SEVERAL = 3  # rows, which have one direction by no accident
MAX_MISFIT = 0.25  # of the clients that are asked, as ``undeclared`` allows
MOSTLY = 0.5  # share of the clients with enough ratings that are read: nothing else is looked for


class Learned(NamedTuple):
    """What many clients tell together."""

    shown: bool  # whether most of the clients that can be read without the scale show one
    scale: Scale | None  # what multiplies the rows, in units of the manifest's; None where it is not known
    lowered: float  # what the program takes off every rating, stars
    # whether clients show that it is so much; otherwise it is open for all whose ratings allow both
    settled: bool
    pulls: tuple[float, ...]  # multiples of their factors that rows may hold, the likeliest first
    # probability that ratings less ``lowered`` are no mirror image; 1 where nothing says that they may be
    upright: float = 1.0
    # whether ratings are less a number of which each client's rows leave the mirror image open
    centred: bool = False
    # of the absolute errors, stars: clients clip them to it; infinite where nothing says so
    bound: float = NONE
    # whether most clients send rows of unrated items, as zeros, among those of rated ones
    with_zeros: bool = False
    by_declared: bool = False  # whether ``scale`` is the declared one


class Offset(NamedTuple):
    """What the program takes off every rating in stars, and whether clients show that it is so much."""

    lowered: float
    settled: bool


def learned_of(view: View, max_misfit: float) -> Learned:
    """Learn from some clients of a view."""
    pulls = pulls_of(view)
    asked = asked_of(view, max_misfit, pulls[0])
    levels = np.array(view.manifest.rating_levels)
    if view.manifest.weighting == "include-unrated":
        return Learned(False, DECLARED, *_untold(view, asked, max_misfit, pulls[0]), pulls, by_declared=True)
    centre, upright = 0.0, 1.0
    if asked and not _mostly_read(view, asked, max_misfit, pulls[0]):
        n_answered = sum(int(one.found.answered.sum()) for one in asked)
        centre, upright = untold_centre([one.rows for one in asked], n_answered, levels)
    if np.isnan(centre):
        return Learned(False, None, 0.0, True, pulls, centred=True)
    offset = Offset(centre, True) if centre else _untold(view, asked, max_misfit, pulls[0])
    if offset.lowered:
        asked = asked_of(view, max_misfit, pulls[0], offset.lowered)
    shown = scale_shown(asked) or _confirmed_scale(view, asked, max_misfit, pulls[0], offset.lowered)
    told, declared = told_scales(asked), declared_scale(view.manifest)
    if declared is not None and contradicted(declared, told):
        declared = None
    # what clients show, else as declared, unless they show that it is not so
    by_declared = declared is not None and (shown is None or shown.like(declared))
    known = declared if by_declared else shown
    bound = bound_of(((one.found, one.rows) for one in asked), levels)
    zeros = _with_zeros(asked)
    return Learned(
        shown is not None,
        known,
        *offset,
        pulls,
        upright,
        bound=bound,
        with_zeros=zeros,
        by_declared=by_declared,
    )


def declared_scale(manifest: Manifest) -> Scale | None:
    """Find what is declared to multiply rows: means over all ratings of a client have become sums."""
    if not manifest.scale_known:
        return None
    size = manifest.rule.batch_size
    if manifest.rule.reduction != "mean" or not isinstance(size, int):
        return DECLARED
    return DECLARED._replace(reduction="mean", batch=float(size))


def pulls_of(view: View) -> tuple[float, ...]:
    """Find which multiples of their factors rows may hold."""
    wrong = mismatch(view)
    missing = 0.0 if wrong is None else -wrong.missing
    declared = view.manifest.upload.regularization
    # a declared regularisation may be none
    told = _told_pull(view)
    if declared and _parallel_without(view, missing, declared):
        return (missing,)
    # and rows about as long as equal factors look like copies of these
    return tuple(dict.fromkeys((*told, declared + missing, missing, declared)))


def _parallel_without(view: View, missing: float, declared: float) -> bool:
    """Whether rows of most clients have one direction to the last digit, and not where more is taken off."""
    plain, more = (_first_rows(view, pull) for pull in (missing, declared + missing))
    if plain is None or more is None:
        return False
    alone, pulled = (one_step(rows).across <= PARALLEL * rows.precision for rows in (plain, more))
    several = plain.item.sum(axis=1) >= SEVERAL
    return bool(several.any() and (alone & ~pulled)[several].mean() > MOSTLY)


def _first_rows(view: View, pull: float) -> Rows | None:
    """Of the first clients, in the first round of their batch; None where nothing is seen."""
    batch = next(iter(view.batches(BATCH_BYTES)), None)
    if batch is None:
        return None
    rows = rows_of(view.manifest, batch.rounds[0], None, pull=pull)
    return some_of(rows, np.arange(min(ENOUGH, batch.users.size)))


def _with_zeros(asked: list[Asked]) -> bool:
    """Whether rows of unrated items are told among those of most clients that are read."""
    read = sum(int(one.found.answered.sum()) for one in asked)
    zeros = sum(int((one.found.answered & (one.found.value == 0).any(axis=1)).sum()) for one in asked)
    return zeros >= max(FEWEST_ALONE, MOSTLY * read)


def _told_pull(view: View) -> tuple[float, ...]:
    """The multiple of its factor in every row, where steps between the rows of the first clients tell one."""
    rows = _first_rows(view, 0.0)
    if rows is None:
        return ()
    told = pull_of_steps(rows)
    told = pull_of_hidden_steps(rows) if told is None else told
    return () if told is None else (told * view.manifest.upload.scale,)


def untold_offset(view: View, max_misfit: float, pull: float | None = None) -> Offset:
    """What the program takes off every rating, to learn numbers from 0 on: the lowest level, or nothing.

    Who has no rating of the lowest level fits the grid either way, one level too low without it; who has one
    fits with it alone. It is believed where several clients do, and next to none fits without it alone, who
    are those with a rating of the highest level. Where nobody has one it is open: rows of ratings without the
    highest level, and of ratings less the lowest one without that level, are the same, however many they are.
    """
    return _untold(view, asked_of(view, max_misfit, pull), max_misfit, pull)


def abstain_if_lowered(found: Reconstruction, view: View) -> Reconstruction:
    """Answer nobody where clients show that the program learns ratings less the lowest level."""
    manifest = view.manifest
    found = abstain_if_higher(found, np.array(view.manifest.rating_levels))
    answered = ~np.isin(found.users, list(found.abstained))
    added = all(entry.get("name") in NOISES for entry in manifest.defenses)
    plain = manifest.weighting == "observed-only" and added
    if not plain or answered.all() or not answered.any() or found.scope in RELATIVE:
        return found
    lowered = untold_offset(view, MAX_MISFIT).lowered
    if not lowered:
        return found
    reason = (
        f"clients' rows say that the program learns ratings less {lowered:g}, which this attack does not "
        "know; undeclared reads them"
    )
    return silent_about(found, answered, reason)


def _untold(view: View, asked: list[Asked], max_misfit: float, pull: float | None) -> Offset:
    """By clients as they are read under an unknown scale; where next to none is, under the declared one."""
    declared = declared_scale(view.manifest)
    if declared is not None and sum(int(one.found.answered.sum()) for one in asked) < BARS.many:
        known = asked_of(view, max_misfit, pull, scale=declared)
        return _offset(view.manifest, known, max_misfit, pull, declared)
    return _offset(view.manifest, asked, max_misfit, pull)


def _mostly_read(view: View, asked: list[Asked], max_misfit: float, pull: float) -> bool:
    """Whether clients with enough ratings are read as they are, some with the scale that the others show.

    Who uses every second level alone is read with that scale only: half of its ratings fit the grid, too.
    """
    if share_read(asked) >= MOSTLY:
        return True
    shown = scale_shown(asked) or _confirmed_scale(view, asked, max_misfit, pull)
    return shown is not None and share_read(asked_of(view, max_misfit, pull, scale=shown)) >= MOSTLY


def _offset(
    manifest: Manifest,
    asked: list[Asked],
    max_misfit: float,
    pull: float | None,
    scale: Scale | None = None,
) -> Offset:
    """The lowest level, or nothing; ``asked`` without it."""
    lowest = float(manifest.rating_levels[0])

    def less(one: Asked, here: Bool[np.ndarray, " users"]) -> tuple[Rows, Reading]:
        rows = some_of(rows_of(manifest, one.uploads, scale, lowest, pull), one.here[here])
        return rows, reading_of(manifest)(rows, manifest, max_misfit)

    levels = np.array(manifest.rating_levels)
    bound = bound_of(((one.found, one.rows) for one in asked), levels)
    denying = sum(deniers(one, levels, bound) for one in asked)
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
    return offset_by_votes(lowest, saying, denying, hidden > 0 and low >= BARS.many > shown)


def offset_by_votes(lowest: float, saying: int, denying: int, unsaid: bool = False) -> Offset:
    """Judge by clients that fit either way alone what the program takes off every rating.

    Examples
    --------
    >>> offset_by_votes(1.0, saying=5, denying=0), offset_by_votes(1.0, 0, 0)
    (Offset(lowered=1.0, settled=True), Offset(lowered=0.0, settled=False))
    """
    if saying >= FEWEST_ALONE and denying <= SELDOM * saying:
        return Offset(lowest, True)
    return Offset(0.0, denying > saying or (not saying and unsaid))


def _confirmed_scale(
    view: View, asked: list[Asked], max_misfit: float, pull: float, lowered: float = 0.0
) -> Scale | None:
    """What multiplies the rows of one or two who can be read without knowing it, if it lets others be read.

    Where few clients have a rating off the whole stars of a grid of halves, the others' ratings may as well
    be half as large; to the last digit, no other scale than the program's puts them on the grid.
    """
    scale, n_rated, _ = told_scales(asked)
    read = sum(int(exactly(one).sum()) for one in asked)
    for value, size in zip(scale, n_rated, strict=True) if 0 < scale.size < FEWEST else ():
        for one in (Scale("sum", value, 1.0), Scale("mean", value * size, 1.0)):
            again = asked_of(view, max_misfit, pull, lowered, one)
            if sum(int(exactly(part).sum()) for part in again) >= read + CONFIRMING:
                return one
    return None
