"""Posteriors over several maxima of a client's likelihood: a whole rating level lies between them.

All ratings one level higher and p moved accordingly explain a single round's uploads nearly as well, so
that one maximum alone claims too much. Each is climbed with tilts of the prior of its own, for a client
whose ratings are one level higher is a more generous client, and counts by its evidence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from attacks import prior as priors
from attacks import softdecode as soft
from attacks.learning import QUICK, Job, start_lam
from attacks.posterior import Summary

SETTLING = 3  # steps of the client's own tilts at a maximum
SAME_PLACE = 0.25  # of the way to the next level, within which two climbs ended at the same maximum


class Reading(NamedTuple):
    """What is known of a batch's clients: posteriors over all maxima, the largest log marginal likelihood
    against noise alone, and the mean norm of p_i at that maximum (stars)."""

    answers: soft.Answers
    evidence: Float[np.ndarray, " users"]
    length: Float[np.ndarray, " users"]


def read(job: Job, number: int, start: soft.Point, samples: int) -> Reading:
    """The start and the maxima one level above and below it, all together."""
    levels = np.array(job.view.manifest.rating_levels)
    unit = float(np.median(np.diff(levels))) if levels.size > 1 else 1.0
    step = unit * soft.shift_of_one(job.rows(number))
    points, summaries, evidence = [], [], []
    for place in (start, _moved(job, number, start, step), _moved(job, number, start, -step)):
        point, found, weight = _settled(job, number, place, samples)
        points.append(point.p)
        summaries.append(found)
        evidence.append(weight)
    places = np.stack([np.asarray(p) for p in points])
    share = _shares(np.stack(evidence), _repeated(places, np.asarray(step)))
    answers = jax.tree.map(lambda *parts: _mean(share, parts), *(found.answers for found in summaries))
    best, everyone = share.argmax(axis=0), np.arange(share.shape[1])
    length = np.linalg.norm(places, axis=-1).mean(axis=-1)
    alone = np.stack([np.asarray(found.evidence) for found in summaries])
    return Reading(answers, alone[best, everyone], length[best, everyone])


def _moved(job: Job, number: int, start: soft.Point, step: jnp.ndarray) -> soft.Point:
    """The point from which the maximum that far away is climbed."""
    p = start.p + step
    return job.climb(number, soft.Point(p, start_lam(job.layer, p)), max(3, job.steps // 2))


def _settled(
    job: Job, number: int, point: soft.Point, samples: int
) -> tuple[soft.Point, Summary, Float[np.ndarray, " users"]]:
    """The maximum with the client's own tilts, what is known there, and the evidence less the tilts' cost."""
    size = job.packing.sizes[number]
    members = job.packing.members[number][:size]
    for left in reversed(range(SETTLING + 1)):
        point = job.climb(number, point, max(3, job.steps // 3))
        found = job.summarise(number, point, QUICK if left else samples)
        if left and job.estimated:
            own = priors.leaning(job.layer, job.prior_of(number), found.moments, job.spread.user)
            user = job.prior.user.at[members].set(own.user[:size])
            job = replace(job, prior=job.prior._replace(user=user))
    weight = np.asarray(found.evidence)
    if job.layer.tied:  # where p is free the evidence has integrated the tilts out
        own_tilts = np.asarray(job.prior_of(number).user)
        weight = weight - priors.tilt_cost(job.layer, own_tilts, found.moments.user, job.spread.user)
    return point, found, weight


def _repeated(
    places: Float[np.ndarray, "maxima users rounds K"], step: Float[np.ndarray, "users rounds K"]
) -> Bool[np.ndarray, "maxima users"]:
    """Which climbs ended where an earlier one did."""
    near = SAME_PLACE * np.linalg.norm(step, axis=(1, 2))
    out = np.zeros(places.shape[:2], bool)
    for later in range(1, len(places)):
        away = np.linalg.norm(places[:later] - places[later], axis=(2, 3))
        out[later] = (away < near).any(axis=0)
    return out


def _shares(
    evidence: Float[np.ndarray, "maxima users"], repeated: Bool[np.ndarray, "maxima users"]
) -> Float[np.ndarray, "maxima users"]:
    """Shares of the maxima by their evidence; all of it for the first where none has any."""
    log = np.where(np.isfinite(evidence) & ~repeated, evidence, -np.inf)
    log[0] = np.where(np.isfinite(log).any(axis=0), log[0], 0.0)
    weight = np.exp(log - log.max(axis=0))
    return weight / weight.sum(axis=0)


def _mean(share: Float[np.ndarray, "maxima users"], parts: tuple[jnp.ndarray, ...]) -> jnp.ndarray:
    """Answers (candidates, users, slots) or (users, attributes) of the maxima, by their shares."""
    shape = (-1, 1) if parts[0].ndim == 2 else (1, -1, 1)
    by = jnp.asarray(share.reshape(len(share), *shape[: parts[0].ndim]), parts[0].dtype)
    return (by * jnp.nan_to_num(jnp.stack(parts))).sum(axis=0)
