"""The ceiling under noise: a decoder that reads each answer with all other answers of the client in hand.

It knows the uploads, the law of the noise, every rating and attribute of the client but the one in question,
in sgd also the client's factor in the first round, and how ratings are distributed: a prior of the form that
``likelihood`` estimates (levels, activity, mean and dispersion of each client, popularity and mean of each
item), fitted to the true answers; an item's effects to those of the other clients. Given all that the
posterior is exact (``log_likelihoods``), and each metric gets the answer to its own question. An
attack sees the uploads alone, so that on average over the noise it does not pass this decoder: each of its
answers is a function of what the decoder has. On few clients it may by chance.

Why not the decoder that is told p_i alone: in semi-als p_i is a function of the ratings, so that whoever is
told p_i to the last digit could search for the ratings that give it, and whoever reads row by row instead
knows less than an attack that uses (8), where a client has few ratings. The limit here has the same
knowledge of p_i and uses it; where a client has few ratings for the number of factors it is generous.

What it is no limit for: an attack that knows more of ratings than that prior, say from similar clients. In
sgd the truth has no factors: the likeliest one under the true answers stands for it, which favours them. Not
computed where constants of the clients' step are not public, for an attack may estimate them and read more. A
client of whose uploads the true answers and these factors leave more than noise (training that diverged, a
rule that is not the declared one) has the perfect score for a limit.
Where clients keep some of their ratings to themselves the limit is that of ``audit.scoring.ceiling``.


An attack sees the uploads F and wants one answer z_j. Whoever also knows every other answer of the client
knows strictly more, and p^t then follows from z_j alone: by (8) of Mai & Pang 2022 in semi-als, by (9), (10)
from the factor at the start of the watch in sgd. So log P(F | z_j, the others) is exact: every candidate
moves p^t, and with it every row of the client. The rows of the other items matter where they are few (a
client with one rating shows p in its attributes alone); each answer moves p by about one part in their
number, so that beyond ``FEW`` of them their log likelihood is taken as a quadratic of the move, with the
score at the truth and the information of the complete data, which is never less than what the rows tell.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attacks.base import Estimates
from attacks.client_rules.premises import unlike
from attacks.closed_form.uploads.repeated_noise import noise_repeats
from attacks.likelihood import oracle
from attacks.likelihood.oracle import Answers, BatchCache, Constants, Model, Rows, update_rule_sums
from attacks.obstacles import alpha_unknown, unreadable
from audit.scoring.ceiling import Ceiling, withheld_ceilings, withheld_obstacle
from audit.scoring.metrics import score_users
from audit.scoring.truth import Truth
from victims.transcript.view import View

MODELLED = frozenset({"laplace"})
FEW = 384  # slots of a client, up to which all its rows are computed for every candidate of every slot


def obstacle(view: View) -> str:
    """Say why there is no limit for a view."""
    if view.manifest.withholds_ratings:
        return withheld_obstacle(view)
    other = [str(entry.get("name")) for entry in view.manifest.defenses if entry.get("name") not in MODELLED]
    if other:
        return f"the limit does not model {', '.join(other)}"
    reason = unreadable(view) or alpha_unknown(view) or oracle.unmodelled(view.manifest) or unlike(view)
    if reason or view.users.size == 0:
        return reason or "the view has no clients"
    if noise_repeats(view):
        return "the noise is the same in several rounds, and what two of them differ by is free of it"
    if not oracle.constants_are_public(view):
        return "constants of the clients' step are not public, and an attack may estimate them"
    return ""


def computable(view: View) -> bool:
    """Tell whether there are uploads to read, under a law that the decoder models."""
    return not obstacle(view)


def ceilings(view: View, truth: Truth) -> dict[str, Ceiling]:
    """The limit of every metric, for each client of a view."""
    truth.refuse_unless_about(view.manifest)
    if view.manifest.withholds_ratings:
        return withheld_ceilings(view, truth)
    batches, flat = oracle.prepared(view)
    problem = batches.problem
    known = [true_answers(batches, batch, truth) for batch in range(problem.n_batches)]
    factors = [oracle.factors_of(batches, flat, batch, answers) for batch, answers in enumerate(known)]
    if not problem.known_noise:
        flat = oracle.with_fitted_noise(batches, flat, known, factors)
    informed = oracle.fit_prior(batches, flat, known)
    limited = [
        oracle.explained(batches, flat, batch, answers, p)
        for batch, (answers, p) in enumerate(zip(known, factors, strict=True))
    ]
    blocks: tuple[list[Estimates], list[Estimates]] = ([], [])
    for batch, (answers, p) in enumerate(zip(known, factors, strict=True)):
        told = problem.attribute_factors, batches.rows(batch), flat.constants, answers, p
        likely = log_likelihoods(problem.model, *told)
        priors = (
            (flat, oracle.flat_log_prior(batches, flat, batch)),
            (informed.parameters, oracle.log_prior_of_others(batches, informed, batch, answers)),
        )
        for out, (parameters, prior) in zip(blocks, priors, strict=True):
            found = oracle.posterior(batches, parameters, batch, prior, *likely)
            known_p = limited[batch][:, None]  # else the true answers: nothing limits who reads these clients
            found = Answers(
                np.where(known_p, found.items, answers.items),
                np.where(known_p, found.attributes, answers.attributes),
            )
            out.append(oracle.estimates(batches, batch, found))
    users = np.unique(view.users)
    ml, by_prior = (score_users(tuple(part), view.manifest, truth, users) for part in blocks)
    return {metric: Ceiling(users, ml[metric], by_prior[metric]) for metric in ml}


def true_answers(batches: BatchCache, batch: int, truth: Truth) -> Answers:
    """Put what the truth says about every slot of a batch, and about the attributes, as answers."""
    problem, about = batches.problem, oracle.asked(batches, batch)
    row = truth.rows(about.users)
    ratings = truth.ratings_at(row, about.items, about.items.shape)
    attributes = truth.attributes_of(row, problem.view.manifest.n_attributes)
    return oracle.certain_answers(problem.model, about, ratings, attributes)


class Known(NamedTuple):
    """What belongs to one client, or to the clients of a batch with their axis first."""

    items: Float[Array, "*users rounds K slots"]
    factors: Float[Array, "*users rounds K slots"]
    sent: Array
    attributes: Float[Array, "*users rounds K attributes"]
    attributes_sent: Array
    level: Int[Array, "*users slots"]  # position of the true answer among the candidates
    active: Float[Array, "*users attributes"]  # the true attributes
    p: Float[Array, "*users rounds K"]  # the factors that belong to them
    square: Float[Array, "*users rounds K K"]  # Q'CQ + lambda_1 U'U, and Q'Cr + lambda_1 U'x
    right: Float[Array, "*users rounds K"]  # Q'CQ + lambda_1 U'U, and Q'Cr + lambda_1 U'x


class _Law(NamedTuple):
    """Model, broadcast factors of the attributes (rounds, K, attributes), constants, values and weights."""

    model: Model
    attribute_factors: Array
    constants: Constants
    levels: Array
    weights: Array


@partial(jax.jit, static_argnums=0)
def log_likelihoods(
    model: Model,
    attribute_factors: Float[Array | np.ndarray, "rounds K attributes"],
    rows: Rows,
    constants: Constants,
    answers: Answers,
    p: Float[Array, "users rounds K"],
) -> tuple[Float[Array, "candidates users slots"], Float[Array, "users attributes"]]:
    """Of every candidate of every slot, and log odds of every attribute being active, all else as it is."""
    attribute_factors = jnp.asarray(attribute_factors)
    square, right = update_rule_sums(model, attribute_factors, rows, constants, answers)
    by_round = rows.items, rows.factors, rows.sent, rows.attributes, rows.attributes_sent
    items, factors, sent, others, others_sent = (jnp.asarray(part).swapaxes(0, 1) for part in by_round)
    level = answers.items.argmax(axis=0)
    active = jnp.asarray(answers.attributes)
    batch = Known(items, factors, sent, others, others_sent, level, active, p, square, right)
    weights = jnp.where(jnp.array(model.weighted), constants.alpha, 1.0)
    law = _Law(model, attribute_factors, constants, jnp.array(model.levels), weights)
    items, attributes = jax.lax.map(partial(_client, law), batch)
    items = items.transpose(2, 0, 1) / -constants.noise
    return jnp.where(rows.valid, items, 0.0), attributes / -constants.noise


def _client(law: _Law, known: Known) -> tuple[Float[Array, "slots candidates"], Float[Array, " attributes"]]:
    """Costs, sums of |f - y p|, of one client."""
    n_slots = known.level.size
    weight, level = law.weights[known.level], law.levels[known.level]
    true = jnp.zeros_like(known.p), jnp.zeros(1), jnp.zeros((known.p.shape[0], 1, known.p.shape[1]))
    known = known._replace(p=_moved(law, known, *true)[:, 0])
    whole = None
    if n_slots > FEW and law.model.clip is None:
        whole = _curve(law, known.p, known.items, known.factors, known.sent, weight, level)

    def of_items(p: Array) -> Array:
        """All items' rows at factors p (rounds, candidates, K)."""
        if whole is not None:
            return whole.at(p - known.p[:, None])
        shape = p.shape[1], n_slots
        answer = jnp.broadcast_to(weight, shape), jnp.broadcast_to(level, shape)
        return _distance(law, known.items, known.factors, known.sent, p, *answer)

    def of_attributes(p: Array, active: Array) -> Array:
        ones = jnp.ones_like(active)
        return _distance(law, known.attributes, law.attribute_factors, known.attributes_sent, p, ones, active)

    def item(slot: Array) -> Array:
        f, q, sent = (column[..., slot][..., None] for column in (known.items, known.factors, known.sent))
        own = weight[slot][None], level[slot][None]
        heavier = law.weights - own[0]
        pulled = law.weights * law.levels - own[0] * own[1]
        p = _moved(law, known, q[..., 0], heavier, pulled[:, None] * q[:, None, :, 0])
        if whole is None:
            before = _distance(law, f, q, sent, p, *(jnp.broadcast_to(part, (p.shape[1], 1)) for part in own))
        else:
            before = _curve(law, known.p, f, q, sent, *own).at(p - known.p[:, None])
        after = _distance(law, f, q, sent, p, law.weights[:, None], law.levels[:, None])
        active = jnp.broadcast_to(known.active, (p.shape[1], known.active.size))
        return of_items(p) - before + after + of_attributes(p, active)

    items = jax.lax.map(item, jnp.arange(n_slots))
    if not law.model.blocks:
        return items, jnp.zeros(0)
    block = np.array(law.model.blocks)
    same, loose = jnp.asarray(block[:, None] == block), jnp.array(law.model.loose)[block]

    def attribute(column: Array) -> Array:
        """Active, against the truth; against "inactive" where the column is no part of a block."""
        cleared = jnp.where(same[column], 0.0, known.active)
        active = jnp.stack([jnp.where(loose[column], cleared, known.active), cleared.at[column].set(1.0)])
        pulled = jnp.einsum("tka,va->tvk", law.attribute_factors, active - known.active)
        pulled = jnp.asarray(law.constants.lambda_attributes) * pulled
        p = _moved(law, known, jnp.zeros_like(known.p), jnp.zeros(2), pulled)
        cost = of_items(p) + of_attributes(p, active)
        return cost[1] - cost[0]

    return items, jax.lax.map(attribute, jnp.arange(block.size))


def _distance(
    law: _Law,
    rows: Float[Array, "rounds K slots"],
    factors: Float[Array, "rounds K slots"],
    sent: Array,
    p: Float[Array, "rounds candidates K"],
    weight: Float[Array, "candidates slots"],
    level: Float[Array, "candidates slots"],
) -> Float[Array, " candidates"]:
    """sum over rounds, rows and coordinates of |f - y p|."""
    y = weight * (level - jnp.einsum("tvk,tks->tvs", p, factors))
    if law.model.clip is not None:
        most = law.model.clip / jnp.maximum(jnp.abs(p).sum(axis=-1), 1e-30)[..., None]
        y = jnp.clip(y, -most, most)
    away = jnp.zeros_like(y)
    for k in range(rows.shape[1]):  # one fused loop
        away = away + jnp.abs(rows[:, None, k] - y * p[:, :, k, None])
    return jnp.sum(jnp.where(sent[:, None], away, 0.0), axis=(0, 2))


def _moved(
    law: _Law,
    known: Known,
    q: Float[Array, "rounds K"],
    heavier: Float[Array, " candidates"],
    pulled: Float[Array, "rounds candidates K"],
) -> Float[Array, "rounds candidates K"]:
    """p if Q'CQ had ``heavier`` q q' more, and Q'Cr + lambda_1 U'x ``pulled`` more."""
    eye, constants = jnp.eye(q.shape[1]), law.constants
    if law.model.tied:  # (8), by Sherman and Morrison
        inverse = jnp.linalg.inv(known.square + constants.lambda_factors * eye)
        straight = known.p[:, None] + jnp.einsum("tkl,tvl->tvk", inverse, pulled)
        aside = jnp.einsum("tkl,tl->tk", inverse, q)
        lean = heavier * jnp.einsum("tk,tvk->tv", q, straight)
        lean = lean / (1 + heavier * jnp.einsum("tk,tk->t", q, aside)[:, None])
        return straight - lean[..., None] * aside[:, None]

    def step(p: Array, part: tuple[Array, ...]) -> tuple[Array, Array]:
        new, told, square, right, q, pulled = part
        p = jnp.where(new, told, p)
        pull = right - p @ square.T + pulled - (heavier * (p @ q))[:, None] * q
        rate, ridge = jnp.asarray(constants.rate), constants.lambda_factors
        return (1 - 2 * rate * ridge) * p + 2 * rate * pull, p

    start = jnp.zeros((heavier.size, q.shape[1]))
    parts = jnp.array(law.model.starts), known.p, known.square, known.right, q, pulled
    return jax.lax.scan(step, start, parts)[1]


class _Curve(NamedTuple):
    """A cost as a quadratic of how far p moves: slope (rounds, K), curvature (rounds, K, K)."""

    slope: Array
    curvature: Array

    def at(self, moved: Float[Array, "rounds candidates K"]) -> Float[Array, " candidates"]:
        """How much the cost grows."""
        bent = jnp.einsum("tvk,tkl,tvl->v", moved, self.curvature, moved)
        return jnp.einsum("tk,tvk->v", self.slope, moved) + 0.5 * bent


def _curve(
    law: _Law,
    p: Float[Array, "rounds K"],
    rows: Float[Array, "rounds K slots"],
    factors: Float[Array, "rounds K slots"],
    sent: Array,
    weight: Float[Array, " slots"],
    level: Float[Array, " slots"],
) -> _Curve:
    """Of sum |f - y p| over some rows of items, around the truth.

    d(y p)/dp = y I - c p q'. Under Laplace noise of scale b a coordinate's |f - y p| grows by at most
    (change)^2 / 2b on average.
    """
    y = jnp.where(sent, weight * (level - jnp.einsum("tk,tks->ts", p, factors)), 0.0)
    c = jnp.where(sent, weight, 0.0)
    sign = jnp.sign(rows - y[:, None] * p[..., None])
    lean = c * jnp.einsum("tk,tks->ts", p, sign)
    slope = jnp.einsum("ts,tks->tk", lean, factors) - jnp.einsum("ts,tks->tk", y, sign)
    cross = jnp.einsum("tk,tl->tkl", jnp.einsum("ts,tks->tk", y * c, factors), p)
    square = jnp.einsum("ts,tks,tls->tkl", c**2, factors, factors)
    curvature = jnp.sum(y**2, axis=1)[:, None, None] * jnp.eye(p.shape[1])
    curvature += jnp.sum(p**2, axis=1)[:, None, None] * square - cross - cross.swapaxes(1, 2)
    return _Curve(slope, curvature / law.constants.noise)
