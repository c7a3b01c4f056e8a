"""Rows of items as clients computed them, free of a scale and of a multiple of their factors."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

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
    # an item that did not move where others are pulled took no part, whatever is left of its row
    unmoved = (uploads.gradients == 0).all(axis=2) | (uploads.gradients == factors).all(axis=2)
    item = item & ~(unmoved & (rows != 0).any(axis=2))
    rows, factors = rows * item[..., None], factors * item[..., None]
    precision = float(np.finfo(uploads.gradients.dtype).eps)
    n_rated = np.maximum(item.sum(axis=1), 1).astype(float)
    scale = np.full(shape[0], np.nan) if shared is None else shared.of(n_rated)
    divisor = np.where(np.isnan(scale), 1.0, scale) * manifest.upload.scale
    rows = rows.astype(np.float64) / divisor[:, None, None]
    offset = np.broadcast_to(uploads.bias + lowered, shape) * item
    return Rows(rows, factors, offset, item, scale, precision, uploads.sequence)


def rounding_of(gradients: Float[np.ndarray, "users rows K"]) -> float:
    """Find the relative size of the last digit of rows, which may have been rounded more than their type is.

    Parameters
    ----------
    gradients : (users, rows, K)

    Returns
    -------
    float
        Of the shortest floating-point type that holds all of them.

    Examples
    --------
    >>> rows = np.array([[[0.5, 1 / 3]]])
    >>> [rounding_of(rows.astype(np.float16).astype(kind)) for kind in (np.float32, np.float64)]
    [0.0009765625, 0.0009765625]
    """
    for kind in (np.float16, np.float32):
        if np.finfo(kind).eps <= np.finfo(gradients.dtype).eps:
            break
        with np.errstate(over="ignore"):
            if np.array_equal(gradients.astype(kind), gradients):
                return float(np.finfo(kind).eps)
    return float(np.finfo(gradients.dtype).eps)
