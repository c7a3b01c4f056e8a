"""All batches of a view fitted; under fresh noise in passes, with a prior of s learned from the one before.

Where clients step in an order that nobody sees, the first pass takes the average over the orders for the
step, nearly that of a few steps over all ratings (``attacks.client_rules.client_update.one_by_one``), and
later ones leave it as much room as the orders differ: a few are drawn, and followed from the factors and
ratings that a fit found. No truth is used, and the order that the client took stays unknown.

References
----------
arXiv:2212.00306, Algorithm 1, whose published numbers need a step after every rating.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from attacks.base import Progress
from attacks.client_rules.client_update import Step, gram_of, move, step_of, target_of
from attacks.trajectory.exact_weights import taken_apart
from attacks.trajectory.factor_trajectories import Packed, batches, pack
from attacks.trajectory.stretched_ratings import Separated, on_grid, unstretch
from attacks.trajectory.trajectory_fits import fit_exact, fit_fresh, flat_prior, from_rank_one
from attacks.trajectory.trajectory_model import Fitted, Prior, TrajectoryModel
from victims.common.seeds import Purpose, generator
from victims.transcript.view import View

PRIOR_PASSES = 2
ORDERS = 4  # that are drawn
LEAST = 1e-6  # deviation, for a precision that can be computed with


def order_spread(
    packed: Packed,
    step: Step,
    path: Float[np.ndarray, "users T K"],
    value: Float[np.ndarray, "users n"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "users rounds"]:
    """How far a pass in one order ends from what ``move`` says, round by round."""
    used = packed.factors if packed.broadcast is None else packed.broadcast
    seen = (used[:, 1:] if bool(step.after) else used[:, :-1]) * packed.valid[:, None, :, None]
    shrink, pull = np.asarray(step.shrink)[:, :-1], np.asarray(step.pull)[:-1]
    middle = _at_once(step, path[:, :-1], seen, value, shrink, pull)
    n_rated = np.maximum(packed.valid.sum(axis=1), 1)
    keep = 1 - (1 - shrink) / n_rated[:, None]  # a rating's share of the regularisation
    square = np.zeros(middle.shape[:2])
    for _ in range(ORDERS):
        away = _one_by_one(step, path[:, :-1], seen, value, packed.valid, keep, pull, rng) - middle
        square += (away**2).mean(axis=2)
    return np.maximum(np.sqrt(square / ORDERS), LEAST)


def _at_once(
    step: Step,
    path: Float[np.ndarray, "users rounds K"],
    seen: Float[np.ndarray, "users rounds n K"],
    value: Float[np.ndarray, "users n"],
    shrink: Float[np.ndarray, "users rounds"],
    pull: Float[np.ndarray, " rounds"],
) -> Float[np.ndarray, "users rounds K"]:
    """As the fit takes it."""
    met = jnp.asarray(seen)
    gram, target = gram_of(met, met), jax.vmap(target_of)(met, jnp.asarray(value))
    by_round = jax.vmap(move, in_axes=(None, 0, 0, 0, 0, 0))
    by_client = jax.jit(jax.vmap(by_round, in_axes=(None, 0, 0, 0, 0, None)))
    return np.asarray(
        by_client(step, jnp.asarray(path), gram, target, jnp.asarray(shrink), jnp.asarray(pull))
    )


def _one_by_one(
    step: Step,
    path: Float[np.ndarray, "users rounds K"],
    seen: Float[np.ndarray, "users rounds n K"],
    value: Float[np.ndarray, "users n"],
    valid: np.ndarray,
    keep: Float[np.ndarray, "users rounds"],
    pull: Float[np.ndarray, " rounds"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "users rounds K"]:
    """One order of each client and round, drawn at random."""
    users, rounds, n, _ = seen.shape
    order = rng.random((users, rounds, n)).argsort(axis=2)
    factor, client = path, np.arange(users)[:, None]
    for number in range(n):
        row = order[:, :, number]
        t = np.take_along_axis(seen, row[:, :, None, None], axis=2)[:, :, 0]
        error = value[client, row] - np.einsum("urk,urk->ur", factor, t)
        moved = keep[:, :, None] * factor + (pull * error)[:, :, None] * t
        if bool(step.projected):
            moved = moved / np.maximum(np.linalg.norm(moved, axis=2, keepdims=True), 1.0)
        factor = np.where(valid[client, row][:, :, None], moved, factor)
    return factor


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
