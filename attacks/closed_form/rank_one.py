"""What follows for all clients once the length of their factors is known.

Every row that a client uploads is a multiple of its factor p_i. With d the leading right singular vector of
its rows, p_i = s d and g_j = f(i,j) . d, so r_j = g_j / s + s d . q_j; in include-unrated an item is unrated
where g_j / s = -alpha s d . q_j. The sign of s makes ratings positive. How s is found is the attack's own
idea (``attacks.closed_form.spectral``, ``attacks.closed_form.rating_grid``,
``attacks.closed_form.fedmf_eq24``); whether the answer fits the rating grid is measured here, against what
the same numbers give when paired at random.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from threadpoolctl import threadpool_limits

from attacks.base import Estimates, Progress, Reconstruction
from attacks.closed_form.decoding import looks_unrated
from attacks.closed_form.goodness_of_fit import accidental, misfit
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, BATCH_BYTES, ITEM, Uploads, UserBatch, View

SAMPLE_ROWS = 256  # rows per client that give the direction where they have rank one


class _Answer(NamedTuple):
    """Some clients: estimates, reasons to abstain by client, and diagnostics."""

    users: Int[np.ndarray, " users"]
    blocks: tuple[Estimates, ...]
    abstained: dict[int, str]
    diagnostics: dict[str, np.ndarray]


Lengths = Callable[[UserBatch, "list[Reduced]"], Float[np.ndarray, "rounds users"]]


def solve_clients(
    name: str,
    options: Mapping[str, Any],
    view: View,
    lengths: Lengths,
    *,
    max_misfit: float,
    no_length: str,
    progress: Progress,
    tried: int = 1,
) -> Reconstruction:
    """Read all clients of a view.

    Parameters
    ----------
    name, options
        Of the attack.
    view : View
    lengths : callable
        From a batch and its reduced rounds to s >= 0 of every client in every round, (rounds, users);
        0 where it is not determined.
    max_misfit : float
        Largest misfit at which a client is answered; of few ratings less, so that accidents are rare
        (``attacks.closed_form.goodness_of_fit``). ``inf`` answers everybody.
    no_length : str
        Why a client without a length is abstained on.
    progress : callable
    tried : int
        Lengths of which the one was taken that fits the grid best, one rating having told them; 1 where the
        grid did not choose.

    Returns
    -------
    Reconstruction
        Values are not rounded; diagnostics hold ``length`` (the estimated norm of p_i, stars) and ``misfit``
        (0 fits the grid exactly, 1 no better than chance).
    """
    solve = partial(_solve, lengths, view.manifest, max_misfit, tried, no_length)
    solved = list(_each(view, solve, progress))
    users = np.concatenate([part.users for part in solved])
    order = np.argsort(users)
    names = solved[0].diagnostics
    diagnostics = {key: np.concatenate([part.diagnostics[key] for part in solved])[order] for key in names}
    abstained = {user: reason for part in solved for user, reason in part.abstained.items()}
    blocks = tuple(block for part in solved for block in part.blocks)
    return Reconstruction(name, users[order], blocks, abstained, options, diagnostics)


def _each(view: View, solve: Callable[[UserBatch], _Answer], progress: Progress) -> Iterator[_Answer]:
    """Solve the batches on all cores; NumPy releases the interpreter lock inside its loops."""
    cuts = view.layout.slices(view.manifest.factors, BATCH_BYTES)
    members = [view.layout.order[start:stop] for start, stop in cuts]
    done = 0
    # one thread per batch: BLAS threads of its own would fight with these
    with (
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(min(len(members), os.cpu_count() or 1)) as pool,
    ):
        for part in pool.map(lambda m: solve(view.batch(m)), members):
            done += part.users.size
            progress(done, view.users.size)
            yield part


def _solve(
    lengths: Lengths, manifest: Manifest, max_misfit: float, tried: int, no_length: str, batch: UserBatch
) -> _Answer:
    # finite files may hold numbers whose squares are not; such clients are abstained on below
    with np.errstate(over="ignore", invalid="ignore"):
        reduced = [reduce_rows(manifest, uploads) for uploads in batch.rounds]
        scales = lengths(batch, reduced)
        kind, index, value, if_rated, fit, judged = _decode(manifest, batch, reduced, scales)
    used = scales.max(axis=0)
    allowed = np.full(fit.shape, max_misfit)
    if np.isfinite(max_misfit):
        # one rating tells the length where no attribute does
        free = judged - (tried > 1) * ~_sends_attributes(batch)
        allowed = np.minimum(max_misfit, np.where(judged > 0, accidental(free, tried), np.inf))
    abstained = {}
    energy = np.stack([part.energy for part in reduced]).max(axis=0)
    for user, size, scale, off, most in zip(batch.users, energy, used, fit, allowed, strict=True):
        if size == 0:
            abstained[int(user)] = "all uploaded rows are zero"
        elif not np.isfinite(size):
            abstained[int(user)] = "the uploaded numbers are too large to square"
        elif not scale > 0:
            abstained[int(user)] = no_length
        elif np.isnan(off):
            abstained[int(user)] = "the uploaded numbers and the broadcast factors are too far apart in size"
        elif not off <= most:
            abstained[int(user)] = (
                "the answer fits the rating grid little better than chance "
                f"(misfit {off:.2g} of 1, at most {most:.2g} with so many ratings)"
            )
    silenced = np.isin(batch.users, list(abstained))
    value[silenced] = np.nan
    if if_rated is not None:
        if_rated[silenced] = np.nan
    blocks = (Estimates(batch.users, kind, index, value, rating_if_rated=if_rated),)
    return _Answer(batch.users, blocks, abstained, {"length": used, "misfit": fit})


def _sends_attributes(batch: UserBatch) -> Bool[np.ndarray, " users"]:
    sent = [((part.kind == ATTRIBUTE) & part.valid).any(axis=1) for part in batch.rounds]
    return np.broadcast_to(np.any(np.broadcast_arrays(*sent), axis=0), batch.users.shape)


@dataclass(frozen=True)
class Reduced:
    """One round of a batch, reduced to scalars along each client's direction.

    direction d (users, K); scalar g (users, rows), 0 on padding; pull w (users, K); energy: the sum of
    squares of the rows; complete: Eq. (8) and (10) can be formed from the rows.
    """

    direction: Float[np.ndarray, "users K"]
    scalar: Float[np.ndarray, "users rows"]
    pull: Float[np.ndarray, "users K"]
    energy: Float[np.ndarray, " users"]
    complete: np.ndarray


def reduce_rows(manifest: Manifest, uploads: Uploads) -> Reduced:
    """Scale and regularisation removed, and every row projected on its client's direction."""
    rows = uploads.gradients
    factors = uploads.broadcast.factors
    if manifest.upload.regularization != 0:
        own = manifest.upload.regularization * factors[uploads.position]
        rows = np.where(uploads.valid[..., None], rows - own, 0)
    rows = rows if rows.dtype == np.float64 else rows.astype(np.float64)
    direction, energy = _direction(rows)
    scalar = np.matmul(rows, direction[:, :, None])[..., 0]
    if manifest.upload.scale != 1:
        scalar /= manifest.upload.scale
    attribute_weight = manifest.hyperparameters.get("lambda_attributes", np.nan)
    is_attribute = uploads.kind == ATTRIBUTE
    weight = np.where(is_attribute, attribute_weight, 1.0) if is_attribute.any() else None
    if uploads.shared:
        own_factors = factors[uploads.position[0]]
        weighted = own_factors if weight is None else own_factors * weight[0][:, None]
        pull = scalar @ weighted
    else:
        weighted_scalar = scalar if weight is None else scalar * weight
        pull = np.matmul(np.where(uploads.valid, weighted_scalar, 0)[:, None, :], factors[uploads.position])[
            :, 0
        ]
    attributes_sent = np.sum(is_attribute & uploads.valid, axis=1)
    complete = np.broadcast_to(attributes_sent == manifest.n_attributes, energy.shape)
    return Reduced(direction, scalar, pull, energy, complete)


def _direction(
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


def projection(uploads: Uploads, along: Float[np.ndarray, "users K"]) -> np.ndarray:
    """``along`` . t_j for the factor t_j of every row, (users, rows)."""
    factors = uploads.broadcast.factors.astype(along.dtype, copy=False)
    if uploads.shared:
        return along @ factors[uploads.position[0]].T
    return (
        np.take_along_axis(along @ factors.T, uploads.position, axis=1)
        if (factors.shape[0] <= 4 * uploads.position.shape[1])
        else np.matmul(factors[uploads.position], along[:, :, None])[..., 0]
    )


def _decode(
    manifest: Manifest, batch: UserBatch, reduced: list[Reduced], scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray, np.ndarray]:
    """Kind, index, value, value if rated, misfit and ratings judged, of the round where p_i is longest.

    The length of p_i is what carries the answer: an error in a row is divided by it.
    """
    best = scales.argmax(axis=0)
    if (best == best[0]).all():
        number = int(best[0])
        uploads = batch.rounds[number]
        return uploads.kind, uploads.index, *_read(manifest, uploads, reduced[number], scales[number])
    width = max(uploads.gradients.shape[1] for uploads in batch.rounds)
    shape = batch.users.size, width
    kind, index = np.zeros(shape, np.int8), np.zeros(shape, np.int32)
    value, fit = np.full(shape, np.nan, np.float32), np.ones(batch.users.size)
    if_rated = value.copy() if manifest.weighting == "include-unrated" else None
    judged = np.zeros(batch.users.size, int)
    for number in np.unique(best):
        uploads = batch.rounds[number]
        here = best == number
        part, other, *judgement = _read(manifest, uploads, reduced[number], scales[number])
        rows = part.shape[1]
        kind[here, :rows] = np.broadcast_to(uploads.kind, part.shape)[here]
        index[here, :rows] = np.broadcast_to(uploads.index, part.shape)[here]
        value[here, :rows] = part[here]
        if if_rated is not None and other is not None:
            if_rated[here, :rows] = other[here]
        fit[here], judged[here] = (of_all[here] for of_all in judgement)
    return kind, index, value, if_rated, fit, judged


def _read(
    manifest: Manifest, uploads: Uploads, reduced: Reduced, scale: np.ndarray
) -> tuple[
    Float[np.ndarray, "users rows"],
    Float[np.ndarray, "users rows"] | None,
    Float[np.ndarray, " users"],
    Int[np.ndarray, " users"],
]:
    """Values of one round: g / s + s d . t, or 0 where the row says "unrated"; the same without the latter;
    misfit, NaN where a value is not finite, and of how many."""
    usable = np.where(scale > 0, scale, 1)[:, None]
    level = np.array(manifest.rating_levels, np.float32)
    # float32 from here on: a quarter of a star is 2^20 of its steps, and half the memory traffic
    error = np.empty(reduced.scalar.shape, np.float32)
    np.divide(reduced.scalar, usable, out=error, casting="same_kind")
    predicted = projection(uploads, (reduced.direction * usable).astype(np.float32))
    value = error + predicted
    weight = None
    if manifest.weighting == "include-unrated":
        weight = np.float32(manifest.hyperparameters["alpha"])
    flip = _sign(value, error, predicted, uploads, weight)
    if (flip < 0).any():
        value *= flip[:, None]
        error *= flip[:, None]
        predicted *= flip[:, None]
    shape = value.shape
    item, valid = (np.broadcast_to(part, shape) for part in (uploads.kind == ITEM, uploads.valid))
    fit, judged = misfit(error, predicted, item, valid, level, weight)
    fit[~np.isfinite(value).all(axis=1, where=valid)] = np.nan
    if not uploads.valid.all():
        value[~valid] = np.nan
    if_rated = None
    if weight is not None:
        if_rated = value.copy()
        unrated = looks_unrated(error, predicted, level, weight)
        unrated &= item & valid
        value[unrated] = 0
    return value, if_rated, fit, judged


def _sign(
    value: np.ndarray,
    error: np.ndarray,
    predicted: np.ndarray,
    uploads: Uploads,
    weight: np.float32 | None,
) -> Float[np.ndarray, " users"]:
    """1 or -1 per client, so that attributes and ratings come out positive.

    One-hot attributes add up to the number of blocks. Where a client sent none, its ratings decide:
    their sum, in include-unrated with each row weighted by how far it is from "unrated" (0 where it
    is unrated).
    """
    is_attribute = uploads.valid & (uploads.kind == ATTRIBUTE)
    columns = np.flatnonzero(is_attribute.any(axis=0))
    total = np.sum(value[:, columns], axis=1, where=is_attribute[:, columns])
    open_ = np.flatnonzero(np.abs(total) < 0.5)
    if open_.size:
        strength = np.ones_like(value[open_])
        if weight is not None:
            strength = np.abs(error[open_] + weight * predicted[open_])
        strength *= np.broadcast_to(uploads.valid & (uploads.kind == ITEM), value.shape)[open_]
        total[open_] = np.einsum("ur,ur->u", value[open_], strength)
    return np.where(total < 0, np.float32(-1), np.float32(1))
