"""Rows of items as clients computed them, free of a scale and of a multiple of their factors."""

from __future__ import annotations

import numpy as np

from attacks.closed_form.common_scale import Scale
from attacks.closed_form.readings import Rows
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, Uploads

BATCH_BYTES = 1 << 20  # of the uploads of one batch: the planes of a client take its rows squared


def rows_of(
    manifest: Manifest,
    uploads: Uploads,
    shared: Scale | None,
    lowered: float = 0.0,
    pull: float | None = None,
) -> Rows:
    """Rows of items freed of scale and declared regularisation, and what they were computed at.

    Parameters
    ----------
    manifest : Manifest
    uploads : Uploads
        One round of a batch.
    shared : Scale or None
        What multiplies the rows, in units of the manifest's; None where it is not known.
    lowered : float
        What the program takes off every rating, stars.
    pull : float, optional
        Multiple of its factor in every row; as declared if it is not given.

    Returns
    -------
    Rows
        0 where a row is of no item.
    """
    shape = uploads.gradients.shape[:2]
    item = np.broadcast_to(uploads.valid & (uploads.kind == ITEM), shape)
    factors = np.broadcast_to(uploads.factors[uploads.at], uploads.gradients.shape) * item[..., None]
    taken = manifest.upload.regularization if pull is None else pull
    rows = (uploads.gradients - taken * factors) * item[..., None]
    precision = float(np.finfo(uploads.gradients.dtype).eps)
    n_rated = np.maximum(item.sum(axis=1), 1).astype(float)
    scale = np.full(shape[0], np.nan) if shared is None else shared.of(n_rated)
    divisor = np.where(np.isnan(scale), 1.0, scale) * manifest.upload.scale
    rows = rows.astype(np.float64) / divisor[:, None, None]
    offset = np.broadcast_to(uploads.bias + lowered, shape) * item
    return Rows(rows, factors, offset, item, scale, precision, uploads.sequence)
