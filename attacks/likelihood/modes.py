"""Posteriors of all clients, and what they say as answers.

Where p is free they are those of Markov chains (``attacks.likelihood.chains``). Where it is tied to the
ratings, several modes of a client's likelihood are mixed: all ratings one level higher and p moved
accordingly explain a single round's uploads nearly as well, so that one mode alone claims too much. Each is
ascended to with random effects in the prior of its own, for a client whose ratings are one level higher is a
more generous client, and counts by its evidence. Many rounds leave one mode: one that no client of a batch
can need is dropped before it is settled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from attacks.base import Estimates
from attacks.likelihood.ascent import ascend_batch, summarise_batch
from attacks.likelihood.chains import integrate
from attacks.likelihood.learning import QUICK
from attacks.likelihood.model import Answers, AnyArray, Model, Point
from attacks.likelihood.prior import effect_cost, effect_gain, with_better_effects
from attacks.likelihood.problem import BatchCache, Parameters, prior_of
from attacks.likelihood.starts import shift_of_one, start_lam
from attacks.likelihood.summaries import Summary
from victims.common.seeds import Purpose, jax_key
from victims.transcript.view import ATTRIBUTE, ITEM

MOVES = 8  # of each chain for each draw that is asked for, where p is free
SETTLING = 3  # steps of the clients' own random effects at a mode
SAME_MODE = 0.25  # of the way to the next level, within which two ascents ended at the same mode
SOON = 3  # parts of the way to another mode, after the first of which one sees who goes back
HOPELESS = 20.0  # nats behind the start, after which a mode's share of the answers is not worth its time


class Reading(NamedTuple):
    """What is known of a batch's clients."""

    answers: Answers  # posteriors over all modes
    evidence: Float[np.ndarray, " users"]  # the largest log marginal likelihood against noise alone, in nats
    length: Float[np.ndarray, " users"]  # mean norm of p_i at that mode, in stars
    factor: Float[np.ndarray, "users K"]  # p_i in the last round there


class Mode(NamedTuple):
    """A mode on the way to it."""

    parameters: Parameters  # with the clients' own random effects there
    point: Point
    evidence: Float[np.ndarray, " users"]  # log marginal likelihood less the effects' cost, in nats
    gain: Float[np.ndarray, " users"]  # what better effects gain, in nats


Keep = Callable[[list[Mode], Float[np.ndarray, "users rounds K"]], list[Mode]]


def needed(modes: list[Mode], step: Float[np.ndarray, "users rounds K"]) -> list[Mode]:
    """Drop modes that no client of the batch needs.

    Those where every client is back at the start, or has so much less evidence that better effects cannot
    make up for it: they gain what Newton's method says, or twice as much where it errs.
    """
    start, *others = modes
    behind = [mode.evidence + 2 * mode.gain < start.evidence - HOPELESS for mode in others]
    at = np.asarray(start.point.p)
    back = [_near(np.asarray(mode.point.p), at, step) for mode in others]
    return [start, *(others[n] for n in range(len(others)) if not (behind[n] | back[n]).all())]


def read(
    batches: BatchCache,
    parameters: Parameters,
    batch: int,
    start: Point,
    samples: int,
    keep: Keep = needed,
) -> Reading:
    """The start and the modes one level above and below it, all together."""
    problem = batches.problem
    if not problem.model.tied:
        return _integrated(batches, parameters, batch, start, samples)
    levels = np.array(problem.view.manifest.rating_levels)
    unit = float(np.median(np.diff(levels))) if levels.size > 1 else 1.0
    step = unit * np.asarray(shift_of_one(batches.rows(batch)))
    unknown = np.full(start.p.shape[0], np.nan)
    modes = [Mode(parameters, start, unknown, unknown)]
    for way in (step, -step):
        modes += _moved(batches, batch, modes[0], way, keep)
    for _ in range(SETTLING):
        modes = keep([_with_better_effects(batches, batch, mode) for mode in modes], step)
    settled = [_settled(batches, batch, mode, samples) for mode in modes]
    where = np.stack([np.asarray(point.p) for point, _, _ in settled])
    share = shares(np.stack([weight for _, _, weight in settled]), repeated(where, step))
    answers = jax.tree.map(lambda *parts: mixture(share, parts), *(found.answers for _, found, _ in settled))
    best, everyone = share.argmax(axis=0), np.arange(share.shape[1])
    length = np.linalg.norm(where, axis=-1).mean(axis=-1)
    alone = np.stack([np.asarray(found.evidence) for _, found, _ in settled])
    return Reading(answers, alone[best, everyone], length[best, everyone], where[best, everyone, -1])


def _integrated(
    batches: BatchCache, parameters: Parameters, batch: int, start: Point, samples: int
) -> Reading:
    """Where p is free: chains that begin at the start."""
    problem, prior = batches.problem, prior_of(batches.problem, parameters, batch)
    found = summarise_batch(batches, parameters, batch, start, samples)
    known = problem.attribute_factors, batches.rows(batch), parameters.constants, prior
    key = jax_key(problem.key, Purpose.POSTERIOR_DRAWS, batch)
    answers, p = integrate(problem.model, *known, start, parameters.spread.user, MOVES * samples, key)
    length = np.linalg.norm(p, axis=-1).mean(axis=-1)
    return Reading(answers, np.asarray(found.evidence), length, np.asarray(p)[:, -1])


def _moved(
    batches: BatchCache, batch: int, start: Mode, step: Float[np.ndarray, "users rounds K"], keep: Keep
) -> list[Mode]:
    """On the way to the mode that far away; nothing where all clients soon go back to the start."""
    model, p = batches.problem.model, np.asarray(start.point.p) + step
    mode = start._replace(point=Point(p, start_lam(model, p)))
    steps = max(SOON, batches.problem.steps // 2)
    for n_steps in (steps // SOON, steps - steps // SOON):
        mode = mode._replace(point=ascend_batch(batches, mode.parameters, batch, mode.point, n_steps))
        if len(keep([start, mode], step)) == 1:
            return []
    return [mode]


def _with_better_effects(batches: BatchCache, batch: int, mode: Mode) -> Mode:
    """Closer to the mode, with better random effects of the clients' own."""
    problem, parameters = batches.problem, mode.parameters
    point, found, weight = _settled(batches, batch, mode, QUICK)
    if not problem.estimated:
        return Mode(parameters, point, weight, np.zeros_like(weight))
    prior, spread = prior_of(problem, parameters, batch), parameters.spread.user
    gain = effect_gain(problem.model, prior.user, found.moments.user, spread)
    size = problem.packing.sizes[batch]
    better = with_better_effects(problem.model, prior, found.moments, spread)
    user = np.array(parameters.prior.user)
    user[problem.packing.members[batch][:size]] = np.asarray(better.user)[:size]
    parameters = parameters._replace(prior=parameters.prior._replace(user=user))
    return Mode(parameters, point, weight, gain)


def _settled(
    batches: BatchCache, batch: int, mode: Mode, samples: int
) -> tuple[Point, Summary, Float[np.ndarray, " users"]]:
    """The mode, what is known there, and the evidence less the effects' cost."""
    problem, parameters = batches.problem, mode.parameters
    point = ascend_batch(batches, parameters, batch, mode.point, max(3, problem.steps // 3))
    found = summarise_batch(batches, parameters, batch, point, samples)
    user = prior_of(problem, parameters, batch).user
    cost = effect_cost(problem.model, user, found.moments.user, parameters.spread.user)
    return point, found, np.asarray(found.evidence) - cost


def _near(
    modes: Float[np.ndarray, "*modes users rounds K"],
    other: Float[np.ndarray, "users rounds K"],
    step: Float[np.ndarray, "users rounds K"],
) -> Bool[np.ndarray, "*modes users"]:
    """Which factors are, client by client, at the same mode as the other ones."""
    away = np.linalg.norm(modes - other, axis=(-2, -1))
    near: np.ndarray = away < SAME_MODE * np.linalg.norm(step, axis=(-2, -1))
    return near


def repeated(
    modes: Float[np.ndarray, "modes users rounds K"], step: Float[np.ndarray, "users rounds K"]
) -> Bool[np.ndarray, "modes users"]:
    """Tell which ascents ended where an earlier one did."""
    out = np.zeros(modes.shape[:2], bool)
    for later in range(1, len(modes)):
        out[later] = _near(modes[:later], modes[later], step).any(axis=0)
    return out


def shares(
    evidence: Float[np.ndarray, "modes users"], repeated: Bool[np.ndarray, "modes users"]
) -> Float[np.ndarray, "modes users"]:
    """Weigh the modes by their evidence; the first has all of it where none has any."""
    log = np.where(np.isfinite(evidence) & ~repeated, evidence, -np.inf)
    log[0] = np.where(np.isfinite(log).any(axis=0), log[0], 0.0)
    weight = np.exp(log - log.max(axis=0))
    return weight / weight.sum(axis=0)


def mixture(share: Float[np.ndarray, "modes users"], parts: tuple[AnyArray, ...]) -> np.ndarray:
    """Mix the answers of the modes by their shares."""
    shape = (-1, 1) if parts[0].ndim == 2 else (1, -1, 1)
    by = share.reshape(len(share), *shape[: parts[0].ndim]).astype(parts[0].dtype)
    return np.sum([weight * np.nan_to_num(part) for weight, part in zip(by, parts, strict=True)], axis=0)


def estimates(batches: BatchCache, batch: int, answers: Answers) -> Estimates:
    """The most probable answer of every row of a batch, its probability, and what holds if it is rated."""
    problem, rows = batches.problem, batches.rows(batch)
    size, item_ids = problem.packing.sizes[batch], problem.packing.item_ids
    users = problem.view.users[problem.packing.members[batch][:size]]
    items = np.asarray(answers.items)[:, :size]
    attributes = np.asarray(answers.attributes)[:size]
    valid = np.asarray(rows.valid)[:size]
    n_slots, n_attributes = valid.shape[1], attributes.shape[1]
    sent = np.asarray(rows.attributes_sent)[:, :size].any(axis=0)
    answer = np.array(problem.model.levels)[items.argmax(axis=0)]
    value = np.concatenate([np.where(valid, answer, np.nan), np.where(sent, attributes, np.nan)], axis=1)
    sure = np.concatenate([items.max(axis=0), np.maximum(attributes, 1 - attributes)], axis=1)
    sure = np.where(np.isnan(value), np.nan, np.clip(sure, 0, 1))
    index = np.zeros((size, n_slots + n_attributes), np.int32)
    index[:, :n_slots] = item_ids[np.asarray(rows.item)[:size]] if item_ids.size else 0
    index[:, n_slots:] = np.arange(n_attributes)
    kind = np.repeat([ITEM, ATTRIBUTE], [n_slots, n_attributes]).astype(np.int8)[None]
    found = Estimates(users.astype(np.int32), kind, index, value, sure)
    return replace(found, **_if_rated(problem.model, items, n_attributes))


def _if_rated(
    model: Model, items: Float[np.ndarray, "candidates users slots"], n_attributes: int
) -> dict[str, Float[np.ndarray, "users rows"]]:
    """How likely items are rated, and the most probable and the median rating if they are."""
    levels = np.array(model.levels)
    rated, levels = items[levels > 0], levels[levels > 0]
    below = np.cumsum(rated, axis=0)
    found = {"median_if_rated": levels[(below >= below[-1] / 2).argmax(axis=0)]}
    if any(model.weighted):
        found |= {
            "rated_probability": np.clip(below[-1], 0, 1),
            "rating_if_rated": levels[rated.argmax(axis=0)],
        }
    beside = (0, 0), (0, n_attributes)
    return {name: np.pad(column, beside, constant_values=np.nan) for name, column in found.items()}
