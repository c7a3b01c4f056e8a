"""What rows say of clients whom nothing else reads: rows that were clipped, or made up."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from attacks.closed_form.chains.pulled_group import reading_of_pulled_group
from attacks.closed_form.chains.pulled_steps import reading_of_pulled_steps
from attacks.closed_form.clipping.clipped_entries import reading_of_clipped_entries
from attacks.closed_form.clipping.clipped_samples import reading_of_clipped_samples
from attacks.closed_form.clipping.one_clipped import reading_of_one_clipped
from attacks.closed_form.fit.arbiter import without_open_multiples
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.images import without_implausible_biases
from attacks.closed_form.gaps.gaps import reading_with_gaps
from attacks.closed_form.rows.weighted_zeros import HALF
from attacks.closed_form.uploads.fitted_chain import chain_of
from attacks.closed_form.uploads.readings import (
    Reading,
    Rows,
    fitting_better,
    on_the_rest,
    some_of,
    spread_over,
)
from victims.transcript.manifest import Manifest

READINGS = (
    reading_of_clipped_entries,
    reading_of_clipped_samples,
    reading_of_pulled_steps,
    reading_of_pulled_group,
)


def reading_of_rated(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read each client as what its rows fit best, the readings of this module last."""
    best = _best(rows, manifest, max_misfit)
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


def _best(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """What rows fit best."""
    best = reading_with_gaps(rows, manifest, max_misfit)
    for reading in READINGS if rows.rows.shape[1] and len(manifest.rating_levels) > 1 else ():
        before = best.answered
        best = on_the_rest(best, reading, ~before, rows, manifest, max_misfit)
        if reading is reading_of_clipped_samples and (best.answered & ~before).any():
            best = _unless_one_is_clipped(best, before, rows)
    inexact = ~(best.misfit <= rows.precision**HALF)
    if not (inexact.any() and rows.rows.shape[1] and len(manifest.rating_levels) > 1):
        return best
    one = spread_over(reading_of_one_clipped(some_of(rows, inexact), manifest, max_misfit), inexact)
    # the longest of rounded rows is farthest off, and the others are a little nearer without it
    clearly = ~best.answered | (BARS.closer * one.misfit <= best.misfit)
    return fitting_better(best, one._replace(misfit=np.where(clearly, one.misfit, np.nan)))


def _unless_one_is_clipped(best: Reading, others: Bool[np.ndarray, " users"], rows: Rows) -> Reading:
    """Leave out inexact answers about others: one row or two, clipped as some clients' are, show no line."""
    doubted = others & (best.steps <= 1) & ~(best.misfit <= rows.precision**HALF)
    return best._replace(misfit=np.where(doubted, np.nan, best.misfit))
