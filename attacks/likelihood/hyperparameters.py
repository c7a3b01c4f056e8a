"""Learn what all clients share: the prior, the noise scale, and starts that do not end in a wrong optimum.

A job climbs (``attacks.likelihood.rating_posterior``) in all batches of a view and, pass by pass, improves
the prior and the noise scale (``attacks.likelihood.prior``). What can go wrong is a whole-rating shift: all
ratings one level higher and p moved accordingly explain the uploads nearly as well. Per client the evidence
chooses among starts; over clients the mean rating from which the passes end with the most evidence is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import DTypeLike

from attacks.base import Estimates
from attacks.likelihood import prior as priors
from attacks.likelihood import rating_posterior as soft
from attacks.likelihood.batches import Packing, Rows, pack, plan
from attacks.likelihood.summaries import Summary, summarise
from victims.common.seeds import Purpose, jax_key
from victims.transcript.view import ATTRIBUTE, ITEM, View

CACHE_BYTES = 1 << 28
MIDDLES = (0.4, 0.85, 0.55, 0.7)  # of the grid: candidates for the mean rating, the extremes first
FINER = 0.075  # further candidates at this distance from the best
SAME = 1.0  # nats within which two states are taken to be in the same place, and a gain to be the last
CLEAR = 0.5  # nats per client, by which a place is ahead that needs no finer search
UNRATED = 0.9
FURTHER = 24  # most passes after the best start
SMALLEST_SHARE = 1 / 8  # of a step of the prior, where all of it loses evidence
LENGTHS = np.geomspace(0.03, 30.0, 20)  # of the client's factor, tried along the leading direction
CLOSER = np.geomspace(0.7, 1.43, 40)  # times the best of them (as many, so that nothing is compiled anew)
TRIED_ROUNDS = 8  # most rounds that tell the length
HOT, WARM = 10.0, 3.0  # times b, where annealing starts from the prior and from the leading direction
QUICK = 4  # draws of the client's factor while the prior is learned
SMALLEST_VARIANCE = 1e-12  # of a free factor
FEWEST_DRAWS = 32  # where the evidence is an average over draws


@dataclass(frozen=True)
class Job:
    """One view on its way: what is fixed (above) and what is learned (below).

    Attributes
    ----------
    view, packing, layer
    steps : int
        Newton steps of a cold start.
    key : int
        Seed of all draws.
    estimated : bool
        The prior is improved; otherwise it stays as it is.
    known_noise : bool
        b is not estimated.
    floor : float
        Smallest b that an estimate may reach.
    precision : dtype of the rows
    constants, prior, spread
        What is known of the protocol, the ratings and their variation so far.
    """

    view: View
    packing: Packing
    layer: soft.Layer
    steps: int
    key: int
    estimated: bool
    known_noise: bool
    floor: float
    precision: DTypeLike
    constants: soft.Constants
    prior: soft.Prior
    spread: priors.Spread
    cache: dict[int, Rows] = field(default_factory=dict, repr=False)
    recent: dict[int, Rows] = field(default_factory=dict, repr=False)

    @property
    def own(self) -> np.ndarray:
        """Broadcast factors of the attributes, (rounds, K, attributes)."""
        return self.packing.own

    @property
    def n_batches(self) -> int:
        """Number of batches."""
        return len(self.packing.members)

    def rows(self, number: int) -> Rows:
        """A batch, kept in memory while all of them are small; the last one always is."""
        for kept in (self.cache, self.recent):
            if number in kept:
                return kept[number]
        self.recent.clear()
        rows = jax.tree.map(
            jnp.asarray, pack(self.view, self.packing, number, self.precision, self.layer.law)
        )
        room = sum(_bytes(part) for part in self.cache.values()) + _bytes(rows) < CACHE_BYTES
        (self.cache if room else self.recent)[number] = rows
        return rows

    def prior_of(self, number: int) -> soft.Prior:
        """The prior of a batch's clients."""
        return self.prior._replace(user=self.prior.user[self.packing.members[number]])

    def climb(self, number: int, point: soft.Point, steps: int, heat: float = 1.0) -> soft.Point:
        """Climb in one batch."""
        rows, prior = self.rows(number), self.prior_of(number)
        assumed = soft.log_prior(self.layer, prior, rows)
        return soft.climb(self.layer, self.own, rows, self.constants, prior, assumed, point, steps, heat)

    def summarise(self, number: int, point: soft.Point, samples: int) -> Summary:
        """What is known at a point of one batch."""
        rows, prior = self.rows(number), self.prior_of(number)
        key = jax_key(self.key, Purpose.POSTERIOR_DRAWS, number)
        spread = self.spread.user
        samples = samples if self.layer.tied else max(samples, FEWEST_DRAWS)
        return summarise(self.layer, self.own, rows, self.constants, prior, point, spread, samples, key)

    def better(self, number: int, points: list[soft.Point]) -> soft.Point:
        """Of several points the one with the most evidence, client by client."""
        found = [np.asarray(self.summarise(number, point, 0).evidence) for point in points]
        best = np.nan_to_num(np.stack(found), nan=-np.inf).argmax(axis=0)
        everyone = np.arange(best.size)
        return soft.Point(*(jnp.stack(parts)[best, everyone] for parts in zip(*points, strict=True)))


def _bytes(rows: Rows) -> int:
    return sum(part.nbytes for part in rows)


def new_job(
    view: View,
    layer: soft.Layer,
    constants: soft.Constants,
    *,
    steps: int,
    key: int,
    estimated: bool,
    known_noise: bool,
    floor: float,
    precision: DTypeLike,
    worth: float,
) -> Job:
    """A job before anything was learned; ``worth``: see ``packing.plan``."""
    packing = plan(view, worth)
    size = view.manifest.factors * (1 if layer.tied else layer.n_runs)
    prior = priors.flat(layer, view.users.size, packing.item_ids.size, size)
    spread = priors.start_spread(layer)
    return Job(
        view, packing, layer, steps, key, estimated, known_noise, floor, precision, constants, prior, spread
    )


def carried(job: Job, learned: Job) -> Job:
    """What some clients taught, for all of them: the clients' own tilts start anew."""
    place = np.searchsorted(job.packing.item_ids, learned.packing.item_ids)
    item = np.zeros((job.packing.item_ids.size, job.layer.tilts[1]))
    item[place] = np.asarray(learned.prior.item)
    user = jnp.zeros((job.view.users.size, job.layer.tilts[0]))
    prior = learned.prior._replace(user=user, item=jnp.asarray(item))
    return replace(job, prior=prior, spread=learned.spread, constants=learned.constants)


def _hot(job: Job, number: int) -> soft.Point:
    """The better of two starts, client by client, after an annealed climb."""
    rows, prior = job.rows(number), job.prior_of(number)
    first = soft.start_from_prior(job.layer, job.own, rows, job.constants, prior)
    second = along_the_rows(job, number, soft.log_prior(job.layer, prior, rows))
    points = [
        job.climb(number, soft.Point(p, start_lam(job.layer, p)), job.steps, heat)
        for p, heat in ((first, HOT), (second, WARM))
    ]
    return job.better(number, points)


def along_the_rows(job: Job, number: int, assumed: jnp.ndarray) -> Float[jnp.ndarray, "users rounds K"]:
    """The leading direction of each client's rows with the likeliest of some lengths, in every round."""
    rows, prior = job.rows(number), job.prior_of(number)
    direction = _direction(rows)
    lengths = np.concatenate([-LENGTHS[::-1], LENGTHS])
    blurred = job.constants._replace(noise=job.constants.noise * 2)
    few = np.unique(np.linspace(0, job.view.rounds.size - 1, TRIED_ROUNDS).astype(int))
    some, own = rows.during(few), job.own[few]

    def longest(constants: soft.Constants, along: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        fit = np.asarray(soft.line(job.layer, own, some, constants, prior, assumed, along, lengths))
        return lengths[np.nan_to_num(fit, nan=-np.inf).argmax(axis=0)][:, None] * along

    best = longest(blurred, direction, lengths)
    if not job.layer.tied:  # nothing else tells the length: look closer
        best = longest(job.constants, best, CLOSER)
    n_users, k = best.shape
    return jnp.broadcast_to(jnp.asarray(best)[:, None], (n_users, job.view.rounds.size, k))


def start_lam(layer: soft.Layer, p: jnp.ndarray) -> jnp.ndarray:
    """The lam that belongs to factors p (users, rounds, K) before anything was tilted."""
    if layer.tied:
        return jnp.zeros((p.shape[0], p.shape[2]))
    return p[:, jnp.array(np.flatnonzero(layer.starts))].reshape(p.shape[0], -1)


def _direction(rows: Rows) -> Float[np.ndarray, "users K"]:
    """Leading right singular vector of each client's rows of all rounds."""
    gram = sum(
        np.einsum("tukr,tulr->ukl", part, part, dtype=np.float64) for part in (rows.items, rows.attributes)
    )
    return np.linalg.eigh(gram)[1][..., -1]


def _pass(job: Job, points: list[soft.Point] | None) -> tuple[list[soft.Point], Summary]:
    """Climb in every batch; sums over the clients come back as one summary."""
    out, total = [], None
    for number in range(job.n_batches):
        if points is None:
            point = _hot(job, number)
        else:
            point = job.climb(number, points[number], max(3, job.steps // 3))
        found = job.summarise(number, point, QUICK)
        out.append(point)
        total = _added(job, number, total, found)
    assert total is not None
    return out, total


def scattered(job: Job, number: int, values: jnp.ndarray) -> np.ndarray:
    """What belongs to the clients of one batch, in the order of all clients; 0 for the others."""
    members, size = job.packing.members[number], job.packing.sizes[number]
    out = np.zeros((job.view.users.size, *values.shape[1:]))
    out[members[:size]] = np.asarray(values)[:size]
    return out


def _added(job: Job, number: int, total: Summary | None, part: Summary) -> Summary:
    """Sum what is summed over clients; scatter what belongs to one."""
    user, evidence = (jnp.asarray(scattered(job, number, own)) for own in (part.moments.user, part.evidence))
    part = part._replace(
        moments=part.moments._replace(user=user),
        evidence=evidence,
        answers=soft.Answers(jnp.zeros((0, 0, 0)), jnp.zeros((0, 0))),
    )
    return part if total is None else jax.tree.map(lambda a, b: a + b, total, part)


def _improved(job: Job, total: Summary) -> Job:
    """New prior and noise scale after a pass."""
    n_users = job.view.users.size
    prior, spread, constants = job.prior, job.spread, job.constants
    if not all(np.isfinite(part).all() for part in total.moments):
        return job  # rows so far from the model that nothing is left of the posterior
    if job.estimated:
        prior, spread = priors.improve(job.layer, prior, spread, total.moments, n_users)
    if not job.layer.tied:
        prior = prior._replace(**_start_law(job, total, n_users))
    if not job.known_noise:
        noise = _residual(job, total)
        constants = constants._replace(noise=jnp.asarray(max(noise, job.floor)))
    return replace(job, prior=prior, spread=spread, constants=constants)


def _residual(job: Job, total: Summary) -> float:
    """The scale of noise that would leave what the answers leave of the rows."""
    return float(job.layer.law.scale_of(float(total.distance) / max(float(total.coordinates), 1.0)))


def _start_law(job: Job, total: Summary, n_users: int) -> dict[str, jnp.ndarray]:
    """Normal law of the clients' free factors; k + 2 inverse Wishart counts, as wide in all directions, keep
    it proper whatever the factors' scale."""
    k = job.view.manifest.factors
    mean = np.asarray(total.lam_mean) / n_users
    square = np.asarray(total.lam_square) / n_users - np.outer(mean, mean)
    precision = np.zeros_like(square)
    for run in range(job.layer.n_runs):
        part = slice(run * k, (run + 1) * k)
        own = square[part, part]
        typical = max(np.trace(own) / k, SMALLEST_VARIANCE) * np.eye(k)
        covariance = (n_users * own + (k + 2) * typical) / (n_users + k + 2)
        precision[part, part] = np.linalg.inv(covariance)
    return {"start_mean": jnp.asarray(mean), "start_precision": jnp.asarray(precision)}


class State(NamedTuple):
    """A job, its points batch by batch, their evidence (nats), and sums over the clients at these points."""

    job: Job
    points: list[soft.Point]
    evidence: float
    total: Summary

    @property
    def residual(self) -> float:
        """The scale of noise that would leave what the answers leave of the rows."""
        return _residual(self.job, self.total)


def _state(job: Job, points: list[soft.Point] | None) -> State:
    points, total = _pass(job, points)
    cost = priors.penalty(job.layer, job.prior, job.spread, total.moments)
    # evidence is against noise alone; under different scales that has a likelihood of its own
    law, scale = job.layer.law, float(job.constants.noise)
    alone = float(total.blank) / law.unit(scale) + float(total.coordinates) * law.log_volume(scale)
    value = float(np.sum(total.evidence, where=np.isfinite(total.evidence))) - cost - alone
    return State(job, points, value, total)


def _between(old: Job, new: Job, share: float) -> Job:
    """What is learned, a share of the way from one job to another."""
    parts = [(job.prior, job.spread, job.constants) for job in (old, new)]
    prior, spread, constants = jax.tree.map(lambda a, b: a + share * (b - a), *parts)
    return replace(new, prior=prior, spread=spread, constants=constants)


def learn(job: Job, passes: int, points: list[soft.Point] | None = None) -> State:
    """Passes of climbing and estimating, from given points or from cold starts.

    Only states with more evidence are kept; where a step loses some, half of it is tried, and so on. It
    ends before its passes do where next to nothing is gained.
    """
    best = _state(job, points)
    proposed, share = _improved(best.job, best.total), 1.0
    for _ in range(passes - 1):
        if proposed is best.job:
            break
        state = _state(_between(best.job, proposed, share), best.points)
        gain = state.evidence - best.evidence
        if gain > 0 or not np.isfinite(best.evidence):
            best = state
            proposed, share = _improved(best.job, best.total), 1.0
        else:
            share /= 2
        if 0 < gain < SAME or share < SMALLEST_SHARE:
            break
    return best


def search(job: Job, passes: int) -> State:
    """The middle of the rating law from which the passes end with the most evidence, learned to its end."""
    if not job.estimated:
        return learn(job, 1 if job.known_noise else 3)
    best = _best_start(job, passes)
    return learn(best.job, FURTHER, best.points)


def _best_start(job: Job, passes: int) -> State:
    found = {middle: _from(job, middle, passes) for middle in MIDDLES[:2]}
    low, high = (state.evidence for state in found.values())
    if abs(low - high) < SAME:
        return max(found.values(), key=lambda state: state.evidence)
    found |= {middle: _from(job, middle, passes) for middle in MIDDLES[2:]}
    best, second = sorted(found, key=lambda middle: -found[middle].evidence)[:2]
    lead = found[best].evidence - found[second].evidence
    if SAME <= lead <= CLEAR * job.view.users.size:
        for middle in (best - FINER, best + FINER):
            found[middle] = _from(job, middle, passes)
    return max(found.values(), key=lambda state: state.evidence)


def _from(job: Job, middle: float, passes: int) -> State:
    level = jnp.asarray(priors.bell(job.layer, middle, UNRATED))
    return learn(replace(job, prior=job.prior._replace(level=level)), passes)


def estimates(job: Job, number: int, answers: soft.Answers) -> Estimates:
    """The most probable answer of every row of a batch, its probability, and what holds if it is rated."""
    rows, size = job.rows(number), job.packing.sizes[number]
    users = job.view.users[job.packing.members[number][:size]]
    items = np.asarray(answers.items)[:, :size]
    attributes = np.asarray(answers.attributes)[:size]
    valid = np.asarray(rows.valid)[:size]
    n_slots, n_attributes = valid.shape[1], attributes.shape[1]
    sent = np.asarray(rows.attributes_sent)[:, :size].any(axis=0)
    answer = np.array(job.layer.levels)[items.argmax(axis=0)]
    value = np.concatenate([np.where(valid, answer, np.nan), np.where(sent, attributes, np.nan)], axis=1)
    sure = np.concatenate([items.max(axis=0), np.maximum(attributes, 1 - attributes)], axis=1)
    sure = np.where(np.isnan(value), np.nan, np.clip(sure, 0, 1))
    index = np.zeros((size, n_slots + n_attributes), np.int32)
    index[:, :n_slots] = job.packing.item_ids[rows.item[:size]] if job.packing.item_ids.size else 0
    index[:, n_slots:] = np.arange(n_attributes)
    kind = np.repeat([ITEM, ATTRIBUTE], [n_slots, n_attributes]).astype(np.int8)[None]
    found = Estimates(users.astype(np.int32), kind, index, value, sure)
    return replace(found, **_if_rated(job.layer, items, n_attributes))


def _if_rated(
    layer: soft.Layer, items: Float[np.ndarray, "candidates users slots"], n_attributes: int
) -> dict[str, Float[np.ndarray, "users rows"]]:
    """How likely items are rated, and the most probable and the median rating if they are."""
    levels = np.array(layer.levels)
    rated, levels = items[levels > 0], levels[levels > 0]
    below = np.cumsum(rated, axis=0)
    found = {"median_if_rated": levels[(below >= below[-1] / 2).argmax(axis=0)]}
    if any(layer.weighted):
        found |= {
            "rated_probability": np.clip(below[-1], 0, 1),
            "rating_if_rated": levels[rated.argmax(axis=0)],
        }
    beside = (0, 0), (0, n_attributes)
    return {name: np.pad(part, beside, constant_values=np.nan) for name, part in found.items()}
