"""Fits of a batch of clients' factor trajectories, by what the noise allows.

``fit_exact`` serves noise that is none or repeats: the closed forms of ``attacks.trajectory.differencing``
and of rows without noise, then random starts until the rows are explained. Rows of a round without noise are
multiples of the client's factor, whose length is what ``attacks.closed_form.spectral`` finds it to be: a
start like any other, which the whole trajectory has to confirm. ``fit_fresh`` serves fresh noise of known
scale: maximum a posteriori.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.client_rules.client_update import step_of
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import step_of as step_of_grid
from attacks.closed_form.spectral import factor_lengths
from attacks.closed_form.uploads.reduction import projection, reduce_rows
from attacks.trajectory.differencing import DifferencingEstimate, from_differences
from attacks.trajectory.factor_trajectories import Packed
from attacks.trajectory.least_squares import Fit, costs, fit
from attacks.trajectory.normal_equations import Problem
from attacks.trajectory.trajectory_model import Fitted, Prior, TrajectoryModel
from victims.transcript.view import ITEM, UserBatch

EXACT = 1e-6  # share of the rows' own size that an exact answer may leave
SHORT_STEPS = 12  # of a fit that looks at the first rounds only
EXPLAINED = 1e-3  # the same, of what may be compared with the grid, whatever else it is
HORIZONS = (2, 5)  # rounds that the first fits of a start look at
ENOUGH = 0.1  # nats by which a step must still improve a posterior


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


def fit_exact(
    model: TrajectoryModel, packed: Packed, closed: RankOneStart, rng: np.random.Generator
) -> Fitted:
    """Fit a batch whose noise is none or repeats: a closed form where it is clear, else random starts."""
    there = packed.valid[:, None, :, None]
    moving = packed.rows - packed.rows.mean(axis=1, keepdims=True) if model.repeated else packed.rows
    counted = packed.valid.sum(axis=1) * packed.rows.shape[1] * packed.rows.shape[3]
    size = np.sqrt((moving**2).sum(axis=(1, 2, 3)) / np.maximum(counted, 1))
    weight = np.broadcast_to(there / np.where(size > 0, size, 1.0)[:, None, None, None], packed.rows.shape)
    nothing = np.zeros(packed.valid.shape)
    declared, guess = _from_differences(model, packed)
    out = replace(
        _blank(packed), off_grid=guess.off_grid & ~(packed.valid & (packed.kind != ITEM)).any(axis=1)
    )
    clear = np.flatnonzero(((guess.misfit < EXACT) | guess.on_grid) & packed.same_list)
    out.value[clear], out.start[clear] = guess.value[clear], guess.start[clear]
    out.residual[clear], out.n_starts[clear] = guess.misfit[clear], 1
    out.by_grid[clear] = guess.on_grid[clear]
    _explained_by(closed, out, model, packed, weight, counted)
    for attempt in range(model.n_starts if model.known_step else 0):
        open_ = np.flatnonzero((out.residual > EXACT) & packed.same_list)
        if open_.size == 0:
            break
        start, value = _random_start(model, packed, rng)
        if attempt == 0:
            for usable, one in ((closed.there, closed), (np.isfinite(guess.misfit), guess)):
                start = np.where(usable[:, None], one.start, start)
                value = np.where(usable[:, None], one.value, value)
        chosen = _padded(open_)
        problem = _problem(model, packed, weight, Prior(nothing, nothing), 0.0, chosen)
        found = fit(
            problem,
            jnp.asarray(start[chosen]),
            jnp.asarray(value[chosen]),
            repeated=model.repeated,
            steps=model.max_steps,
        )
        left = np.sqrt(2 * np.asarray(found.cost)[: open_.size] / np.maximum(counted[open_], 1))
        better = left < out.residual[open_]
        here = open_[better]
        out.value[here] = np.asarray(found.value)[: open_.size][better]
        out.start[here] = np.asarray(found.start)[: open_.size][better]
        out.residual[here], out.by_grid[here] = left[better], False
        out.n_starts[open_] += 1
    learned = _learned(out, declared) if model.known_scale else None
    out.value[packed.valid & (packed.kind == ITEM)] += model.lowered
    return replace(out, learned=learned)


def _explained_by(
    closed: RankOneStart,
    out: Fitted,
    model: TrajectoryModel,
    packed: Packed,
    weight: Float[np.ndarray, "users T n K"],
    counted: Int[np.ndarray, " users"],
) -> None:
    """Take a closed form for the fit of the clients whose rows follow from it by the declared step."""
    here = np.flatnonzero(closed.there & (out.residual > EXACT))
    if here.size == 0:
        return
    chosen, nothing = _padded(here), np.zeros(packed.valid.shape)
    problem = _problem(model, packed, weight, Prior(nothing, nothing), 0.0, chosen)
    cost = np.asarray(costs(problem, closed.start[chosen], closed.value[chosen]))[: here.size]
    left = np.sqrt(2 * cost / np.maximum(counted[here], 1))
    here, left = here[left <= EXACT], left[left <= EXACT]
    out.value[here], out.start[here] = closed.value[here], closed.start[here]
    out.residual[here], out.n_starts[here], out.by_grid[here] = left, 1, False


def _padded(members: Int[np.ndarray, " some"]) -> Int[np.ndarray, " more"]:
    """As many clients as a power of two, so that few shapes are compiled."""
    return np.resize(members, 1 << int(members.size - 1).bit_length())


def _learned(out: Fitted, declared: DifferencingEstimate) -> Float[np.ndarray, "users n"]:
    """What clients learn under the declared scale, of whom rows are explained so."""
    value = np.where(out.by_grid[:, None], declared.value, out.value)
    left = np.where(out.by_grid, declared.misfit, out.residual)
    return np.where(out.item_rows & (left < EXPLAINED)[:, None], value, np.nan)


def _from_differences(
    model: TrajectoryModel, packed: Packed
) -> tuple[DifferencingEstimate, DifferencingEstimate]:
    """The closed form under the declared scale, and under any where the answer is then off the grid."""
    known = packed.rows, packed.factors, packed.row_weight, packed.valid
    if not model.known_scale:
        any_scale = from_differences(*known, model.levels, model.lowered)
        return any_scale, any_scale
    declared = from_differences(*known)
    if model.stretched:
        return declared, declared
    away = distance_to_levels(declared.value + model.lowered, model.levels)
    off = np.where(packed.valid, away, 0).max(axis=1, initial=0)
    other = from_differences(*known, model.levels, model.lowered)
    better = (
        model.repeated
        & other.on_grid
        & ((off > step_of_grid(model.levels) / 4) | ~np.isfinite(declared.misfit))
    )
    chosen = DifferencingEstimate(
        np.where(better[:, None], other.start, declared.start),
        np.where(better[:, None], other.value, declared.value),
        np.where(better, other.misfit, declared.misfit),
        better,
        other.off_grid,
    )
    return declared, chosen


def fit_fresh(
    model: TrajectoryModel,
    packed: Packed,
    prior: Prior,
    warm: Fitted | None,
    rng: np.random.Generator,
    step_deviation: Float[np.ndarray, "users rounds"] | None = None,
) -> Fitted:
    """Fit a batch under fresh noise of known scale, a posteriori."""
    assert packed.deviation is not None
    users = packed.users.size
    weight = packed.valid[:, None, :, None] / packed.deviation
    chosen = _padded(np.arange(users))
    rounds = packed.rows.shape[1]

    def improved(start: np.ndarray, value: np.ndarray, horizon: int) -> Fit:
        seen = weight * (np.arange(rounds) < horizon)[:, None, None]
        problem = _problem(model, packed, seen, prior, 1.0, chosen, step_deviation)
        steps = model.max_steps if horizon == rounds else min(model.max_steps, SHORT_STEPS)
        return fit(
            problem, jnp.asarray(start), jnp.asarray(value), repeated=False, steps=steps, enough=ENOUGH
        )

    if warm is not None:
        added = 0 if step_deviation is None else step_deviation.shape[1]  # 0 where the earlier fit had none
        numbers = (1 + added) * packed.rows.shape[3]
        start = np.pad(warm.start[chosen], ((0, 0), (0, numbers)))[:, :numbers]
        found = improved(start, warm.posterior_value[chosen], rounds)
    else:
        start, value = _random_start(model, packed, rng)[0][chosen], prior.mean[chosen]
        # a client's course is smooth in its start over few rounds, so that the horizon grows
        for horizon in sorted({min(first, rounds) for first in (*HORIZONS, rounds)}):
            found = improved(start, value, horizon)
            start, value = np.asarray(found.start), np.asarray(found.value)
    counted = packed.valid.sum(axis=1) * packed.rows.shape[1] * packed.rows.shape[3]
    value, deviation, begin, path = (
        np.asarray(part)[:users] for part in (found.value, found.deviation, found.start, found.factor)
    )
    left = np.sqrt(2 * np.asarray(found.cost)[:users] / np.maximum(counted, 1))
    alone, spread = _without(prior, value, deviation)
    nobody = np.zeros(users, bool)
    return _fitted(packed, alone, spread, begin, path, value, left, np.ones(users, int), nobody, nobody)


def _without(prior: Prior, value: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the rows alone say: a Gaussian posterior divided by its prior."""
    with np.errstate(divide="ignore", invalid="ignore"):
        whole, before = 1 / deviation**2, np.where(prior.deviation > 0, 1 / prior.deviation**2, 0)
        precision = np.where(np.isfinite(whole), np.maximum(whole - before, 1e-6 * whole), 0)
        alone = (value * whole - prior.mean * before) / precision
        spread = 1 / np.sqrt(precision)
    usable = np.isfinite(alone) & np.isfinite(spread)
    return np.where(usable, alone, prior.mean), np.where(usable, spread, 1e6)


def _blank(packed: Packed) -> Fitted:
    """Nothing found yet."""
    users, n = packed.valid.shape
    value, deviation, following = (np.zeros((users, n)) for _ in range(3))
    start, path = np.zeros((users, packed.rows.shape[3])), np.zeros((users, 0, packed.rows.shape[3]))
    left, tried = np.full(users, np.inf), np.zeros(users, int)
    by_grid, off_grid = np.zeros(users, bool), np.zeros(users, bool)
    return _fitted(packed, value, deviation, start, path, following, left, tried, by_grid, off_grid)


def _fitted(packed: Packed, *answers: Any) -> Fitted:
    """Answers beside what they are about."""
    return Fitted(packed.users, packed.kind, packed.index, packed.valid, packed.same_list, *answers)


def _problem(
    model: TrajectoryModel,
    packed: Packed,
    weight: np.ndarray,
    prior: Prior,
    start_precision: float,
    chosen: np.ndarray,
    step_deviation: np.ndarray | None = None,
) -> Problem:
    """What is fitted, for some clients of a batch; a prior without a deviation is none."""
    spread = np.where(prior.deviation > 0, prior.deviation, np.inf)
    precision = np.where(packed.valid, 1 / spread**2, 1.0)
    return Problem(
        rows=jnp.asarray(packed.rows[chosen]),
        factors=jnp.asarray(packed.factors[chosen]),
        weight=jnp.asarray(weight[chosen]),
        row_weight=jnp.asarray(packed.row_weight[chosen]),
        mean=jnp.asarray(prior.mean[chosen]),
        precision=jnp.asarray(precision[chosen]),
        start_precision=jnp.asarray(start_precision),
        step=step_of(model.manifest, model.rounds, packed.valid.sum(axis=1)[chosen]),
        broadcast=None if packed.broadcast is None else jnp.asarray(packed.broadcast[chosen]),
        step_deviation=None if step_deviation is None else jnp.asarray(step_deviation[chosen]),
    )


def _middle(model: TrajectoryModel) -> float:
    """A first guess of s."""
    return float(np.mean(model.manifest.rating_levels)) * (0.3 if model.stretched else 1.0)


def _random_start(
    model: TrajectoryModel, packed: Packed, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "users K"], Float[np.ndarray, "users n"]]:
    """p^0 in the unit ball, and one value for all of a client's ratings."""
    users, k = packed.users.size, packed.rows.shape[3]
    direction = rng.standard_normal((users, k))
    direction *= rng.uniform(0.05, 1, (users, 1)) / np.linalg.norm(direction, axis=1, keepdims=True)
    return direction, _middle(model) * rng.uniform(0.5, 2, (users, 1)) * packed.valid


def flat_prior(model: TrajectoryModel, packed: Packed) -> Prior:
    """Make the prior of the first pass: the middle of the grid, as wide as it is high."""
    middle = _middle(model)
    return Prior(np.full(packed.valid.shape, middle) * packed.valid, np.full(packed.valid.shape, middle))
