"""All batches of a view fitted; under fresh noise in passes, with a prior of s learned from the one before.

Where clients step in an order that nobody sees, the first pass takes the average over the orders for the
step, and later ones leave it as much room as the orders differ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.base import Progress
from attacks.client_rules.client_update import step_of
from attacks.trajectory.exact_weights import taken_apart
from attacks.trajectory.factor_trajectories import Packed, batches, pack
from attacks.trajectory.order_spread import order_spread
from attacks.trajectory.rank_one_start import from_rank_one
from attacks.trajectory.stretched_ratings import Separated, on_grid, unstretch
from attacks.trajectory.trajectory_fits import fit_exact, fit_fresh, flat_prior
from attacks.trajectory.trajectory_model import Fitted, Prior, TrajectoryModel
from victims.common.seeds import Purpose, generator
from victims.transcript.view import View

PRIOR_PASSES = 2


def fit_clients(
    view: View, model: TrajectoryModel, key: int, progress: Progress, prior_passes: int = PRIOR_PASSES
) -> list[Fitted]:
    """Fit the trajectories of all clients."""
    passes = prior_passes if model.fresh else 1
    fits: list[Fitted] = []
    for number in range(passes):
        earlier, fits = fits, []
        priors = learned_priors(model, earlier) if earlier else None
        rng = generator(key, Purpose.TRAJECTORY_STARTS)
        done = number * view.users.size
        for position, members in enumerate(batches(view, model.rounds.size, loose=model.loose)):
            batch = view.batch(members)
            packed = pack(view, batch, model.rounds)
            if model.fresh:
                prior = priors[position] if priors else flat_prior(model, packed)
                warm = earlier[position] if earlier else None
                unsure = _step_deviation(model, packed, warm, key) if model.loose and warm else None
                fits.append(fit_fresh(model, packed, prior, warm, rng, unsure))
            else:
                fits.append(fit_exact(model, packed, from_rank_one(model, batch, packed), rng))
            done += packed.users.size
            progress(done, passes * view.users.size)
    return fits


def _step_deviation(
    model: TrajectoryModel, packed: Packed, fit: Fitted, key: int
) -> Float[np.ndarray, "users rounds"]:
    """What the order of the ratings adds to each step, by the fit so far."""
    step = step_of(model.manifest, model.rounds, packed.valid.sum(axis=1))
    rng = generator(key, Purpose.TRAJECTORY_STARTS, int(packed.users[0]))
    return order_spread(packed, step, fit.path, fit.posterior_value, rng)


class Entries(NamedTuple):
    """The rows of several batches, flat: client, item, s and its standard error, (n_entries,) each."""

    user: Int[np.ndarray, " entries"]
    item: Int[np.ndarray, " entries"]
    value: Float[np.ndarray, " entries"]
    deviation: Float[np.ndarray, " entries"]


def entries_of(fits: list[Fitted]) -> Entries:
    """Flatten the valid rows of batches, in their order."""
    user = np.concatenate([np.broadcast_to(f.users[:, None], f.valid.shape)[f.valid] for f in fits])
    index, value, deviation = (
        np.concatenate([column[valid] for column, valid in pairs])
        for pairs in (
            [(f.index, f.valid) for f in fits],
            [(f.value, f.valid) for f in fits],
            [(f.deviation, f.valid) for f in fits],
        )
    )
    return Entries(user, index, value, deviation)


def separated(model: TrajectoryModel, entries: Entries) -> Separated:
    """Separate ratings and weights of all clients together; where nothing is stretched all weights are 1."""
    if not model.stretched:
        return on_grid(*entries, model.levels)
    if not model.fresh:
        exact = taken_apart(*entries, model.levels)
        if np.isfinite(exact.user_weight).any():
            return exact
    return unstretch(*entries, model.levels)  # also of clients who share too few items for ratios


def learned_priors(model: TrajectoryModel, fits: list[Fitted]) -> list[Prior]:
    """Estimate mean and spread of s from the weights and the shares of levels that a pass found."""
    levels = model.levels
    entries = entries_of(fits)
    ratings = separated(model, entries)
    scale = ratings.user_weight[entries.user] * ratings.item_weight[entries.item]
    mean, square = ratings.level_share @ levels, ratings.level_share @ levels**2
    spread = np.sqrt(np.maximum(square - mean**2, 0.01 * mean**2))
    ends = np.cumsum([int(fit.valid.sum()) for fit in fits])[:-1]
    priors = []
    for fit, own_scale in zip(fits, np.split(scale, ends), strict=True):
        means, deviations = (np.zeros(fit.valid.shape) for _ in range(2))
        means[fit.valid], deviations[fit.valid] = own_scale * mean, own_scale * spread
        priors.append(Prior(means, deviations))
    return priors
