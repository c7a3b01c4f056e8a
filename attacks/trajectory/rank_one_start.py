"""The closed form of rows without noise: those of a round are multiples of the client's factor.

Its length is what ``attacks.closed_form.spectral`` finds it to be, by the client's step or by ratings that do
not change between two rounds; ratings follow. What is found is a start like any other: the whole trajectory
has to explain the rows (``attacks.trajectory.trajectory_fits``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.spectral import factor_lengths
from attacks.closed_form.uploads.reduction import projection, reduce_rows
from attacks.trajectory.factor_trajectories import Packed
from attacks.trajectory.trajectory_model import TrajectoryModel
from victims.transcript.view import UserBatch


class RankOneStart(NamedTuple):
    """p of the first round (users, K), s (users, n), and for whom there is such a start."""

    start: Float[np.ndarray, "users K"]
    value: Float[np.ndarray, "users n"]
    there: Bool[np.ndarray, " users"]


def from_rank_one(model: TrajectoryModel, batch: UserBatch, packed: Packed) -> RankOneStart:
    """Start and ratings of a batch by linear algebra; of nobody where noise repeats or no scale is known."""
    users, n = packed.valid.shape
    nothing = RankOneStart(
        np.zeros((users, model.manifest.factors)), np.zeros((users, n)), np.zeros(users, bool)
    )
    if model.repeated or not (model.known_scale and model.known_step):
        return nothing
    rounds = tuple(uploads for uploads in batch.rounds if uploads.round in model.rounds)
    # finite files may hold numbers whose squares are not
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        reduced = [reduce_rows(model.manifest, uploads) for uploads in rounds]
        length = factor_lengths(model.manifest, UserBatch(batch.users, rounds), reduced)[0]
        first = reduced[0]
        start = first.direction * length[:, None]
        sent = first.scalar.shape[1]
        error = first.scalar / (length[:, None] * packed.row_weight[:, :sent])
        value = np.pad(error + projection(rounds[0], start), ((0, 0), (0, n - sent)))
    value = np.where(packed.valid, value, 0)
    there = (length > 0) & packed.same_list & np.isfinite(value).all(axis=1)
    value, start = (np.where(there[:, None], part, 0) for part in (value, start))
    sign = np.where(value.sum(axis=1) < 0, -1.0, 1.0)[:, None]
    return RankOneStart(sign * start, sign * value, there)
