"""What one round's rows tell of each client's factor, whatever rule moved it.

A reading (``attacks.closed_form.rows.row_readings``) gives r = A g + B h for a client's rows g along its
direction d: so its factor was p = B d, its errors A g, and what its rows are multiplied by is sigma = 1 / (A
B). With the factors that the rows were computed at, what pulls on p follows: w = sum_j e_j q_j over its
items, and the same over its attributes. These are what client rules are about (``attacks.identify.rules``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.common_numbers import declared_scale
from attacks.closed_form.numbers.integer_relation import precision_of
from attacks.closed_form.rows.row_readings import best_reading
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.readings import Reading, Rows
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.identify.row_rules import MAX_MISFIT
from victims.transcript.view import ATTRIBUTE, ITEM, Uploads, View


class ClientStates(NamedTuple):
    """Some clients in some rounds; NaN where a client was not read."""

    users: Int[np.ndarray, " users"]
    rounds: Int[np.ndarray, " rounds"]
    factor: Float[np.ndarray, "rounds users K"]  # p, and the pulls on it
    of_items: Float[np.ndarray, "rounds users K"]  # p, and the pulls on it
    of_attributes: Float[np.ndarray, "rounds users K"]  # p, and the pulls on it
    # the pull of the items as they are broadcast in the round that follows, NaN where none does
    of_items_after: Float[np.ndarray, "rounds users K"]
    # sigma in units of the declared scale, mu, steps inside the round, and rows of items
    scale: Float[np.ndarray, "rounds users"]
    # sigma in units of the declared scale, mu, steps inside the round, and rows of items
    pull: Float[np.ndarray, "rounds users"]
    # sigma in units of the declared scale, mu, steps inside the round, and rows of items
    steps: Float[np.ndarray, "rounds users"]
    # sigma in units of the declared scale, mu, steps inside the round, and rows of items
    n_rated: Float[np.ndarray, "rounds users"]
    own_bias: Float[np.ndarray, "rounds users"]  # bias of the client, in stars
    misfit: Float[np.ndarray, "rounds users"]
    # by how much a step of size 1 along the items' pull lessens that pull, relative
    bend: Float[np.ndarray, "rounds users"]
    # whether rows, freed of mu, have one direction to their last digits
    parallel: Bool[np.ndarray, "rounds users"]

    @property
    def read(self) -> Bool[np.ndarray, "rounds users"]:
        """Who was read when."""
        return np.isfinite(self.scale)


def states_of(view: View, missing: float = 0.0) -> ClientStates:
    """Read every client of a view in every round."""
    users, parts = [], []
    for batch in view.batches(BATCH_BYTES):
        users.append(batch.users)
        rounds = [_state(view, uploads, missing) for uploads in batch.rounds]
        parts.append([np.stack(column) for column in zip(*rounds, strict=True)])
    order = np.argsort(np.concatenate(users))
    columns = (np.concatenate(column, axis=1)[:, order] for column in zip(*parts, strict=True))
    return ClientStates(np.concatenate(users)[order], view.rounds, *columns)


def _state(view: View, uploads: Uploads, missing: float) -> tuple[np.ndarray, ...]:
    """The columns of ``ClientStates`` in one round."""
    pull = view.manifest.upload.regularization + missing
    rows = rows_of(view.manifest, uploads, declared_scale(view.manifest), 0.0, pull)
    found = best_reading(rows, view.manifest, MAX_MISFIT)
    clean = rows.rows - found.pull[:, None, None] * rows.factors
    direction, energy = leading_direction(clean)
    parallel = _parallel(clean, direction, energy, rows, uploads)
    told = found.answered
    scalar = np.matmul(clean, direction[:, :, None])[..., 0]
    factor = found.of_factor[:, None] * direction
    of_items = np.einsum("ur,urk->uk", found.of_error[:, None] * scalar, rows.factors)
    of_attributes = _pull_of_attributes(view, uploads, direction, found)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 / (found.of_error * found.of_factor)
    several = found.steps > 1  # such a client has no one factor, and its direction's sign is open
    of_items_after = _pull_after(view, uploads, rows, found, factor)
    for vectors in (factor, of_items, of_attributes, of_items_after):
        vectors[several | ~told] = np.nan
    n_rated = rows.item.sum(axis=1).astype(float)
    along = np.matmul(rows.factors, of_items[:, :, None])[..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        lessened = np.linalg.norm(np.einsum("ur,urk->uk", along, rows.factors), axis=1)
        bend = lessened / np.linalg.norm(of_items, axis=1)
    numbers = (scale, found.pull, found.steps, n_rated, found.own_bias, found.misfit, bend)
    return (
        factor,
        of_items,
        of_attributes,
        of_items_after,
        *(np.where(told, part, np.nan) for part in numbers),
        parallel,
    )


def _parallel(
    clean: Float[np.ndarray, "users rows K"],
    direction: Float[np.ndarray, "users K"],
    energy: Float[np.ndarray, " users"],
    rows: Rows,
    uploads: Uploads,
) -> Bool[np.ndarray, " users"]:
    """Whether rows have one direction, to the last digits of what was sent."""
    across = clean - np.matmul(clean, direction[:, :, None]) * direction[:, None]
    sent = uploads.gradients * rows.item[..., None]
    limit = PARALLEL * precision_of(sent, rows.factors, rows.precision)
    with np.errstate(invalid="ignore"):
        return np.linalg.norm(across, axis=(1, 2)) <= limit * np.sqrt(energy)


def _pull_after(
    view: View,
    uploads: Uploads,
    rows: Rows,
    found: Reading,
    factor: Float[np.ndarray, "users K"],
) -> Float[np.ndarray, "users K"]:
    """sum_j (r_j - p . q'_j) q'_j, q' as broadcast in the next round."""
    known = view.broadcasts.get(uploads.round + 1)
    if known is None:
        return np.full(factor.shape, np.nan)
    shape = rows.item.shape
    index = np.broadcast_to(uploads.index, shape)
    at = known.positions(np.full(shape, ITEM), np.where(rows.item, index, known.item_ids[0]))
    later = np.where(rows.item & (at >= 0), 1.0, 0.0)[..., None] * known.factors[at]
    target = np.where(rows.item, found.value, 0.0) - rows.offset - found.own_bias[:, None] * rows.item
    error = target - np.matmul(later, factor[:, :, None])[..., 0]
    return np.einsum("ur,urk->uk", error, later)


def _pull_of_attributes(
    view: View, uploads: Uploads, direction: Float[np.ndarray, "users K"], found: Reading
) -> Float[np.ndarray, "users K"]:
    """sum_a h_a u_a; zeros where clients send no rows of attributes."""
    shape = uploads.gradients.shape[:2]
    here = np.broadcast_to(uploads.valid & (uploads.kind == ATTRIBUTE), shape)
    if not here.any():
        return np.zeros(direction.shape)
    factors = np.broadcast_to(uploads.factors[uploads.at], uploads.gradients.shape) * here[..., None]
    upload = view.manifest.upload
    rows = (uploads.gradients * here[..., None] - upload.regularization * factors) / upload.scale
    error = found.of_error[:, None] * np.matmul(rows, direction[:, :, None])[..., 0]
    return np.einsum("ur,urk->uk", error, factors)
