"""What a fit of trajectories is told of the protocol and of ratings, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM


class TrajectoryModel(NamedTuple):
    """What the adversary knows of the protocol, and how long a fit may take."""

    manifest: Manifest
    rounds: Int[np.ndarray, " T"]  # consecutive rounds that are fitted
    fresh: bool  # noise is drawn in every round, or once; neither where there is none
    repeated: bool  # noise is drawn in every round, or once; neither where there is none
    stretched: bool  # the fitted values s are W o R, not R
    known_step: bool  # the clients' step and its constants are public, and what rows are multiplied with
    known_scale: bool  # what rows are multiplied with is declared, or is not to be told from the grid
    loose: bool  # the step is known up to what the order of the client's ratings adds to it
    n_starts: int  # random starts of a client, and steps of each
    max_steps: int  # random starts of a client, and steps of each
    # what the program takes off every rating before it learns, in stars, where noise is none or repeats
    lowered: float = 0.0

    @property
    def levels(self) -> Float[np.ndarray, " levels"]:
        """The rating grid, in stars."""
        return np.array(self.manifest.rating_levels)


@dataclass(frozen=True)
class Fitted:
    """The fit of a batch of clients."""

    users: Int[np.ndarray, " users"]  # as in ``Packed``
    kind: Int[np.ndarray, "users n"]  # as in ``Packed``
    index: Int[np.ndarray, "users n"]  # as in ``Packed``
    valid: Bool[np.ndarray, "users n"]  # as in ``Packed``
    same_list: Bool[np.ndarray, " users"]  # as in ``Packed``
    value: Float[np.ndarray, "users n"]  # s and its standard error by the rows alone, in stars
    deviation: Float[np.ndarray, "users n"]  # s and its standard error by the rows alone, in stars
    start: Float[np.ndarray, "users numbers"]  # p^0, and what chance added to the later ones
    path: Float[np.ndarray, "users T K"]  # p^t; empty where no step was fitted
    # s with the prior counted in, from which the next pass starts
    posterior_value: Float[np.ndarray, "users n"]
    # root mean square that is not explained, as a share of the rows' size or in units of fresh noise
    residual: Float[np.ndarray, " users"]
    n_starts: Int[np.ndarray, " users"]  # starts that were tried
    by_grid: Bool[np.ndarray, " users"]  # the rating grid told what rows are multiplied with
    # the rows are exact, and of ratings that are on no multiple of the grid
    off_grid: Bool[np.ndarray, " users"]
    # what items' rows say that clients learn, in stars, under the declared scale and with nothing added; NaN
    # where they say nothing
    learned: Float[np.ndarray, "users n"] | None = None

    def __repr__(self) -> str:
        """One line: of how many clients and rows."""
        return f"Fitted(users={self.users.size}, rows={self.valid.shape[1]})"

    @property
    def item_rows(self) -> Bool[np.ndarray, "users n"]:
        """Rows about items that are fitted."""
        return self.valid & (self.kind == ITEM)


class Prior(NamedTuple):
    """Mean and standard deviation of s, Gaussian, for each client and row (users, n)."""

    mean: Float[np.ndarray, "users n"]
    deviation: Float[np.ndarray, "users n"]
