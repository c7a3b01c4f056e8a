"""Rows that hold no noise, although the declared rule does not make them.

A regularisation that is declared wrongly, or minibatches that nobody declared, leave a part of the rows that
the declared rule does not explain, and noise of an unknown scale would be taken for it: answers are then
wrong, and mostly sure. Two traces tell that there is none. Without noise the rows F = a p^T + c Q of one step
have rank one off the columns of Q, whatever the regularisation c. And rows of one minibatch are nearly
parallel: noise on every number turns each row by an angle of its own, and so hardly any two of a client are.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.uploads.repeated_noise import CLEAN
from victims.common.seeds import Purpose, generator
from victims.transcript.view import Uploads, View

NEAR = 0.05  # of the angle by which noise would turn rows, at most, for two of them to be parallel
RARE = 0.01  # chance that noise leaves any two rows of a client so near
SHARE, FEWEST_ROWS = 0.1, 4  # of a client's rows that are parallel to another, and how many at least
MOST = 0.5  # share of the clients
ENOUGH = 200  # clients that are looked at
TINY = 1e-12  # of the broadcast factors' size: columns that are none


def exact_rows(view: View, noise: float, key: int) -> str:
    """Say that the rows hold no independent noise, or nothing."""
    if view.manifest.factors < 2:
        return ""
    some = view.select(view.users[:ENOUGH])
    along = generator(key, Purpose.ROW_HEIGHTS).normal(size=view.manifest.factors)
    exact = 0
    for batch in some.batches():
        found = np.zeros(batch.users.size, bool)
        for uploads in batch.rounds:
            found |= _of_rank_one(uploads) | _parallel(uploads, noise, along)
        exact += int(found.sum())
    if exact <= MOST * some.users.size:
        return ""
    return (
        f"the rows of {exact} of {some.users.size} clients hold no noise, and the declared rule does not "
        "make them: it is not the clients' (undeclared and inversion need none)"
    )


def _of_rank_one(uploads: Uploads) -> Bool[np.ndarray, " users"]:
    """Which clients' rows are multiples of one direction, but for a part that is linear in the factors."""
    rows, told = _told(uploads)
    factors = np.where(told[..., None], uploads.factors[np.broadcast_to(uploads.at, told.shape)], 0.0)
    n_users, n_rows, k = rows.shape
    if n_rows < k + 2:
        return np.zeros(n_users, bool)
    basis, size, _ = np.linalg.svd(factors, full_matrices=False)
    basis = np.where(size[:, None, :] > TINY * size[:, :1, None], basis, 0.0)
    off = rows - basis @ (basis.transpose(0, 2, 1) @ rows)
    left, whole = np.linalg.svd(off, compute_uv=False), np.linalg.norm(rows, axis=(1, 2))
    rest = np.linalg.norm(left[:, 1:], axis=1)
    return (told.sum(axis=1) >= k + 2) & (left[:, 0] > CLEAN * whole) & (rest <= CLEAN * left[:, 0])


def _parallel(uploads: Uploads, noise: float, along: np.ndarray) -> Bool[np.ndarray, " users"]:
    """Which clients sent rows of different items that are parallel: neighbours, sorted along a direction.

    Zeros are sent of what is not, and corners by who clips each number: neither tells of noise.
    """
    rows, told = _told(uploads)
    size = np.abs(rows)
    told = told & (size.min(axis=2) > 0) & (size.max(axis=2) > (1 + CLEAN) * size.min(axis=2))
    unit = np.where(told[..., None], rows, 1.0)
    length = np.linalg.norm(unit, axis=2)
    unit = unit / length[..., None]
    height = unit @ along
    unit *= np.where(height < 0, -1.0, 1.0)[..., None]
    order = np.argsort(np.where(told, np.abs(height), np.inf), axis=1)
    unit = np.take_along_axis(unit, order[..., None], axis=1)
    whose = np.broadcast_to(uploads.index, told.shape)
    told, whose, length = (np.take_along_axis(part, order, axis=1) for part in (told, whose, length))
    pairs = np.maximum(told.sum(axis=1), 2) ** 2
    near = np.minimum(NEAR, (RARE / pairs) ** (1 / (along.size - 1)))
    turned = np.minimum(1.0, noise / length)
    limit = near[:, None] * np.minimum(turned[:, 1:], turned[:, :-1])
    close = np.linalg.norm(np.diff(unit, axis=1), axis=2) < limit
    close &= told[:, 1:] & told[:, :-1] & (whose[:, 1:] != whose[:, :-1])
    count = (np.pad(close, ((0, 0), (1, 0))) | np.pad(close, ((0, 0), (0, 1)))).sum(axis=1)
    return count >= np.maximum(FEWEST_ROWS, SHARE * told.sum(axis=1))


def _told(uploads: Uploads) -> tuple[Float[np.ndarray, "users rows K"], Bool[np.ndarray, "users rows"]]:
    """Rows that can be squared, 0 elsewhere, and which of them were sent and are not 0."""
    rows = np.asarray(uploads.gradients, np.float64)
    largest = np.abs(rows).max(axis=2)
    told = np.broadcast_to(uploads.valid, rows.shape[:2]) & (largest > 0) & (largest < 1e150)
    return np.where(told[..., None], rows, 0.0), told
