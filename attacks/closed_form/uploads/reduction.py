"""Uploads reduced to scalars: every row that a client uploads is a multiple of its factor p_i.

With d the leading right singular vector of a client's rows, p_i = s d and g_j = f(i,j) . d.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, Uploads

NOISES = ("laplace", "gaussian", "objective-noise")  # defenses that add to the numbers of an upload
SAMPLE_ROWS = 256  # rows per client that give the direction where they have rank one


@dataclass(frozen=True)
class Reduced:
    """One round of a batch, reduced to scalars along each client's direction."""

    direction: Float[np.ndarray, "users K"]  # d, of length 1 and open sign
    scalar: Float[np.ndarray, "users rows"]  # g, 0 on padding
    pull: Float[np.ndarray, "users K"]  # w = sum_j g_j q_j + lambda_1 sum_a h_a u_a
    energy: Float[np.ndarray, " users"]  # sum of squares of the rows; infinite where it overflows
    complete: np.ndarray  # whether Eq. (8) and (10) can be formed from the rows

    def __repr__(self) -> str:
        """One line: of how many clients and rows."""
        return f"Reduced(users={self.scalar.shape[0]}, rows={self.scalar.shape[1]})"


def reduce_rows(manifest: Manifest, uploads: Uploads) -> Reduced:
    """Remove scale and regularisation, and project every row on its client's direction."""
    rows = uploads.gradients
    factors = uploads.factors
    if manifest.upload.regularization != 0:
        pulled = manifest.upload.regularization * factors[uploads.at]
        rows = np.where(uploads.valid[..., None], rows - pulled, 0)
    rows = rows if rows.dtype == np.float64 else rows.astype(np.float64)
    direction, energy = leading_direction(rows)
    scalar = np.matmul(rows, direction[:, :, None])[..., 0]
    if manifest.upload.scale != 1:
        scalar /= manifest.upload.scale
    attribute_weight = manifest.hyperparameters.get("lambda_attributes", np.nan)
    is_attribute = uploads.kind == ATTRIBUTE
    weight = np.where(is_attribute, attribute_weight, 1.0) if is_attribute.any() else None
    if uploads.shared:
        listed_factors = factors[uploads.at[0]]
        weighted = listed_factors if weight is None else listed_factors * weight[0][:, None]
        pull = scalar @ weighted
    else:
        weighted_scalar = scalar if weight is None else scalar * weight
        pull = np.matmul(np.where(uploads.valid, weighted_scalar, 0)[:, None, :], factors[uploads.at])[:, 0]
    attributes_sent = np.sum(is_attribute & uploads.valid, axis=1)
    complete = np.broadcast_to(attributes_sent == manifest.n_attributes, energy.shape)
    return Reduced(direction, scalar, pull, energy, complete)


def noise_across(manifest: Manifest, uploads: Uploads, reduced: Reduced) -> Float[np.ndarray, " users"]:
    """Standard deviation of what rows have off their direction, number by number."""
    rows = freed(uploads, manifest.upload.regularization) / manifest.upload.scale
    off = rows - reduced.scalar[..., None] * reduced.direction[:, None]
    free = (uploads.valid.sum(axis=1) - 1) * (rows.shape[2] - 1)
    return np.linalg.norm(off, axis=(1, 2)) / np.sqrt(np.where(free > 0, free, np.inf))


def freed(uploads: Uploads, regularization: float) -> Float[np.ndarray, "users rows K"]:
    """Rows in double precision, without the multiple of its factor that each holds.

    ``reduce_rows`` takes it off in the precision of the rows, in which the clients added it; where the rows
    have noise this makes no difference.
    """
    rows = uploads.gradients.astype(np.float64)
    if regularization == 0:
        return rows
    return np.where(uploads.valid[..., None], rows - uploads.factors[uploads.at] * regularization, 0)


def leading_direction(
    rows: Float[np.ndarray, "users rows K"],
) -> tuple[Float[np.ndarray, "users K"], Float[np.ndarray, " users"]]:
    """Leading right singular vector of each client's rows, and the sum of their squares.

    Evenly spaced rows are enough where those have rank one to the last bit of float64; otherwise
    (noise, rounding to float32, a sample of zeros) every row counts.
    """
    stride = max(1, rows.shape[1] // SAMPLE_ROWS)
    for step in (stride, 1):
        sample = rows[:, ::step]
        gram = np.matmul(sample.transpose(0, 2, 1), sample)
        finite = np.isfinite(gram).all(axis=(1, 2))
        values, vectors = np.linalg.eigh(np.where(finite[:, None, None], gram, 0))
        second = np.abs(values[:, :-1]).max(axis=1, initial=0)
        if step == 1 or (second < 1e-14 * values[:, -1]).all():
            break
    energy = np.where(finite, step * np.maximum(values.sum(axis=1), 0), np.inf)
    return vectors[:, :, -1], energy


def across_direction(
    rows: Float[np.ndarray, "users rows K"],
) -> tuple[Float[np.ndarray, "users K"], Float[np.ndarray, " users"]]:
    """Leading direction of each client's rows, and the share of their size that is across it.

    Examples
    --------
    >>> across_direction(np.array([[[3.0, 0.0], [4.0, 0.0]], [[3.0, 0.0], [0.0, 4.0]]]))[1]
    array([0. , 0.6])
    """
    direction, energy = leading_direction(rows)
    off = rows - np.matmul(rows, direction[:, :, None]) * direction[:, None]
    return direction, np.linalg.norm(off, axis=(1, 2)) / np.sqrt(np.where(energy > 0, energy, 1))


def unit_vectors(
    vectors: Float[np.ndarray, "*shape K"],
) -> tuple[Float[np.ndarray, "*shape K"], Float[np.ndarray, "*shape"]]:
    """Directions and lengths of vectors; 0 stays 0.

    Examples
    --------
    >>> direction, length = unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]]))
    >>> direction.tolist(), length.tolist()
    ([[0.6, 0.8], [0.0, 0.0]], [5.0, 0.0])
    """
    length = np.linalg.norm(vectors, axis=-1)
    return vectors / np.where(length > 0, length, 1)[..., None], length


def projection(uploads: Uploads, along: Float[np.ndarray, "users K"]) -> np.ndarray:
    """Project the broadcast factor t_j of every row on a vector of its client."""
    factors = uploads.factors.astype(along.dtype, copy=False)
    # of finite numbers in single precision OpenBLAS calls some invalid on some processors (numpy issue 24067)
    with np.errstate(invalid="ignore"):
        if uploads.shared:
            return along @ factors[uploads.at[0]].T
        return (
            np.take_along_axis(along @ factors.T, uploads.at, axis=1)
            if (factors.shape[0] <= 4 * uploads.at.shape[1])
            else np.matmul(factors[uploads.at], along[:, :, None])[..., 0]
        )
