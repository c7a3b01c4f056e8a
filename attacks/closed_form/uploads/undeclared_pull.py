"""The multiple of its own factor in each row, where it is not the declared one: regularisation of items.

Beside it the rows of a client are not along its factor, and nothing shows that in the numbers that they are
reduced to: some round to a rating, those of unrated items as well. The rows do show it: what is across their
direction is that multiple of their factors and nothing else (``attacks.closed_form.uploads.shared_pull``).
Where clients name one multiple, they are read as if it were declared.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from attacks.closed_form.numbers.integer_relation import precision_of
from attacks.closed_form.uploads.item_rows import rounding_of
from attacks.closed_form.uploads.reduction import across_direction, freed
from attacks.closed_form.uploads.shared_pull import AGREE, LEAST_ROWS, without_pull
from victims.transcript.view import Uploads, View

MOST_CLIENTS, MOST_ROWS = 64, 64  # that are looked at, evenly spaced
FIRST_CLIENTS = 12  # where none of these shows anything, most of all do not: once in 4,096 by chance


def as_rows_say(view: View) -> tuple[View, str]:
    """Declare the multiple that rows hold."""
    upload = view.manifest.upload
    if not any(more.any() for more in _by_round(view, FIRST_CLIENTS)):
        return view, ""
    for more in _by_round(view, MOST_CLIENTS):
        told = more[more != 0]
        if 2 * told.size <= more.size:
            continue
        usual = float(np.median(told))
        if np.median(np.abs(told - usual)) < AGREE * abs(usual):
            right = upload.model_copy(update={"regularization": upload.regularization + usual})
            return view.declared(upload=right), ""
        return view, (
            f"the upload's regularization is declared {upload.regularization:g}, and rows of {told.size} of "
            f"{more.size} clients hold other multiples of their items' factors, each client its own"
        )
    return view, ""


def _by_round(view: View, most: int) -> Iterator[Float[np.ndarray, " judged"]]:
    order = view.layout.order
    batch = view.batch(order[:: max(1, -(-order.size // most))])
    return (_more_than(view.manifest.upload.regularization, uploads) for uploads in batch.rounds)


def _more_than(declared: float, uploads: Uploads) -> Float[np.ndarray, " judged"]:
    """What rows of clients that show it hold more than is declared; 0 where they do not."""
    every = slice(None, None, max(1, -(-uploads.valid.shape[1] // MOST_ROWS)))
    uploads = uploads.rows(every)
    rows = freed(uploads, declared)
    valid = np.broadcast_to(uploads.valid, rows.shape[:2])
    factors = np.where(valid[..., None], uploads.factors[uploads.at], 0.0)
    judged = (valid & rows.any(axis=2)).sum(axis=1) > LEAST_ROWS
    # parallel ones hold nothing, and what else they hold takes twenty times as long to fit
    digits = precision_of(rows, factors, rounding_of(uploads.gradients))
    open_ = judged & ~(across_direction(rows)[1] <= digits)
    more = np.zeros(len(rows))
    more[open_] = without_pull(rows[open_], factors[open_], valid[open_])[1]
    return more[judged]
