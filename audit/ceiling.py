"""The limit beside an accuracy: a decoder that is told every client's factor and must still read the rows.

Knowing p_i^t, the rows of a client are independent and each is decoded exactly: by maximum likelihood, and
a posteriori with a prior of the attack's own form that is fitted to the true answers. No attack on the
same rows is told as much, though on few clients one may score higher by chance. In semi-als p_i^t follows
from the truth by Eq. (8) of paper 000; in sgd, and where the constants of (8) are unknown, it is fitted to
the uploads with the true answers in hand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from attacks import prior as priors
from attacks import softdecode as soft
from attacks.interface import Estimates, alpha_unknown, unreadable
from attacks.knowledge import known_scale, law_of, ties, unmodelled
from attacks.learning import Job, along_the_rows, estimates, new_job, scattered, start_lam
from attacks.likelihood import size_up
from attacks.packing import Rows
from attacks.posterior import moments
from audit.metrics import attribute_table, lookup, score_users
from audit.score import Ceiling
from audit.truth import Truth
from victims.view import View

STEPS = 60
PASSES = 12
WARM = 3.0  # times b, where fitting p to the uploads starts at least; else at the rows' own size
SMALLEST = 1e-12  # noise scale
SURE = 1e9  # log odds of the true answers
MODELLED = frozenset({"laplace"})


def computable(view: View) -> bool:
    """Whether there are uploads to read, under a law that the told decoder models."""
    modelled = all(defense.get("name") in MODELLED for defense in view.manifest.defenses)
    obstacle = unreadable(view) or alpha_unknown(view) or unmodelled(view.manifest)
    return modelled and view.users.size > 0 and not obstacle


def ceilings(view: View, truth: Truth) -> dict[str, Ceiling]:
    """Both limits of every metric on the clients of a view.

    Parameters
    ----------
    view : View
        ``computable`` must hold for it.
    truth : Truth

    Returns
    -------
    dict of metric name to Ceiling
    """
    job = _job(view)
    told = [_told(job, number, truth) for number in range(job.n_batches)]
    if not job.known_noise:
        job = _with_noise(job, told)
    means = []
    for informed in (job, _fitted(job, told)):
        blocks = tuple(_decoded(informed, part) for part in told)
        scores = score_users(blocks, view.manifest, truth, np.unique(view.users))
        means.append({metric: _mean(values) for metric, values in scores.values.items()})
    ml, informed_map = means
    return {metric: Ceiling(ml[metric], informed_map[metric]) for metric in ml}


def _mean(values: np.ndarray) -> float:
    return float("nan") if np.isnan(values).all() else float(np.nanmean(values))


def _job(view: View) -> Job:
    noise = known_scale(view.manifest)
    b = size_up(view).scale if noise is None else noise / abs(view.manifest.upload.scale)
    layer, constants = law_of(view.manifest, view.rounds, max(b, SMALLEST), told=True)
    return new_job(
        view,
        layer,
        constants,
        steps=STEPS,
        key=0,
        estimated=True,
        known_noise=noise is not None,
        floor=0.0,
        precision=np.float64,
        worth=1e6,
    )


class _Told(NamedTuple):
    """One batch with the true answers and the factors p (users, rounds, K) that they imply; ``slots`` are its
    rows without the uploads, which a prior does not need and which are costly to read again."""

    number: int
    answers: soft.Answers
    p: Float[jnp.ndarray, "users rounds K"]
    slots: Rows


def _told(job: Job, number: int, truth: Truth) -> _Told:
    answers = _true_answers(job, number, truth)
    by_the_update, _ = ties(job.view.manifest)
    p = (_by_the_update if by_the_update else _by_the_uploads)(job, number, answers)
    return _Told(number, answers, p, job.rows(number).during(np.zeros(0, int)))


def _true_answers(job: Job, number: int, truth: Truth) -> soft.Answers:
    """One-hot over the candidates of every slot, and the attributes; padding is 0."""
    rows = job.rows(number)
    n_users, n_slots = rows.item.shape
    members = job.packing.members[number]
    row = truth.rows(job.view.users[members])
    ids = job.packing.item_ids
    index = ids[np.asarray(rows.item)] if ids.size else np.zeros((n_users, n_slots), int)
    actual = lookup(truth, row, index, index.shape)
    level = np.abs(actual - np.array(job.layer.levels)[:, None, None]).argmin(axis=0)
    items = (level == np.arange(len(job.layer.levels))[:, None, None]) & np.asarray(rows.valid)
    attributes = attribute_table(truth, job.view.manifest, row)
    return soft.Answers(jnp.asarray(items, jnp.float64), jnp.asarray(attributes))


def _by_the_update(job: Job, number: int, answers: soft.Answers) -> Float[jnp.ndarray, "users rounds K"]:
    """Eq. (8) of paper 000."""
    rows = job.rows(number)
    known = soft.fixed(job.layer, job.own, rows)
    square, right = soft.normal_equations(job.layer, job.own, rows, job.constants, answers, known)
    square += job.constants.lambda_factors * jnp.eye(square.shape[-1])
    return jnp.linalg.solve(square, right[..., None])[..., 0]


def _by_the_uploads(job: Job, number: int, answers: soft.Answers) -> Float[jnp.ndarray, "users rounds K"]:
    """The likeliest factors if the answers are the true ones."""
    rows, prior = job.rows(number), _certain(job, number, answers)
    assumed = _log_certain(answers)
    start = along_the_rows(job, number, assumed)
    point = soft.Point(start, start_lam(job.layer, start))
    size = float(jnp.sqrt(jnp.mean(rows.items**2))) / float(job.constants.noise)
    heat = max(WARM, size)
    return soft.climb(job.layer, job.own, rows, job.constants, prior, assumed, point, STEPS, heat).p


def _log_certain(answers: soft.Answers) -> Float[jnp.ndarray, "candidates users slots"]:
    return jnp.where(answers.items > 0.5, 0.0, -SURE)


def _certain(job: Job, number: int, answers: soft.Answers) -> soft.Prior:
    """A prior that leaves no doubt about the attributes."""
    sure = jnp.where(answers.attributes > 0.5, SURE, -SURE)
    return job.prior_of(number)._replace(attribute=sure)


def _fit(job: Job, told: _Told, prior: soft.Prior, assumed: jnp.ndarray) -> soft.Fit:
    point = soft.Point(told.p, jnp.zeros((told.p.shape[0], 1)))
    rows = job.rows(told.number)
    return soft.decode(job.layer, job.own, rows, job.constants, prior, assumed, point)


def _with_noise(job: Job, told: list[_Told]) -> Job:
    """The scale that makes the true answers likeliest: the mean of |noise|."""
    total = coordinates = 0.0
    for part in told:
        rows = job.rows(part.number)
        prior = _certain(job, part.number, part.answers)
        fit = _fit(job, part, prior, _log_certain(part.answers))
        sent = rows.sent.sum(axis=(0, 2)) + rows.attributes_sent.sum(axis=(0, 2))
        total += float(jnp.sum((fit.distance + rows.blank) * rows.live))
        coordinates += float(jnp.sum(sent * rows.live)) * rows.items.shape[2]
    noise = jnp.asarray(max(total / max(coordinates, 1.0), SMALLEST))
    return replace(job, constants=job.constants._replace(noise=noise))


def _decoded(job: Job, told: _Told) -> Estimates:
    """What the rows of a batch say under the job's prior."""
    prior = job.prior_of(told.number)
    assumed = soft.log_prior(job.layer, prior, job.rows(told.number))
    return estimates(job, told.number, _fit(job, told, prior, assumed).answers)


def _fitted(job: Job, told: list[_Told]) -> Job:
    """A prior that was fitted to the true answers."""
    n_users = job.view.users.size
    for _ in range(PASSES):
        total = None
        for part in told:
            number, rows, prior = part.number, part.slots, job.prior_of(part.number)
            assumed = jnp.exp(soft.log_prior(job.layer, prior, rows)) * rows.valid
            found = moments(job.layer, rows, prior, assumed, part.answers)
            found = found._replace(user=scattered(job, number, found.user))
            total = found if total is None else jax.tree.map(lambda a, b: a + b, total, found)
        assert total is not None
        prior, spread = priors.improve(job.layer, job.prior, job.spread, total, n_users)
        job = replace(job, prior=prior, spread=spread)
    return job
