"""Minibatches of a client whose rows all hold the same multiple of their factors, which nobody told.

Weight decay moves every row of a client's copy by (q^T - 1) v in T steps, and the rows of one minibatch share
their direction otherwise. Two of them lie in planes with their factors that share a line
(``attacks.closed_form.chains.pulled_group``), so that such pairs tell the multiple, whatever the minibatches
are. It is fitted to all pairs together, taken off all rows, and the rest is read as a chain
(``attacks.closed_form.chains.chain_readings``), to its last digits or not at all.

What it assumes: uploads in the clear, four factors or more, two rows or more in most minibatches.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.chains.chain_readings import any_reading
from attacks.closed_form.chains.pulled_group import LEAST, alike_planes, moved_rows, rows_one_by_one
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.uploads.readings import Reading, Rows, nothing, some_of, spread_over
from attacks.closed_form.uploads.reduction import unit_vectors
from victims.transcript.manifest import Manifest

ROUNDS = 20  # of the fit, which turns from the multiple to the directions and back


def reading_of_pulled_steps(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read clients of several minibatches whose rows hold a multiple of their factors."""
    here, pull = moved_rows(rows), np.zeros(len(rows.item))
    for user, _, own, factors, digits in rows_one_by_one(rows):
        pull[user] = shared_multiple(own, factors, digits)
    told = pull != 0
    if not told.any():
        return nothing(rows.item.shape)
    clean = (rows.rows - pull[:, None, None] * rows.factors) * here[..., None]
    part = some_of(rows._replace(rows=clean, precision=_precision(rows, clean, here)), told)
    found = spread_over(any_reading(part, manifest, max_misfit), told)
    exact = np.minimum(found.allowed, part.precision**BARS.half)
    # one step is read elsewhere
    several = np.where(found.steps > 1, exact, 0.0)
    return found._replace(allowed=several, pull=np.where(told, pull, found.pull))


def _precision(rows: Rows, clean: np.ndarray, here: Bool[np.ndarray, "users rows"]) -> float:
    """Relative size of the last digit of what is left: rows are as exact as they, or copies, are long."""
    sizes = [np.linalg.norm(part, axis=2)[here] for part in (rows.rows, rows.factors, clean)]
    return rows.precision * max(1.0, float(np.median(np.maximum(*sizes[:2]) / np.maximum(sizes[2], 1e-300))))


def shared_multiple(
    rows: Float[np.ndarray, "n K"], factors: Float[np.ndarray, "n K"], digits: float
) -> float:
    """Find the multiple of their factors that all rows hold beside a direction of each minibatch."""
    if len(rows) < LEAST:
        return 0.0
    multiple, partner = alike_planes(rows, factors, digits)
    if partner.sum() < 2 * LEAST:
        return 0.0
    first, second = np.nonzero(np.triu(partner))
    for _ in range(ROUNDS):
        unit, _ = unit_vectors(rows - multiple * factors)
        # what of each row, and of its factor, lies across the direction of its partner
        row, factor = (
            part[first] - np.einsum("pk,pk->p", part[first], unit[second])[:, None] * unit[second]
            for part in (rows, factors)
        )
        across = float((factor**2).sum())
        if across == 0:  # factors along the rows, as of items that all start alike, tell no multiple
            return 0.0
        multiple = float((row * factor).sum()) / across
    return multiple
