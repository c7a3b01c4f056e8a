"""Clients in a round whose rows may be steps of Adam or the like, and whether they look so.

Entries of such rows are nearly of one size, the same for all clients, and their signs are those of errors
times those of a factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rounding_of, rows_of
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.adaptive.adaptive_fit import FEWEST
from attacks.inversion.adaptive.adaptive_numbers import Own
from victims.transcript.manifest import Manifest
from victims.transcript.view import UserBatch, View

LOOKED_AT = 50  # clients whose rows are looked at
HALF, NEAR = 0.8, 0.5  # share of entries that are larger than that share of the largest
RANK_ONE = 0.9  # share of signs that are those of errors times those of a factor
ALIKE = 0.2  # by which the largest entries of most clients differ
EQUAL, DIGITS = 1e-5, 4.0  # by which most entries of one step differ: relative, or in their last digits


class Sent(NamedTuple):
    """One client in one round: its place in the batch, which of the round's rows are its own, and these."""

    place: int
    round: int
    here: Bool[np.ndarray, " rows"]
    own: Own


def look_adaptive(sizes: Float[np.ndarray, "clients 4"]) -> bool:
    """Whether most clients' rows look like steps of Adam or the like."""
    if not (sizes.size and np.median(sizes[:, 0]) >= HALF and np.median(sizes[:, 1]) >= RANK_ONE):
        return False
    middle = np.median(sizes[:, 2])
    return bool(np.median(np.abs(sizes[:, 2] - middle)) <= ALIKE * middle)


def sizes_of(view: View, pull: float) -> Float[np.ndarray, "clients 4"]:
    """Measure the entries of some clients' rows in their first round."""
    out = []
    for batch in view.batches(BATCH_BYTES):
        for sent in sent_of(view.manifest, batch, 0, pull, 1):
            rows = sent.own.rows
            size, most = np.abs(rows), np.abs(rows).max()
            if (np.ptp(rows, axis=1) <= EQUAL * size.max(axis=1)).all():
                continue  # equal factors, whose gradients have one ratio in all coordinates, too
            left, _, right = np.linalg.svd(np.sign(rows), full_matrices=False)
            agree = np.sign(np.outer(left[:, 0], right[0])) == np.sign(rows)
            out.append(
                (
                    (size > NEAR * most).mean(),
                    max(agree.mean(), 1 - agree.mean()),
                    most,
                    _spread(size, sent.own.digit),
                )
            )
            if len(out) == LOOKED_AT:
                return np.array(out).reshape(-1, 4)
    return np.array(out).reshape(-1, 4)


def _spread(size: np.ndarray, digit: float) -> float:
    """How far half of a client's entries differ, in units of what they may after one step; or inf."""
    low, middle, high = np.percentile(size, (25, 50, 75))
    return float((high - low) / middle / max(EQUAL, DIGITS * digit)) if middle > 0 else np.inf


def sent_of(manifest: Manifest, batch: UserBatch, number: int, pull: float, way: int) -> Iterator[Sent]:
    """Clients of a batch with enough rows, in one of its rounds; changes, whatever scale is declared."""
    uploads = batch.rounds[number]
    rows: Rows = rows_of(manifest, uploads, None, 0.0, pull)
    rounded = rounding_of(uploads.gradients)
    for place in np.flatnonzero(rows.item.sum(axis=1) >= FEWEST).tolist():
        here = rows.item[place]
        own, factors = way * manifest.upload.scale * rows.rows[place, here], rows.factors[place, here]
        most = np.abs(own).max()
        if not most > 0 or not np.isfinite(own).all():
            continue
        # changes of copies keep the digits of these
        digit = rounded * max(1.0, float(np.abs(factors).max() / most))
        levels = np.array(manifest.rating_levels)
        offset = rows.offset[place, here].astype(float)
        yield Sent(place, uploads.round, here, Own(own, factors.astype(float), offset, levels, digit))
