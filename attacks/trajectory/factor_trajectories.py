"""Several rounds of a view as arrays: what the fit of a client's trajectory works on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.likelihood.manifest_model import fresh_normal
from victims.transcript.view import ATTRIBUTE, UserBatch, View

BATCH_BYTES = 192 << 20  # of the derivatives of one batch
WIDTH = 16  # batches are padded to this times a power of two: few shapes to compile
_ROUNDING, _TINY = float(np.finfo(np.float32).eps), 1e-12


@dataclass(frozen=True)
class Packed:
    """Some clients and T rounds, padded to n rows."""

    users: Int[np.ndarray, " users"]
    kind: Int[np.ndarray, "users n"]
    index: Int[np.ndarray, "users n"]
    valid: Bool[np.ndarray, "users n"]
    rows: Float[np.ndarray, "users T n K"]  # uploads as w (s - p . t) p plus noise, and t
    factors: Float[np.ndarray, "users T n K"]  # uploads as w (s - p . t) p plus noise, and t
    # standard deviation of that noise; None where there is none, or it repeats
    deviation: Float[np.ndarray, "users T n K"] | None
    row_weight: Float[np.ndarray, "users n"]  # w
    same_list: Bool[np.ndarray, " users"]  # the client sent the same list in every round
    # factors as they were broadcast, where rows were computed at others
    broadcast: Float[np.ndarray, "users T n K"] | None = None

    def __repr__(self) -> str:
        """One line: of how many clients, rounds and rows."""
        users, rounds, rows, _ = self.rows.shape
        return f"Packed(users={users}, rounds={rounds}, rows={rows})"


def batches(view: View, rounds: int, *, loose: bool = False) -> Iterator[Int[np.ndarray, " members"]]:
    """Split the clients of a view into batches of similar length.

    Batches hold a power of two of clients where they can, so that few shapes are compiled.
    """
    longest = view.layout.length.max(axis=0)
    order, factors = view.layout.order, view.manifest.factors
    start = 0
    while start < order.size:
        limit = _width(int(longest[order[start]]))
        stop = start + int(np.searchsorted(longest[order[start:]], limit, side="right"))
        numbers = limit + rounds * factors * loose
        fits = max(1, BATCH_BYTES // (8 * rounds * numbers * factors**2))
        fits = min(1 << (fits.bit_length() - 1), 256)
        yield from np.split(order[start:stop], range(fits, stop - start, fits))
        start = stop


def _width(rows: int) -> int:
    """The next width that batches are padded to."""
    width = WIDTH
    while width < rows:
        width *= 2
    return width


def pack(view: View, batch: UserBatch, rounds: Int[np.ndarray, " T"]) -> Packed:
    """Pad some rounds of a batch to one shape, with scale and regularisation removed from its rows."""
    manifest = view.manifest
    wanted = [uploads for uploads in batch.rounds if uploads.round in rounds]
    first = wanted[0]
    users, n = batch.users.size, first.gradients.shape[1]
    width = _width(max(uploads.gradients.shape[1] for uploads in wanted))
    shape = users, n
    kind, index = (np.broadcast_to(column, shape) for column in (first.kind, first.index))
    valid = np.broadcast_to(first.valid, shape)
    same_list = np.ones(users, bool)
    for uploads in wanted[1:]:
        same_list &= first.same_list(uploads)
    k = manifest.factors
    rows, factors = np.zeros((users, rounds.size, width, k)), np.zeros((users, rounds.size, width, k))
    broadcast = np.zeros_like(factors) if first.reference is not None else None
    own = fresh_normal(manifest)
    noisy = own is not None or first.broadcast.noise_scale is not None
    deviation = np.ones((users, rounds.size, width, k)) if noisy else None
    for number, uploads in enumerate(wanted):
        here = same_list if uploads is not first else np.ones(users, bool)
        sent = min(n, uploads.gradients.shape[1])  # padding apart, a list of the same length
        position = np.broadcast_to(uploads.at, (users, uploads.gradients.shape[1]))[here][:, :sent]
        there = valid[here][:, :sent, None]
        known = uploads.factors[position] * there
        clean = uploads.gradients[here][:, :sent] - manifest.upload.regularization * known
        rows[here, number, :sent] = clean / manifest.upload.scale * there
        factors[here, number, :sent] = known
        place = np.broadcast_to(uploads.position, (users, uploads.gradients.shape[1]))[here][:, :sent]
        if broadcast is not None:
            broadcast[here, number, :sent] = uploads.broadcast.factors[place] * there
        if deviation is not None:
            scale = uploads.broadcast.noise_scale
            told = np.zeros(known.shape) if scale is None else scale[place]
            told = np.hypot(told, own or 0.0) / abs(manifest.upload.scale)
            # noise of scale 0 is declared by programs that switched it off: what is left is rounding,
            # of a client's own uploads: nobody else's answer may depend on them
            largest = np.abs(rows[here, number, :sent]).max(axis=(1, 2), keepdims=True, initial=_TINY)
            told = np.maximum(told, _ROUNDING * largest)
            deviation[here, number, :sent] = np.where(there, told, 1.0)

    def padded(column: np.ndarray) -> np.ndarray:
        return np.pad(column, ((0, 0), (0, width - n)))

    attribute_weight = manifest.hyperparameters.get("lambda_attributes", 1.0)
    row_weight = np.where(padded(kind) == ATTRIBUTE, attribute_weight, 1.0)
    return Packed(
        batch.users,
        padded(kind),
        padded(index),
        padded(valid),
        rows,
        factors,
        deviation,
        row_weight,
        same_list,
        broadcast,
    )
