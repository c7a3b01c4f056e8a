"""Rows of a client that all hold one vector, drawn anew in each round: noise once per epoch (Hu & Fang's h).

A row is f_j = sigma e_j u + x with the same x for all items of the client in a round, however long. Means
over the client's rows have all of it, so that

    f_j - mean f = sigma ((r_j - mean r) - (q_j - mean q) . u) u:

rows of ratings less the client's own mean, about factors less their mean, in one direction. What is open then
is what it is for programs that learn such ratings (``attacks.closed_form.centres.centred``): a shift of all
ratings of a client, unless it has both ends of the grid, and its mirror image.

What it assumes: four rows of a client in a round, two factors, one step, rows exact or rounded, and no biases
that are broadcast. Beyond Hu & Fang 2023, whose published program draws h once for all items of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.uploads.item_rows import BATCH_BYTES, digit_of
from attacks.closed_form.uploads.other_rows import OtherRows, view_of
from attacks.closed_form.uploads.reduction import across_direction
from victims.transcript.view import ITEM, Uploads, View

LOOKED_AT, MOSTLY = 64, 0.5  # clients, and the share of those with enough rows that has to show a vector
FEWEST_ROWS, FEWEST_CLIENTS = 4, 3  # of a client, and who show it
OTHERWISE = 1e-3  # share of the rows across their direction, up to which they hold nothing else
DIGITS = 16.0  # last digits of a row, that may be left across the direction of what is centred
OWN = 100.0  # times that, that centred rows must be long
NO_COMMON_VECTOR = "its rows are too few to show the vector that those of the other clients have in common"
TYPES = (np.float64, np.float32, np.float16)  # with the digits that are left


class _Centred(NamedTuple):
    """Rows and factors of some clients in one round less their means."""

    rows: Float[np.ndarray, "users rows K"]
    factors: Float[np.ndarray, "users rows K"]
    valid: Bool[np.ndarray, "users rows"]
    # who has enough rows, and whose lie in one direction then, and did not before
    able: Bool[np.ndarray, " users"]
    # who has enough rows, and whose lie in one direction then, and did not before
    shown: Bool[np.ndarray, " users"]
    # of centred rows, relative: what their last digits owe to those of the rows as sent
    error: Float[np.ndarray, " users"]


def centred_views(view: View) -> Iterator[View]:
    """Take means over the rows of each client and round off rows and factors."""
    biased = any(one.bias is not None for one in view.broadcasts.values())
    if view.messages.gradient is None or view.manifest.factors < 2 or biased:
        return
    sample = _parts(view.select(view.users[:: max(1, view.users.size // LOOKED_AT)]))
    able, shown = (sum(int(getattr(one, name).sum()) for _, _, one in sample) for name in ("able", "shown"))
    if shown < max(FEWEST_CLIENTS, MOSTLY * able):
        return
    parts = _parts(view)
    error = np.concatenate([one.error[one.shown] for _, _, one in parts])
    kind = next((one for one in TYPES if np.median(error) <= DIGITS * np.finfo(one).eps), None)
    if kind is None:
        return
    others = [
        OtherRows(users, uploads, one.valid & one.shown[:, None], one.rows, one.factors)
        for users, uploads, one in parts
    ]
    yield view_of(view, others, kind)


def _parts(view: View) -> list[tuple[np.ndarray, Uploads, _Centred]]:
    """All clients in all rounds."""
    return [
        (batch.users, uploads, _centred(uploads))
        for batch in view.batches(BATCH_BYTES)
        for uploads in batch.rounds
        if uploads.gradients.shape[1]
    ]


def _centred(uploads: Uploads) -> _Centred:
    """Some clients in one round."""
    rows = uploads.gradients.astype(float)
    valid = np.broadcast_to(uploads.valid & (uploads.kind == ITEM), rows.shape[:2])
    factors = np.broadcast_to(uploads.factors[uploads.at], rows.shape) * valid[..., None]
    digit = digit_of(uploads.gradients, factors)
    n = np.maximum(valid.sum(axis=1), 1)[:, None, None]
    own_rows, own_factors = (
        (part - part.sum(axis=1, keepdims=True) / n) * valid[..., None] for part in (rows, factors)
    )
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        _, before = across_direction(rows)
        _, after = across_direction(own_rows)
        size, own = (np.linalg.norm(part, axis=(1, 2)) for part in (rows, own_rows))
        error = digit * size / own
        able = valid.sum(axis=1) >= FEWEST_ROWS
        shown = able & (before > OTHERWISE) & (after <= DIGITS * error) & (OWN * DIGITS * error < 1)
    return _Centred(own_rows, own_factors, valid, able, shown, error)
