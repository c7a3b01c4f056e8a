"""The posterior of one client's ratings and numbers: rows are a linear form of ratings, and noise.

With the coordinates a_k, z_k of row k along the leading right singular vectors of a client's rows, and b_k of
the item's broadcast factor along the first,

    r_k = A (a_k + Q . z_k) / f_k + B b_k + g_k + C + noise,    r_k one of the levels, with a prior

One exact step has no noise: A = 1 / (rate |p|) and B = |p|. Minibatches, local epochs, shuffles, rounding and
noise that was added make it noise: ``Q`` follows a factor that moves during a pass, ``f_k`` is 1 but for some
rows of a ragged last minibatch, and the size of the noise is one more unknown. What a program adds to its
predictions is g, where it was broadcast, and C, where nobody told: a mean or a bias. The unknown that stands
for C is m, the client's mean rating, for that also says how high it rates. Noise that comes from a moving
factor is proportional to the error of its row, noise that was added is not; ``relative`` says how much is.

All is in units of (highest - lowest level) / 4, a star on five-star scales, and of the client's own root mean
squares of a and b. Student's law for the noise, so that single rows do not decide.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import gammaln

FREEDOM = 8.0  # degrees of Student's law
LOG_CONSTANT = float(gammaln((FREEDOM + 1) / 2) - gammaln(FREEDOM / 2) - np.log(FREEDOM * np.pi) / 2)
LOG_TWO_PI = math.log(2 * math.pi)
LEAST_NOISE = 0.01  # of the variance, that does not depend on a row's error
OUTLIER = -8.0  # log-likelihood below which a row tells nothing of where to look
IN_LAST = (0.81, 0.15, 0.04)  # of the rows: never, once and twice in a ragged last minibatch
AT_ONCE = 16  # points that are evaluated together, of which there are a multiple


class Program(NamedTuple):
    """What clients may have done, as far as the form of their rows tells."""

    sign: float | Array  # 1 where rows are changes, -1 where they are gradients
    relative: float | Array  # share of the noise's variance that is proportional to the error's square
    # numbers of times that a row may be in a ragged last minibatch, which has another scale; 0 where none is
    times: Int[Array, " times"] | Int[np.ndarray, " times"]
    own: float | Array = 0.0  # 1 where C is about the client's own mean rating, 0 where clients share it
    offset: bool | Array = False  # whether predictions have a C


class Data(NamedTuple):
    """Some clients' rows; 0 on padding."""

    coordinates: Float[Array | np.ndarray, "clients rows directions"]
    along: Float[Array | np.ndarray, "clients rows"]
    there: Float[Array | np.ndarray, "clients rows"]  # 1, or 0 on padding
    log_prior: Float[Array | np.ndarray, "clients rows levels"]
    given: Float[Array | np.ndarray, "clients rows"]  # that is known to be added to predictions
    usual: Float[Array | np.ndarray, "clients 2"]  # mean and variance of what people rate


class Prior(NamedTuple):
    """Normal laws of the unknowns (log A, log B, Q, m if C is open, log f, log of the noise), and more."""

    mean: Float[Array | np.ndarray, "clients unknowns"]
    deviation: Float[Array | np.ndarray, "clients unknowns"]
    # means and deviations: of log A + log B, and of C, or C - m where it is the client's own
    product: Float[Array | np.ndarray, "clients 2"]
    added: Float[Array | np.ndarray, "clients 2"]


class _Terms(NamedTuple):
    likelihood: Array  # rows last in all, where a compiled loop over them is one over neighbours in memory
    slopes: Array  # of the prediction by all unknowns but the noise: (unknowns - 1, components, rows)
    z: Array  # (components, levels, rows)
    log_joint: Array  # the same
    log_total: Array  # (rows,)
    noise: Array  # (levels, rows)
    added: Array  # C, and
    by_added: Array  # its slopes, by all unknowns


def _has_offset(x: Array, data: Data) -> bool:
    """Whether there is an m, between Q and f."""
    return x.size == data.coordinates.shape[1] + 4


def _log_prior(x: Array, terms: _Terms, program: Program, data: Data, prior: Prior) -> Array:
    t = (x - prior.mean) / prior.deviation
    laws = [(x[0] + x[1] - prior.product[0]) / prior.product[1]]
    scales = jnp.log(prior.deviation).sum() + jnp.log(prior.product[1])
    if _has_offset(x, data):
        laws.append((terms.added - program.own * x[-3] - prior.added[0]) / prior.added[1])
        scales += jnp.log(prior.added[1])
    rest = jnp.stack(laws)
    return -(t @ t + rest @ rest) / 2 - scales - (x.size + len(laws)) * LOG_TWO_PI / 2


def _terms(x: Array, own_sign: Array, program: Program, data: Data, levels: Array) -> _Terms:
    n_more = data.coordinates.shape[1] - 1
    coordinates, log_prior = data.coordinates.T, data.log_prior.T
    scale, length = jnp.exp(x[0]) * own_sign * program.sign, jnp.exp(x[1]) * own_sign
    error = scale * (coordinates[0] + x[2 : 2 + n_more] @ coordinates[1:])
    known, moving = length * data.along, scale * coordinates[1:]
    added, by_added = 0 * x[0], jnp.zeros_like(x)
    if _has_offset(x, data):
        n_rows = jnp.maximum(data.there.sum(), 1)
        means = jnp.concatenate([error[None], known[None], moving]) @ data.there / n_rows
        added = x[-3] - means[0] - means[1] - data.given @ data.there / n_rows
        by_added = by_added.at[: means.size].set(-means).at[-3].set(1.0)
        tilt = (x[-3] - data.usual[0]) / data.usual[1]
        log_prior = jax.nn.log_softmax(log_prior + tilt * levels[:, None], axis=0)
    longer = 1 + program.times * (jnp.exp(x[-2]) - 1)
    chances = jnp.array(IN_LAST if program.times.size > 1 else (1.0,), x.dtype)
    log_weight = jnp.log(chances) - jnp.log(longer)
    by_f = -program.times * jnp.exp(x[-2]) / longer
    errors = error / longer[:, None]
    parts = [errors, jnp.broadcast_to(known, errors.shape), *(moving[:, None] / longer[:, None])]
    if _has_offset(x, data):
        parts = [part + slope for part, slope in zip([*parts, 0 * errors], by_added, strict=False)]
    parts.append(errors * by_f[:, None])
    known = known + data.given + added
    # what a level says of the row's error: noise of a moving factor is proportional to it
    told = jax.lax.stop_gradient((levels[:, None] - known) * jnp.exp(-x[0]))
    spread = jnp.sqrt(1 - program.relative + program.relative * told**2 + LEAST_NOISE)
    noise = jnp.exp(x[-1]) * spread
    z = (errors[:, None] + known - levels[:, None]) / noise
    law = -(FREEDOM + 1) / 2 * jnp.log1p(z * z / FREEDOM) - jnp.log(spread)
    log_joint = law + log_prior + log_weight[:, None, None]
    log_total = jax.nn.logsumexp(log_joint, axis=(0, 1))
    likelihood = ((log_total + LOG_CONSTANT) * data.there).sum() + data.there.sum() * (x[0] - x[-1])
    return _Terms(likelihood, jnp.stack(parts), z, log_joint, log_total, noise, added, by_added)


def _step(
    x: Array, own_sign: Array, program: Program, data: Data, levels: Array, prior: Prior
) -> tuple[Array, Array, Array]:
    """Value, gradient and information of the posterior, as if the levels were known (EM)."""
    terms = _terms(x, own_sign, program, data, levels)
    weight = jnp.exp(terms.log_joint - terms.log_total) * data.there
    pull = weight * (FREEDOM + 1) / (FREEDOM + terms.z**2)
    n_rows = data.there.sum()
    slopes = terms.slopes.reshape(x.size - 1, -1)
    sums = (pull * terms.z / terms.noise).sum(1).ravel()
    t = (x - prior.mean) / prior.deviation**2
    both = (x[0] + x[1] - prior.product[0]) / prior.product[1] ** 2
    gradient = -t.at[:2].add(both)
    gradient = gradient.at[:-1].add(-slopes @ sums)
    gradient = gradient.at[0].add(n_rows).at[-1].add((pull * terms.z**2).sum() - n_rows)
    information = jnp.diag(1 / prior.deviation**2).at[:2, :2].add(1 / prior.product[1] ** 2)
    known = (slopes * (pull / terms.noise**2).sum(1).ravel()) @ slopes.T
    information = information.at[:-1, :-1].add(known)
    information = information.at[-1, -1].add(2 * n_rows * FREEDOM / (FREEDOM + 3))
    if _has_offset(x, data):
        slope = terms.by_added.at[-3].add(-program.own)
        apart = terms.added - program.own * x[-3] - prior.added[0]
        gradient -= slope * apart / prior.added[1] ** 2
        information += jnp.outer(slope, slope) / prior.added[1] ** 2
    longer = 1 + program.times * (jnp.exp(x[-2]) - 1)
    gradient = gradient.at[-2].add(-(weight.sum((1, 2)) * program.times * jnp.exp(x[-2]) / longer).sum())
    value = terms.likelihood + _log_prior(x, terms, program, data, prior)
    return value, gradient, information


@jax.jit
def ascend(
    x: Float[Array, "clients modes unknowns"],
    own_sign: Float[Array, "clients modes"],
    data: Data,
    prior: Prior,
    program: Program,
    levels: Float[Array, " levels"],
    n_steps: int | Array,
) -> tuple[Array, Array, Array]:
    """Climb from each start: where it ends, the posterior there, and its information."""

    def climbed(x: Array, own_sign: Array, data: Data, prior: Prior) -> tuple[Array, Array, Array]:
        def once(_: Array, x: Array) -> Array:
            _value, gradient, information = _step(x, own_sign, program, data, levels, prior)
            step = jnp.linalg.solve(information, gradient)
            return x + step.at[:2].set(jnp.clip(step[:2], -0.3, 0.3)).at[2:].set(
                jnp.clip(step[2:], -0.5, 0.5)
            )

        x = jax.lax.fori_loop(0, n_steps, once, x)
        value, _, information = _step(x, own_sign, program, data, levels, prior)
        return x, value, information

    return jax.vmap(jax.vmap(climbed, (0, 0, None, None)))(x, own_sign, data, prior)


@jax.jit
def densities(
    x: Float[Array, "clients points unknowns"],
    own_sign: Float[Array, "clients points"],
    data: Data,
    prior: Prior,
    program: Program,
    levels: Float[Array, " levels"],
) -> Float[Array, "clients points 3"]:
    """Log-likelihood and log-prior of points, and C."""

    def of_client(x: Array, own_sign: Array, data: Data, prior: Prior) -> Array:
        def of_point(point: tuple[Array, Array]) -> Array:
            here, sign = point
            terms = _terms(here, sign, program, data, levels)
            log_prior = _log_prior(here, terms, program, data, prior)
            return jnp.stack([terms.likelihood, log_prior, terms.added])

        return jax.lax.map(of_point, (x, own_sign), batch_size=AT_ONCE)

    return jax.vmap(of_client)(x, own_sign, data, prior)


@jax.jit
def levels_of(
    x: Float[Array, "clients points unknowns"],
    own_sign: Float[Array, "clients points"],
    weight: Float[Array, "clients points"],
    data: Data,
    program: Program,
    levels: Float[Array, " levels"],
    trust: float | Array,
) -> Float[Array, "clients rows levels"]:
    """Probability of each level of each row: the mean over weighted points, the likelihood to a power."""

    def of_client(x: Array, own_sign: Array, weight: Array, data: Data) -> Array:
        log_prior = data.log_prior.T

        def of_point(x: Array, own_sign: Array) -> Array:
            joint = jax.nn.logsumexp(_terms(x, own_sign, program, data, levels).log_joint, axis=0)
            return jax.nn.softmax(trust * (joint - log_prior) + log_prior, axis=0)

        def added(total: Array, some: tuple[Array, Array, Array]) -> tuple[Array, None]:
            here, sign, share = some
            return total + jnp.tensordot(share, jax.vmap(of_point)(here, sign), 1), None

        here, sign, share = (part.reshape(-1, AT_ONCE, *part.shape[1:]) for part in (x, own_sign, weight))
        total, _ = jax.lax.scan(added, jnp.zeros_like(log_prior), (here, sign, share))
        return (total * data.there).T

    return jax.vmap(of_client)(x, own_sign, weight, data)


@jax.jit
def evidence_table(
    data: Data,
    program: Program,
    levels: Float[Array, " levels"],
    scales: Float[Array, " A"],
    lengths: Float[Array, " B"],
    noises: Float[Array, " noises"],
) -> Float[Array, "clients noises 2 A B"]:
    """Log-likelihood on a grid of A and B, with each sign of the direction, where nothing else is open."""

    def of_client(data: Data) -> Array:
        a = data.coordinates[:, 0]
        spread = jnp.sqrt(1 - program.relative + program.relative * a**2 + LEAST_NOISE)

        def of_plane(plane: tuple[Array, Array]) -> Array:
            own_sign, noise = plane

            def of_length(length: Array) -> Array:
                said = own_sign * (program.sign * scales[:, None] * a + length * data.along) + data.given
                z = (said - levels[:, None, None]) / (noise * spread)
                each = jax.nn.logsumexp(-z * z / 2 + data.log_prior.T[:, None], axis=0)
                return ((jnp.logaddexp(each, OUTLIER) - jnp.log(spread)) * data.there).sum(-1)

            table = jax.lax.map(of_length, lengths).T
            return table + data.there.sum() * (jnp.log(scales)[:, None] - jnp.log(noise))

        planes = jnp.tile(jnp.array([1.0, -1.0], noises.dtype), noises.size), jnp.repeat(noises, 2)
        return jax.lax.map(of_plane, planes).reshape(noises.size, 2, scales.size, lengths.size)

    return jax.vmap(of_client)(data)


@jax.jit
def phase_table(
    data: Data,
    program: Program,
    gap: float | Array,
    scales: Float[Array, " A"],
    lengths: Float[Array, " B"],
    noises: Float[Array, " noises"],
) -> tuple[Float[Array, "clients noises 2 A B"], Float[Array, "clients noises 2 A B"]]:
    """Log-likelihood on a grid of A and B where C is the best one of any, and that one, up to whole gaps.

    Levels without an end, of equal chances, make the noise a wrapped one: von Mises' law is taken for it.
    """

    def of_client(data: Data) -> tuple[Array, Array]:
        a = data.coordinates[:, 0]
        variance = 1 - program.relative + program.relative * a**2 + LEAST_NOISE

        def of_plane(plane: tuple[Array, Array]) -> tuple[Array, Array]:
            own_sign, noise = plane
            weight = data.there * (gap / (2 * jnp.pi * noise)) ** 2 / variance

            def of_length(length: Array) -> tuple[Array, Array]:
                said = own_sign * (program.sign * scales[:, None] * a + length * data.along) + data.given
                angle = 2 * jnp.pi / gap * said
                cosine, sine = jnp.cos(angle) @ weight, jnp.sin(angle) @ weight
                return jnp.hypot(cosine, sine), jnp.arctan2(sine, cosine)

            size, angle = jax.lax.map(of_length, lengths)
            size = size.T - jnp.log(jax.scipy.special.i0e(weight)).sum() - weight.sum()
            return size + data.there.sum() * jnp.log(scales)[:, None], -angle.T * gap / (2 * jnp.pi)

        planes = jnp.tile(jnp.array([1.0, -1.0], noises.dtype), noises.size), jnp.repeat(noises, 2)
        size, added = jax.lax.map(of_plane, planes)
        shape = noises.size, 2, scales.size, lengths.size
        return size.reshape(shape), added.reshape(shape)

    return jax.vmap(of_client)(data)
