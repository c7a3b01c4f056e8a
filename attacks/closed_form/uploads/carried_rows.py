"""Rows that carry a share of what the client sent in the round before: momentum, or a running mean.

Beyond the papers, for programs whose clients keep a velocity of what they send, m' = beta m + g, or a mean,
m' = beta m + (1 - beta) g, and send that. The gradient of the round is g = sigma e u with one u, so that
of the rows F of a round and E of the one before F - beta E has rank one: what
``attacks.closed_form.uploads.shared_pull`` says of rows and their factors holds of rows and earlier rows.
What is left is read as any gradient is, at the factors of its round.

What it assumes: two rounds that follow each other, with the same items of the client in both; three rows or
more of three factors or more. It judges itself: next to nothing may be left across the direction.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.uploads.readings import Rows
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.closed_form.uploads.shared_pull import without_pull

LEFT = 1e-3  # of the rows' size across their direction, beyond which something else moved them


def without_carried(now: Rows, before: Rows) -> tuple[Rows, Bool[np.ndarray, " users"]]:
    """Take the share of the rows of the round before off those of this one."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        clean, share = without_pull(now.rows, before.rows, now.item)
        told = (share != 0) & (_across(clean) < LEFT) & (_across(now.rows) > LEFT)
    return now._replace(rows=clean, scale=np.full(now.scale.shape, np.nan)), told


def _across(rows: Float[np.ndarray, "users rows K"]) -> Float[np.ndarray, " users"]:
    """What is across the common direction, relative to the rows' size."""
    direction, energy = leading_direction(rows)
    off = rows - np.matmul(rows, direction[:, :, None]) * direction[:, None]
    return np.linalg.norm(off, axis=(1, 2)) / np.sqrt(np.where(energy > 0, energy, 1))
