"""Rows of clients as coordinates along their own leading directions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

DIRECTIONS = 2  # of a client's rows: one step has one, a factor that moves during a pass a second
MOST_ROWS = 4096  # of a client that are read at once


class Forms(NamedTuple):
    """Some clients' rows of one round; 0 on padding."""

    coordinates: Float[np.ndarray, "clients rows directions"]  # root mean square of the first is 1
    along: Float[np.ndarray, "clients rows"]  # of the broadcast factors along the first direction; the same
    there: Bool[np.ndarray, "clients rows"]
    log_size: Float[np.ndarray, " clients"]  # of what both were divided by, together
    given: Float[
        np.ndarray, "clients rows"
    ]  # that predictions are known to have beside, in units of the model


def forms_of(
    rows: Float[np.ndarray, "clients rows K"],
    factors: Float[np.ndarray, "clients rows K"],
    there: Bool[np.ndarray, "clients rows"],
    given: Float[np.ndarray, "clients rows"],
) -> Forms:
    """Put each client's rows, and the factors of its items, along the singular vectors of the rows."""
    rows, factors = rows * there[..., None], factors * there[..., None]
    largest = np.abs(rows).max(axis=(1, 2), initial=0.0)
    rows = rows / np.where(largest > 0, largest, 1.0)[:, None, None]
    _, _, directions = np.linalg.svd(rows, full_matrices=False)
    leading = directions[:, :DIRECTIONS]
    if leading.shape[1] < DIRECTIONS:
        leading = np.pad(leading, ((0, 0), (0, DIRECTIONS - leading.shape[1]), (0, 0)))
    coordinates = np.einsum("crk,cdk->crd", rows, leading)
    along = np.einsum("crk,ck->cr", factors, leading[:, 0])
    n_rows = np.maximum(there.sum(axis=1), 1)
    sizes = np.sqrt(np.stack([(coordinates[..., 0] ** 2).sum(1), (along**2).sum(1)]) / n_rows)
    sizes = np.maximum(sizes, 1e-300)
    log_size = np.log(sizes).sum(axis=0) + np.log(np.where(largest > 0, largest, 1.0))
    return Forms(
        coordinates / sizes[0][:, None, None], along / sizes[1][:, None], there, log_size, given * there
    )


def padded(forms: Forms, n_rows: int) -> Forms:
    """The same with room for so many rows."""
    more = ((0, 0), (0, n_rows - forms.there.shape[1]))
    return Forms(
        np.pad(forms.coordinates, (*more, (0, 0))),
        np.pad(forms.along, more),
        np.pad(forms.there, more),
        forms.log_size,
        np.pad(forms.given, more),
    )


def some_of(forms: Forms, here: Int[np.ndarray, " some"]) -> Forms:
    """Some of the clients."""
    return Forms(*(part[here] for part in forms))
