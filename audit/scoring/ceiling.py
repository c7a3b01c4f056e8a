"""The limit beside a score: a decoder that reads each answer with all other answers of the client in hand.

It knows the uploads, the law of the noise, every rating and attribute of the client but the one in question,
in sgd also the client's factor in the first round, and how ratings are distributed: a prior of the form that
``likelihood`` estimates (levels, activity, mean and dispersion of each client, popularity and mean of each
item), fitted to the true answers; an item's tilts to those of the other clients. Given all that the posterior
is exact (``audit.scoring.all_but_one``), and each metric gets the answer to its own question. An attack sees
the uploads alone, so that on average over the noise it does not pass this decoder: each of its answers is a
function of what the decoder has. On few clients it may by chance.

Why not the decoder that is told p_i alone: in semi-als p_i is a function of the ratings, so that whoever is
told p_i to the last digit could search for the ratings that give it, and whoever reads row by row instead
knows less than an attack that uses (8), where a client has few ratings. The limit here has the same
knowledge of p_i and uses it; where a client has few ratings for the number of factors it is generous.

What it is no limit for: an attack that knows more of ratings than that prior, say from similar clients. In
sgd the truth has no factors: the likeliest one under the true answers stands for it, which favours them. Not
computed where constants of the clients' step are not public, for an attack may estimate them and read more.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from attacks.base import Estimates, alpha_unknown, unreadable
from attacks.client_rules.premises import unlike
from attacks.likelihood import prior as priors
from attacks.likelihood import rating_posterior as soft
from attacks.likelihood.attack import size_up
from attacks.likelihood.hyperparameters import Job, along_the_rows, estimates, new_job, scattered, start_lam
from attacks.likelihood.manifest_model import known_scale, law_of, ties, unmodelled
from attacks.likelihood.summaries import Moments, moments
from audit.scoring.all_but_one import log_likelihoods
from audit.scoring.metrics import attribute_table, lookup, score_users
from audit.scoring.score import Ceiling
from audit.scoring.truth import Truth
from victims.transcript.view import View

STEPS = 60
PASSES = 60  # most Newton steps of the prior; it ends where no parameter moves by SETTLED nats
SETTLED = 1e-3
WARM = 3.0  # times b, where fitting p to the uploads starts at least; else at the rows' own size
STARTS = ((1.0, 1.0), (1.0, 10.0), (0.5, 10.0))  # times the length along the rows, times that heat
SMALLEST = 1e-12  # noise scale
SURE = 1e9  # log odds of the true answers
MODELLED = frozenset({"laplace"})


def obstacle(view: View) -> str:
    """Why there is no limit for a view, or nothing."""
    other = [str(entry.get("name")) for entry in view.manifest.defenses if entry.get("name") not in MODELLED]
    if other:
        return f"the limit does not model {', '.join(other)}"
    reason = unreadable(view) or alpha_unknown(view) or unmodelled(view.manifest) or unlike(view)
    if reason or view.users.size == 0:
        return reason or "the view has no clients"
    tied, linked = ties(view.manifest)
    if not (tied or linked or (view.manifest.update == "sgd" and view.rounds.size == 1)):
        return "constants of the clients' step are not public, and an attack may estimate them"
    return ""


def computable(view: View) -> bool:
    """Whether there are uploads to read, under a law that the decoder models."""
    return not obstacle(view)


def ceilings(view: View, truth: Truth) -> dict[str, Ceiling]:
    """The limit of every metric, for each client of a view.

    Parameters
    ----------
    view : View
        ``computable`` must hold for it.
    truth : Truth

    Returns
    -------
    dict of metric name to Ceiling
        By maximum likelihood (every answer as likely a priori), and a posteriori.
    """
    truth.refuse_unless_about(view.manifest)
    job = _job(view)
    known = [_true_answers(job, number, truth) for number in range(job.n_batches)]
    factors = [_factors(job, number, answers) for number, answers in enumerate(known)]
    if not job.known_noise:
        job = _with_noise(job, known, factors)
    informed, of_item = _fitted(job, known)
    blocks: tuple[list[Estimates], list[Estimates]] = ([], [])
    for number, (answers, p) in enumerate(zip(known, factors, strict=True)):
        rows = job.rows(number)
        likely = log_likelihoods(job.layer, job.own, rows, job.constants, answers, p)
        flat = soft.log_prior(job.layer, job.prior_of(number), rows)
        for out, prior in zip(
            blocks, (flat, _of_the_others(informed, number, answers, of_item)), strict=True
        ):
            told = job if prior is flat else informed
            out.append(estimates(told, number, _posterior(told, number, prior, *likely)))
    users = np.unique(view.users)
    ml, by_prior = (score_users(tuple(part), view.manifest, truth, users).values for part in blocks)
    return {metric: Ceiling(users, ml[metric], by_prior[metric]) for metric in ml}


def _job(view: View) -> Job:
    noise = known_scale(view.manifest)
    b = size_up(view).scale if noise is None else noise / abs(view.manifest.upload.scale)
    layer, constants = law_of(view.manifest, view.rounds, max(b, SMALLEST))
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


def _factors(job: Job, number: int, answers: soft.Answers) -> Float[jnp.ndarray, "users rounds K"]:
    """By (8) of paper 000; in sgd the likeliest ones if the answers are the true ones."""
    rows = job.rows(number)
    if job.layer.tied:
        known = soft.fixed(job.layer, job.own, rows)
        square, right = soft.normal_equations(job.layer, job.own, rows, job.constants, answers, known)
        square += job.constants.lambda_factors * jnp.eye(square.shape[-1])
        return jnp.linalg.solve(square, right[..., None])[..., 0]
    start = along_the_rows(job, number, _log_certain(answers))
    size = float(jnp.sqrt(jnp.mean(rows.items**2))) / float(job.constants.noise)
    best, least = start, jnp.full(start.shape[0], jnp.inf)
    for length, heat in STARTS:  # a client of few rows and little noise has several maxima
        found, cost = _climbed(job, number, answers, length * start, heat * max(WARM, size))
        closer = cost < least
        best, least = jnp.where(closer[:, None, None], found, best), jnp.where(closer, cost, least)
    return best


def _climbed(
    job: Job, number: int, answers: soft.Answers, start: Float[jnp.ndarray, "users rounds K"], heat: float
) -> tuple[Float[jnp.ndarray, "users rounds K"], Float[jnp.ndarray, " users"]]:
    """Factors uphill of a start if the answers are the true ones, and sum |f - y p| there."""
    prior, assumed, rows = _certain(job, number, answers), _log_certain(answers), job.rows(number)
    point = soft.Point(start, start_lam(job.layer, start))
    p = soft.climb(job.layer, job.own, rows, job.constants, prior, assumed, point, STEPS, heat).p
    return p, _fit(job, number, answers, p).distance


def _fit(job: Job, number: int, answers: soft.Answers, p: Float[jnp.ndarray, "users rounds K"]) -> soft.Fit:
    """How the true answers and given factors fit the uploads."""
    lam = jnp.zeros((p.shape[0], p.shape[2] * (1 if job.layer.tied else job.layer.n_runs)))
    point, prior = soft.Point(p, lam), _certain(job, number, answers)
    return soft.decode(
        job.layer, job.own, job.rows(number), job.constants, prior, _log_certain(answers), point
    )


def _log_certain(answers: soft.Answers) -> Float[jnp.ndarray, "candidates users slots"]:
    return jnp.where(answers.items > 0.5, 0.0, -SURE)


def _certain(job: Job, number: int, answers: soft.Answers) -> soft.Prior:
    """A prior that leaves no doubt about the attributes."""
    sure = jnp.where(answers.attributes > 0.5, SURE, -SURE)
    return job.prior_of(number)._replace(attribute=sure)


def _with_noise(job: Job, known: list[soft.Answers], factors: list[jnp.ndarray]) -> Job:
    """The scale that makes the true answers likeliest: the mean of |noise|."""
    total = coordinates = 0.0
    for number, (answers, p) in enumerate(zip(known, factors, strict=True)):
        rows, fit = job.rows(number), _fit(job, number, answers, p)
        sent = rows.sent.sum(axis=(0, 2)) + rows.attributes_sent.sum(axis=(0, 2))
        total += float(jnp.sum((fit.distance + rows.blank) * rows.live))
        coordinates += float(jnp.sum(sent * rows.live)) * rows.items.shape[2]
    noise = jnp.asarray(max(total / max(coordinates, 1.0), SMALLEST))
    return replace(job, constants=job.constants._replace(noise=noise))


def _posterior(
    job: Job, number: int, prior: jnp.ndarray, items: jnp.ndarray, attributes: jnp.ndarray
) -> soft.Answers:
    """Log likelihoods with a log prior of the items, and with the job's of the attributes."""
    found = jax.nn.softmax(items + prior, axis=0) * job.rows(number).valid
    if job.layer.blocks:
        attributes = soft.posterior_attributes(job.layer, attributes + job.prior.attribute)[0]
    return soft.Answers(found, attributes)


def _of_the_others(
    job: Job, number: int, answers: soft.Answers, item: Float[np.ndarray, "items tilts 3"]
) -> Float[jnp.ndarray, "candidates users slots"]:
    """Log prior of every slot with the item's tilts fitted to the other clients: one Newton step back.

    Items have few raters, and their tilts would give the answer away. The client's own tilts stay: it would
    be told that each answer is less usual for it than it is. ``item``: sums that the tilts were fitted with.
    """
    rows, features = job.rows(number), jnp.asarray(job.layer.features().T)
    fitted = soft.log_prior(job.layer, job.prior_of(number), rows)
    share, back = jnp.exp(fitted), jnp.zeros_like(fitted)
    for column, spread in enumerate(job.spread.item):
        feature = features[column]
        mean = jnp.einsum("v,vus->us", feature, share)
        variance = jnp.einsum("v,vus->us", feature**2, share) - mean**2
        of_item = jnp.asarray(item)[jnp.asarray(rows.item), column, 1]
        others = jnp.maximum(of_item - variance, 0.0) + 1 / spread
        gap = jnp.einsum("v,vus->us", feature, answers.items) - mean
        back += feature[:, None, None] * gap / others
    return jax.nn.log_softmax(fitted - back, axis=0)


def _fitted(job: Job, known: list[soft.Answers]) -> tuple[Job, Float[np.ndarray, "items tilts 3"]]:
    """A prior fitted to the true answers, with a dispersion of each client's own whatever the update; and
    the sums that the items' tilts were fitted with (``attacks.likelihood.summaries.Moments``)."""
    job = replace(job, layer=replace(job.layer, tied=True))
    n_users, n_items = job.view.users.size, job.packing.item_ids.size
    count = sum(answers.items.sum(axis=(1, 2)) for answers in known)
    start = priors.flat(job.layer, n_users, n_items, job.prior.start_mean.size)
    job = replace(
        job, prior=start._replace(level=jnp.log(count + 1.0)), spread=priors.start_spread(job.layer)
    )
    # a prior needs the rows without the uploads, which are costly to read again
    slots = [job.rows(number).during(np.zeros(0, int)) for number in range(job.n_batches)]
    total: Moments | None = None
    for _ in range(PASSES):
        total = None
        for number, (answers, rows) in enumerate(zip(known, slots, strict=True)):
            prior = job.prior_of(number)
            assumed = jnp.exp(soft.log_prior(job.layer, prior, rows)) * rows.valid
            found = moments(job.layer, rows, prior, assumed, answers)
            found = found._replace(user=jnp.asarray(scattered(job, number, found.user)))
            total = found if total is None else jax.tree.map(lambda a, b: a + b, total, found)
        assert total is not None
        prior, spread = priors.improve(job.layer, job.prior, job.spread, total, n_users, pulled=False)
        pairs = zip(prior, job.prior, strict=True)
        away = max(float(jnp.abs(new - old).max()) if new.size else 0.0 for new, old in pairs)
        job = replace(job, prior=prior, spread=spread)
        if away < SETTLED:
            break
    assert total is not None
    return job, np.asarray(total.item)
