"""What a neighbour's row is made of, as its recording declares it.

A row is a multiple of (r - prediction) u, and one of the factor v that it was computed at. Where clients send
their copies of v after a step (``weights``), it holds v itself beside what the step added: the rows of one
sender still lie in planes of u and v, and the multiple of v is one larger. Where they send means over the
ratings of a step, errors are divided by how many these are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.closed_form.uploads.reduction import unit_vectors
from victims.transcript.manifest import Manifest

PRECISION = float(np.finfo(np.float64).eps)
SMALLEST = 1e-150  # of a step


class Form(NamedTuple):
    """Multiples in a row."""

    error: float  # of (r - prediction) u; NaN where it is not public
    pull: float  # of v; NaN where it is not public


def form_of(manifest: Manifest) -> Form:
    """Look up what is declared of rows."""
    if not manifest.scale_known:
        return Form(np.nan, np.nan)
    whole = 1.0 if manifest.rule.upload == "weights" else 0.0
    return Form(manifest.upload.scale, manifest.upload.regularization + whole)


def ratings_of_steps(
    manifest: Manifest, n_rows: Float[np.ndarray, " senders"]
) -> Float[np.ndarray, " senders"]:
    """Numbers that senders divide their errors by."""
    rule = manifest.rule
    if rule.reduction != "mean" or rule.batch_size == 1:
        return np.ones(n_rows.size)
    return n_rows if rule.batch_size == "all" else np.full(n_rows.size, np.nan)


def times_of_gradients(
    manifest: Manifest, n_rows: Float[np.ndarray, " senders"]
) -> Float[np.ndarray, " senders"]:
    """Numbers by which senders' rows, without multiples of v, are turned into gradients of single ratings."""
    rule, error = manifest.rule, form_of(manifest).error
    if rule.upload in ("delta", "weights") and (rule.local_steps or 1) > 1:
        return np.full(n_rows.size, np.nan)
    return ratings_of_steps(manifest, n_rows) * (-1 / error if np.isfinite(error) else 1.0)


def last_digit(
    manifest: Manifest, rows: Float[np.ndarray, "rows K"], factors: Float[np.ndarray, "rows K"]
) -> float:
    """Size of the last digit of what a step made of rows, relative to that.

    A change, and what a copy holds beside the factor that it started from, are differences of numbers as
    large as the factors, and have the digits of those.
    """
    if manifest.rule.upload not in ("delta", "weights") or not rows.any():
        return PRECISION
    along, size = unit_vectors(factors)
    across = rows - np.einsum("rk,rk->r", rows, along)[:, None] * along
    step = np.linalg.norm(across, axis=1)
    return PRECISION * max(1.0, float(np.median(size) / max(np.median(step), SMALLEST)))
