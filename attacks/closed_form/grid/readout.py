"""Ratings and attributes read off reduced rows, once the length of each client's factor is known.

r_j = g_j / s + s d . q_j; in include-unrated an item is unrated where g_j / s = -alpha s d . q_j. The sign of
s makes ratings positive. How well the answer fits the rating grid is measured against what the same numbers
give when paired at random (``attacks.closed_form.fit.goodness_of_fit``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.fit.decoding import looks_unrated
from attacks.closed_form.fit.goodness_of_fit import independent, misfit, rating_chance
from attacks.closed_form.uploads.reduction import Reduced, projection
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM, Uploads, UserBatch


@dataclass(frozen=True)
class Readout:
    """What was read of a batch."""

    kind: Int[np.ndarray, "a rows"]
    index: Int[np.ndarray, "b rows"]
    value: Float[np.ndarray, "users rows"]  # in stars, 0 for unrated; attributes. NaN on padding
    # the same without asking whether the item is rated; None in observed-only
    if_rated: Float[np.ndarray, "users rows"] | None
    # 0 fits the grid exactly, 1 is no better than chance; NaN where a value is not finite
    misfit: Float[np.ndarray, " users"]
    # of how many ratings that is; in observed-only of how many that differ
    n_judged: Int[np.ndarray, " users"]
    # distance of ratings from the grid by chance, stars: what ``misfit`` is relative to
    chance: Float[np.ndarray, " users"]
    factor: Float[np.ndarray, "users K"]  # p_i in the round that was read
    round: Int[np.ndarray, " users"]  # its number

    def __repr__(self) -> str:
        """One line: of how many clients and rows."""
        return f"Readout(users={self.value.shape[0]}, rows={self.value.shape[1]})"


def read_batch(
    manifest: Manifest, batch: UserBatch, reduced: list[Reduced], scales: Float[np.ndarray, "rounds users"]
) -> Readout:
    """Read every client in the round where its factor is longest."""
    best = scales.argmax(axis=0)
    if (best == best[0]).all():
        number = int(best[0])
        return read_round(manifest, batch.rounds[number], reduced[number], scales[number])
    width = max(uploads.gradients.shape[1] for uploads in batch.rounds)
    shape = batch.users.size, width
    kind, index = np.zeros(shape, np.int8), np.zeros(shape, np.int32)
    value, distance = np.full(shape, np.nan, np.float32), np.ones(batch.users.size)
    if_rated = value.copy() if manifest.weighting == "include-unrated" else None
    n_judged, round_ = np.zeros(batch.users.size, int), np.zeros(batch.users.size, int)
    factor, chance = np.full(reduced[0].direction.shape, np.nan), np.ones(batch.users.size)
    for number in np.unique(best):
        here = best == number
        part = read_round(manifest, batch.rounds[number], reduced[number], scales[number])
        rows = part.value.shape[1]
        kind[here, :rows] = np.broadcast_to(part.kind, part.value.shape)[here]
        index[here, :rows] = np.broadcast_to(part.index, part.value.shape)[here]
        value[here, :rows] = part.value[here]
        if if_rated is not None and part.if_rated is not None:
            if_rated[here, :rows] = part.if_rated[here]
        distance[here], n_judged[here] = part.misfit[here], part.n_judged[here]
        factor[here], round_[here], chance[here] = part.factor[here], part.round[here], part.chance[here]
    return Readout(kind, index, value, if_rated, distance, n_judged, chance, factor, round_)


def read_round(
    manifest: Manifest, uploads: Uploads, reduced: Reduced, scale: Float[np.ndarray, " users"]
) -> Readout:
    """Read one round: g / s + s d . t, or 0 where the row says "unrated"."""
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
    distance, n_judged = misfit(error, predicted, item, valid, level, weight)
    chance = rating_chance(error, predicted, item, valid, level, weight)
    if weight is None:
        n_judged = independent(value, item & valid, level)
    finite = np.isfinite(value)
    if not uploads.valid.all():
        finite |= ~valid
        value[~valid] = np.nan
    distance[~finite.all(axis=1)] = np.nan
    if_rated = None
    if weight is not None:
        if_rated = value.copy()
        unrated = looks_unrated(error, predicted, level, weight)
        unrated &= uploads.valid & (uploads.kind == ITEM)
        np.copyto(value, 0, where=unrated)
    factor = reduced.direction * (flip * np.where(scale > 0, scale, np.nan))[:, None]
    round_ = np.full(scale.size, uploads.round)
    read = uploads.kind, uploads.index, value, if_rated
    return Readout(*read, distance, n_judged, chance, factor, round_)


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
