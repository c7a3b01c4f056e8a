"""What rows say of clients: readings of whole rows first, then of those that hold more than ratings."""

from __future__ import annotations

import numpy as np

from attacks.closed_form.chains.pulled_group import reading_of_pulled_group
from attacks.closed_form.chains.pulled_steps import reading_of_pulled_steps
from attacks.closed_form.fit.arbiter import without_open_multiples
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.images import without_implausible_biases
from attacks.closed_form.gaps.gaps import reading_with_gaps
from attacks.closed_form.uploads.fitted_chain import chain_of
from attacks.closed_form.uploads.readings import Reading, Rows, on_the_rest, some_of
from victims.transcript.manifest import Manifest

READINGS = (reading_of_pulled_steps, reading_of_pulled_group)


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
        best = on_the_rest(best, reading, ~best.answered, rows, manifest, max_misfit)
    return best
