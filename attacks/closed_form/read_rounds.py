"""What each round of some clients says: one step, or what several rounds tell together.

A round is read as one step or several first (``attacks.closed_form.gaps.gaps``). Who is read in none of them
is asked for momentum (rows that hold a share of those of the round before).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.asked_clients import reading_of
from attacks.closed_form.clipping.common_bound import bound_of, within_bound
from attacks.closed_form.common_numbers import Learned
from attacks.closed_form.fit.arbiter import without_multiples
from attacks.closed_form.gaps.gaps import reading_with_gaps
from attacks.closed_form.uploads.carried_rows import without_carried
from attacks.closed_form.uploads.item_rows import rows_of
from attacks.closed_form.uploads.own_factors import factors_of
from attacks.closed_form.uploads.readings import (
    Reading,
    fits_better,
    fitting_better,
    narrowed,
    some_of,
    spread_over,
)
from victims.transcript.manifest import Manifest
from victims.transcript.view import Uploads

EXACT = 1e-6  # misfit of an answer that owes nothing to rounding

Round = tuple[Reading, Float[np.ndarray, "users K"]]  # what is read of one, and clients' factors


def read_rounds(
    manifest: Manifest, uploads: Sequence[Uploads], learned: Learned, max_misfit: float
) -> list[Round]:
    """Read all rounds of some clients."""
    rounds = [_best(manifest, one, learned, max_misfit) for one in uploads]
    return _with_carried(manifest, uploads, rounds, learned, max_misfit)


def _best(manifest: Manifest, uploads: Uploads, learned: Learned, max_misfit: float) -> Round:
    """Read a round, with the next multiple of the factors taken off where one leaves clients unread."""
    reading = reading_of(manifest)
    best, factors = None, np.zeros((0, 0))
    for pull in learned.pulls:
        rows = rows_of(manifest, uploads, learned.scale, learned.lowered, pull)
        found = reading(rows, manifest, max_misfit)
        if learned.shown:
            found = without_multiples(found, np.array(manifest.rating_levels))
        own = factors_of(rows, found)
        levels = np.array(manifest.rating_levels)
        # who is read with a known scale alone was not asked before
        bound = min(learned.bound, bound_of([(found, rows)], levels))
        found = within_bound(found, rows, bound, levels)
        if best is None:
            best, factors = found, own
        else:
            factors = np.where(fits_better(best, found)[:, None], own, factors)
            best = fitting_better(best, found)
        if best.answered.all():
            break
    assert best is not None
    return best, factors


def _with_carried(
    manifest: Manifest,
    uploads: Sequence[Uploads],
    rounds: list[Round],
    learned: Learned,
    max_misfit: float,
) -> list[Round]:
    """Read who was read in no round exactly, where rows hold a share of those of the round before."""
    rest = ~np.any([part.answered & (part.misfit < EXACT) for part, _ in rounds], axis=0)
    if manifest.weighting == "include-unrated" or not rest.any():
        return rounds
    out = list(rounds)
    for number in range(1, len(uploads)):
        before, now = uploads[number - 1], uploads[number]
        if now.round != before.round + 1:
            continue
        both = [rows_of(manifest, one, None, learned.lowered, learned.pulls[0]) for one in (now, before)]
        here = np.flatnonzero(rest & now.same_list(before))
        width = min(one.rows.shape[1] for one in both)
        clean, told = without_carried(*(narrowed(some_of(one, here), width) for one in both))
        if not told.any():
            continue
        found = reading_with_gaps(some_of(clean, told), manifest, max_misfit)
        out[number] = _taken_up(rounds[number], found, here[told])
    return out


def _taken_up(old: Round, found: Reading, here: Int[np.ndarray, " some"]) -> Round:
    """The reading of some clients by several rounds among those of all by one, where it fits better."""
    part, own = old
    found = spread_over(found, np.isin(np.arange(part.misfit.size), here))
    value = np.full(part.value.shape, np.nan)
    value[:, : found.value.shape[1]] = found.value
    found = found._replace(value=value)
    return fitting_better(part, found), np.where(fits_better(part, found)[:, None], np.nan, own)
