"""Recordings of which no fit of several local steps tells anything: of one step, or of no step at all."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.client_rules.differentiable import ClientRule
from attacks.closed_form.numbers.integer_relation import LOOSE, precision_of
from attacks.closed_form.uploads.readings import Rows
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.closed_form.uploads.shared_pull import without_pull
from attacks.inversion.answers import Found
from attacks.inversion.clients import BATCH_BYTES, leave_items, rows_in
from victims.transcript.view import View

ASIDE = (
    "off its items' factors a client's rows have several directions, which no steps along these make: noise, "
    "or another rule"
)


def pointless(view: View, rule: ClientRule, found: Found) -> str:
    """Say why nothing is to be fitted."""
    if found.answered.all():
        return "all are answered"
    if not rule.mixes_rows:
        return ""
    told_of = ~np.isnan(found.outside)
    if told_of.any() and not (found.outside <= found.allowed)[told_of].any():
        return (
            "rows of clients with more ratings than factors are not affine in factors and ratings, as "
            "several steps over all ratings would make them"
        )
    return one_step(view, found)


def one_step(view: View, found: Found) -> str:
    """Say why neither several steps nor passes are to be fitted."""
    if leave_items(view, found):
        return ASIDE
    if all(_parallel(rows_in(view, batch.rounds[0], found)) for batch in view.batches(BATCH_BYTES)):
        return (
            "rows of a client are parallel, off their items' factors: one step, of which undeclared reads "
            "what it tells"
        )
    return ""


def _parallel(rows: Rows) -> bool:
    """Whether each client's rows have one direction, but for a multiple of its items' factors (a pull)."""
    clean, _ = without_pull(rows.rows, rows.factors, rows.item)
    limit = LOOSE * precision_of(rows.rows, rows.factors, rows.precision)
    return bool((np.minimum(_turned(rows.rows), _turned(clean)) <= limit).all())


def _turned(rows: Float[np.ndarray, "clients n K"]) -> Float[np.ndarray, " clients"]:
    """How much of each client's rows is off their direction, relative."""
    direction, energy = leading_direction(rows)
    off = rows - np.matmul(rows, direction[:, :, None]) * direction[:, None]
    size = np.sqrt(energy)
    return np.linalg.norm(off, axis=(1, 2)) / np.where(size > 0, size, 1.0)
