"""Some clients' first rounds, read under an unknown scale or a given one: what each of them says alone.

``attacks.closed_form.common_numbers`` takes what most of them say for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.centres.mirrored import ABLE
from attacks.closed_form.clipping.common_bound import NONE, not_lowered
from attacks.closed_form.fit.arbiter import without_open_multiples
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.images import may_be_lowered, without_implausible_biases
from attacks.closed_form.gaps.gaps import reading_with_gaps
from attacks.closed_form.rows.unrated_rows import reading_with_unrated
from attacks.closed_form.uploads.common_scale import Scale, Told, shown_scale
from attacks.closed_form.uploads.fitted_chain import chain_of
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.readings import Reading, Rows, some_of
from victims.transcript.manifest import Manifest
from victims.transcript.view import Uploads, View

ENOUGH, AT_ONCE = 200, 32  # clients that are asked, and after how many it is seen whether they agree
ALL = 0.95  # of the clients that can be read alone have to agree
FEWEST_ALONE = 3  # clients that must say that ratings are lowered, or are not


class Asked(NamedTuple):
    """A first round of some clients of a batch, and what its rows say under an unknown scale."""

    uploads: Uploads  # of the batch
    here: Int[np.ndarray, " some"]  # places of the clients in it
    rows: Rows  # of these clients
    found: Reading


def asked_of(
    view: View, max_misfit: float, pull: float | None, lowered: float = 0.0, scale: Scale | None = None
) -> list[Asked]:
    """Read some clients at a time, of all sizes, until they say the same, or ``ENOUGH``, or a few more."""
    out: list[Asked] = []
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
                out.append(Asked(uploads, here, part, reading(part, view.manifest, max_misfit)))
                if _agreed(out, levels) or sum(one.here.size for one in out) >= ENOUGH:
                    return out
            if not left.any():
                break
    return out


def _agreed(asked: list[Asked], levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether next to all who can be read are, and say one scale, and several that nothing is lowered."""
    able = np.concatenate([one.rows.item.sum(axis=1) >= ABLE for one in asked])
    answered = np.concatenate([one.found.answered for one in asked])
    shown = scale_shown(asked)
    told = (
        shown is not None
        and shown.share >= ALL
        and sum(deniers(one, levels) for one in asked) >= FEWEST_ALONE
    )
    return bool(told and (able & answered).sum() >= AT_ONCE / 2 and answered[able].mean() >= ALL)


def deniers(one: Asked, levels: Float[np.ndarray, " levels"], bound: float = NONE) -> int:
    """Count who fit without the lowest level taken off alone, and with no bias of their own instead of it."""
    alone = one.found.answered & (one.found.own_bias == 0)
    shown = ~may_be_lowered(one.found.value, levels) | not_lowered(one.found, one.rows, bound, levels)
    return int((alone & shown).sum())


def share_read(asked: list[Asked]) -> float:
    """Find which share of the clients with enough ratings is read."""
    able = np.concatenate([one.rows.item.sum(axis=1) >= ABLE for one in asked])
    answered = np.concatenate([one.found.answered for one in asked])
    return float(answered[able].mean()) if able.any() else 1.0


def exactly(one: Asked) -> Bool[np.ndarray, " users"]:
    """Find who has enough ratings and is read to the last digits."""
    return (
        one.found.answered
        & (one.found.misfit <= one.rows.precision**BARS.half)
        & (one.rows.item.sum(axis=1) >= ABLE)
    )


def scale_shown(asked: list[Asked]) -> Scale | None:
    """Find what multiplies the rows of most who can be read without knowing it."""
    return shown_scale(told_scales(asked))


def told_scales(asked: list[Asked]) -> Told:
    """Find what multiplies the rows of each who is read without knowing it."""
    told = [np.zeros((0, 3))]
    for one in asked:
        found = one.found
        here = found.answered & np.isfinite(found.of_error)
        scale = 1 / (found.of_error * found.of_factor)[here]  # of the others either may be 0
        told.append(np.stack([scale, one.rows.item.sum(axis=1)[here], found.steps[here]], axis=1))
    return Told(*np.concatenate(told).T)


def reading_of(manifest: Manifest) -> Callable[[Rows, Manifest, float], Reading]:
    """Choose how rows are read."""
    return reading_with_unrated if manifest.weighting == "include-unrated" else reading_of_rated


def reading_of_rated(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read each client as what its rows fit best, whose rows leave nothing else open."""
    best = reading_with_gaps(rows, manifest, max_misfit)
    if len(manifest.rating_levels) == 1 or not rows.rows.shape[1]:
        return best
    levels = np.array(manifest.rating_levels)
    best = without_implausible_biases(_without_uneven_last(best, rows), levels)
    return without_open_multiples(best, rows, levels)


def _without_uneven_last(best: Reading, rows: Rows) -> Reading:
    """Leave open the ratings of a last minibatch of another size, where rows are rounded.

    A mean over it has another scale, and rounded rows leave room for one of them on the grid by accident.
    """
    asked = best.answered & ~best.declared & (best.misfit > BARS.rounded)
    open_ = np.flatnonzero(asked & (best.steps > 1) & (best.steps < rows.item.sum(axis=1)))
    if not open_.size:
        return best
    step = chain_of(some_of(rows, open_)).step
    value = best.value.copy()
    for user, own in zip(open_, step, strict=True):
        sizes = np.bincount(own[own >= 0])
        if sizes.size > 1 and sizes[-1] != np.bincount(sizes[:-1]).argmax():
            value[user, own == sizes.size - 1] = np.nan
    return best._replace(value=value)
