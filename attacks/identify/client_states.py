"""What one round's rows tell of each client's factor, whatever rule moved it.

A reading (``attacks.closed_form.row_readings``) gives r = A g + B h for a client's rows g along its direction
d: so its factor was p = B d, its errors A g, and what its rows are multiplied by is sigma = 1 / (A B). With
the factors that the rows were computed at, what pulls on p follows: w = sum_j e_j q_j over its items, and the
same over its attributes. These are what client rules are about (``attacks.identify.rules``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.readings import Reading
from attacks.closed_form.reduction import leading_direction
from attacks.closed_form.row_readings import best_reading
from attacks.closed_form.undeclared import BATCH_BYTES, DECLARED, rows_of
from victims.transcript.view import ATTRIBUTE, Uploads, View

MAX_MISFIT = 0.1  # of readings that rules are learned from


class ClientStates(NamedTuple):
    """Some clients in some rounds; NaN where a client was not read.

    Attributes
    ----------
    users : (n_users,)
    rounds : (n_rounds,)
    factor, of_items, of_attributes : (n_rounds, n_users, K)
        p, and the pulls on it.
    scale, pull, steps, n_rated : (n_rounds, n_users)
        sigma in units of the declared scale, mu, steps inside the round, and rows of items.
    own_bias : (n_rounds, n_users)
        Bias of the client, in stars.
    misfit : (n_rounds, n_users)
    """

    users: Int[np.ndarray, " users"]
    rounds: Int[np.ndarray, " rounds"]
    factor: Float[np.ndarray, "rounds users K"]
    of_items: Float[np.ndarray, "rounds users K"]
    of_attributes: Float[np.ndarray, "rounds users K"]
    scale: Float[np.ndarray, "rounds users"]
    pull: Float[np.ndarray, "rounds users"]
    steps: Float[np.ndarray, "rounds users"]
    n_rated: Float[np.ndarray, "rounds users"]
    own_bias: Float[np.ndarray, "rounds users"]
    misfit: Float[np.ndarray, "rounds users"]

    @property
    def read(self) -> Bool[np.ndarray, "rounds users"]:
        """Who was read when."""
        return np.isfinite(self.scale)


def states_of(view: View) -> ClientStates:
    """Read every client of a view in every round.

    Parameters
    ----------
    view : View
        With uploads of items in the clear.

    Returns
    -------
    ClientStates
    """
    users, parts = [], []
    for batch in view.batches(BATCH_BYTES):
        users.append(batch.users)
        rounds = [_state(view, uploads) for uploads in batch.rounds]
        parts.append([np.stack(column) for column in zip(*rounds, strict=True)])
    order = np.argsort(np.concatenate(users))
    columns = (np.concatenate(column, axis=1)[:, order] for column in zip(*parts, strict=True))
    return ClientStates(np.concatenate(users)[order], view.rounds, *columns)


def _state(view: View, uploads: Uploads) -> tuple[np.ndarray, ...]:
    """The columns of ``ClientStates`` in one round."""
    rows = rows_of(view.manifest, uploads, DECLARED if view.manifest.scale_known else None)
    found = best_reading(rows, view.manifest, MAX_MISFIT)
    clean = rows.rows - found.pull[:, None, None] * rows.factors
    direction, _ = leading_direction(clean)
    told = found.answered
    scalar = np.matmul(clean, direction[:, :, None])[..., 0]
    factor = found.of_factor[:, None] * direction
    of_items = np.einsum("ur,urk->uk", found.of_error[:, None] * scalar, rows.factors)
    of_attributes = _pull_of_attributes(view, uploads, direction, found)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 / (found.of_error * found.of_factor)
    several = found.steps > 1  # such a client has no one factor, and its direction's sign is open
    for vectors in (factor, of_items, of_attributes):
        vectors[several | ~told] = np.nan
    n_rated = rows.item.sum(axis=1).astype(float)
    numbers = (scale, found.pull, found.steps, n_rated, found.own_bias, found.misfit)
    return factor, of_items, of_attributes, *(np.where(told, part, np.nan) for part in numbers)


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
