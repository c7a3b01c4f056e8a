"""Posteriors over several maxima of a client's likelihood: a whole rating level lies between them.

All ratings one level higher and p moved accordingly explain a single round's uploads nearly as well, so
that one maximum alone claims too much. Each is climbed with tilts of the prior of its own, for a client
whose ratings are one level higher is a more generous client, and counts by its evidence. Many rounds leave
one maximum: a place that no client of a batch can need is dropped before it is settled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from attacks.likelihood import prior as priors
from attacks.likelihood import rating_posterior as soft
from attacks.likelihood.hyperparameters import QUICK, Job, start_lam
from attacks.likelihood.summaries import Summary

SETTLING = 3  # steps of the clients' own tilts at a maximum
SAME_PLACE = 0.25  # of the way to the next level, within which two climbs ended at the same maximum
SOON = 3  # parts of the way to another maximum, after the first of which one sees who goes back
HOPELESS = 20.0  # nats behind the start, after which a maximum's share of the answers is not worth its time


class Reading(NamedTuple):
    """What is known of a batch's clients: posteriors over all maxima, the largest log marginal likelihood
    against noise alone, and the mean norm of p_i at that maximum (stars)."""

    answers: soft.Answers
    evidence: Float[np.ndarray, " users"]
    length: Float[np.ndarray, " users"]


class _Place(NamedTuple):
    """A maximum on the way to it: the job with the clients' own tilts there, the point, its log marginal
    likelihood less the tilts' cost, and what better tilts gain (nats)."""

    job: Job
    point: soft.Point
    evidence: Float[np.ndarray, " users"]
    gain: Float[np.ndarray, " users"]


def read(job: Job, number: int, start: soft.Point, samples: int) -> Reading:
    """The start and the maxima one level above and below it, all together."""
    levels = np.array(job.view.manifest.rating_levels)
    unit = float(np.median(np.diff(levels))) if levels.size > 1 else 1.0
    step = unit * soft.shift_of_one(job.rows(number))
    places = [_Place(job, start, *np.full((2, start.p.shape[0]), np.nan))]
    places += [place for way in (step, -step) for place in _moved(places[0], number, way)]
    for _ in range(SETTLING):
        places = _needed([_leaning(place, number) for place in places], np.asarray(step))
    settled = [_settled(place, number, samples) for place in places]
    where = np.stack([np.asarray(point.p) for point, _, _ in settled])
    share = _shares(np.stack([weight for _, _, weight in settled]), _repeated(where, np.asarray(step)))
    answers = jax.tree.map(lambda *parts: _mean(share, parts), *(found.answers for _, found, _ in settled))
    best, everyone = share.argmax(axis=0), np.arange(share.shape[1])
    length = np.linalg.norm(where, axis=-1).mean(axis=-1)
    alone = np.stack([np.asarray(found.evidence) for _, found, _ in settled])
    return Reading(answers, alone[best, everyone], length[best, everyone])


def _moved(start: _Place, number: int, step: jnp.ndarray) -> list[_Place]:
    """On the way to the maximum that far away; nothing where all clients soon go back to the start."""
    job, p = start.job, start.point.p + step
    place = start._replace(point=soft.Point(p, start_lam(job.layer, p)))
    steps = max(SOON, job.steps // 2)
    for part in (steps // SOON, steps - steps // SOON):
        place = place._replace(point=job.climb(number, place.point, part))
        if len(_needed([start, place], np.asarray(step))) == 1:
            return []
    return [place]


def _needed(places: list[_Place], step: Float[np.ndarray, "users rounds K"]) -> list[_Place]:
    """Without those where every client of the batch is back at the start, or has so much less evidence that
    better tilts cannot make up for it: they gain what Newton's method says, or twice as much where it errs.
    """
    start, *others = places
    behind = [place.evidence + 2 * place.gain < start.evidence - HOPELESS for place in others]
    if not start.job.layer.tied:  # draws tell the evidence too roughly
        behind = [np.zeros_like(part) for part in behind]
    at = np.asarray(start.point.p)
    back = [_near(np.asarray(place.point.p), at, step) for place in others]
    return [start, *(others[n] for n in range(len(others)) if not (behind[n] | back[n]).all())]


def _leaning(place: _Place, number: int) -> _Place:
    """Closer to the maximum, with better tilts of the clients' own."""
    job = place.job
    point, found, weight = _settled(place, number, QUICK)
    if not job.estimated:
        return _Place(job, point, weight, np.zeros_like(weight))
    own, spread = job.prior_of(number), job.spread.user
    gain = priors.tilt_gain(job.layer, own.user, found.moments.user, spread)
    size = job.packing.sizes[number]
    members = job.packing.members[number][:size]
    better = priors.leaning(job.layer, own, found.moments, spread)
    user = job.prior.user.at[members].set(better.user[:size])
    return _Place(replace(job, prior=job.prior._replace(user=user)), point, weight, gain)


def _settled(
    place: _Place, number: int, samples: int
) -> tuple[soft.Point, Summary, Float[np.ndarray, " users"]]:
    """The maximum, what is known there, and the evidence less the tilts' cost."""
    job = place.job
    point = job.climb(number, place.point, max(3, job.steps // 3))
    found = job.summarise(number, point, samples)
    weight = np.asarray(found.evidence)
    if job.layer.tied:  # where p is free the evidence has integrated the tilts out
        own = np.asarray(job.prior_of(number).user)
        weight = weight - priors.tilt_cost(job.layer, own, found.moments.user, job.spread.user)
    return point, found, weight


def _near(
    places: Float[np.ndarray, "*maxima users rounds K"],
    other: Float[np.ndarray, "users rounds K"],
    step: Float[np.ndarray, "users rounds K"],
) -> Bool[np.ndarray, "*maxima users"]:
    """Which places are, client by client, the same maximum as the other one."""
    away = np.linalg.norm(places - other, axis=(-2, -1))
    return away < SAME_PLACE * np.linalg.norm(step, axis=(-2, -1))


def _repeated(
    places: Float[np.ndarray, "maxima users rounds K"], step: Float[np.ndarray, "users rounds K"]
) -> Bool[np.ndarray, "maxima users"]:
    """Which climbs ended where an earlier one did."""
    out = np.zeros(places.shape[:2], bool)
    for later in range(1, len(places)):
        out[later] = _near(places[:later], places[later], step).any(axis=0)
    return out


def _shares(
    evidence: Float[np.ndarray, "maxima users"], repeated: Bool[np.ndarray, "maxima users"]
) -> Float[np.ndarray, "maxima users"]:
    """Shares of the maxima by their evidence; all of it for the first where none has any."""
    log = np.where(np.isfinite(evidence) & ~repeated, evidence, -np.inf)
    log[0] = np.where(np.isfinite(log).any(axis=0), log[0], 0.0)
    weight = np.exp(log - log.max(axis=0))
    return weight / weight.sum(axis=0)


def _mean(share: Float[np.ndarray, "maxima users"], parts: tuple[jnp.ndarray, ...]) -> np.ndarray:
    """Answers (candidates, users, slots) or (users, attributes) of the maxima, by their shares."""
    shape = (-1, 1) if parts[0].ndim == 2 else (1, -1, 1)
    by = share.reshape(len(share), *shape[: parts[0].ndim]).astype(parts[0].dtype)
    return np.sum([weight * np.nan_to_num(part) for weight, part in zip(by, parts, strict=True)], axis=0)
