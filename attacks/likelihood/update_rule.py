"""What the clients' update rule says about their factors, given soft answers.

- semi-als: sum_j y_j q_j + lambda_1 sum_a y_a u_a = lambda_2 p (8) ties p to the ratings. Given the
  rows' posteriors the sum is nearly normal (many independent terms), with the mean m^t and covariance
  that the posteriors give. ``lam`` is the tilt exp(y q . lam) of those posteriors that moves the sum: the
  saddlepoint of the exact sum over all rating vectors, one lam for all rounds (q averaged over them);
- sgd: p at the start of every run of consecutive rounds; (9), (10) carry it on. If constants are missing,
  or for semi-als without lambda_2, every round is a run of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.likelihood.batches import Rows
from attacks.likelihood.model import Answers, AnyArray, Constants, Model, Prior
from attacks.likelihood.observation import contributions, item_rows

LEAST_VARIANCE = 0.02  # of a row in the tilt's covariance, so that near-certain rows bound the tilt


def gram(factors: AnyArray, share: Array, other: AnyArray | None = None) -> Float[Array, "rounds users K K"]:
    """Sum share q q', or share q other', over the slots of every round."""

    def one(q: Array) -> Array:
        weighted = q * share[:, None]
        return (weighted @ (q if other is None else other).swapaxes(1, 2)).astype(jnp.float64)

    return jax.lax.map(one, jnp.asarray(factors))


class FixedSums(NamedTuple):
    """Sums of q q' and u u' that do not depend on the answers, (rounds, users, K, K) and (rounds, K, K).

    items: sum over rated items of q q'; None where the weight of an item depends on the answer.
    """

    items: Array | None
    attributes: Array


def fixed_sums(model: Model, attribute_factors: AnyArray, rows: Rows) -> FixedSums:
    """Sum up once per ascent what does not depend on the answers."""
    attribute_factors = jnp.asarray(attribute_factors)
    attributes = jnp.einsum("tka,tla->tkl", attribute_factors, attribute_factors)
    if any(model.weighted):
        return FixedSums(None, attributes)
    return FixedSums(gram(rows.factors, jnp.asarray(rows.valid, rows.factors.dtype)), attributes)


def normal_equations(
    model: Model,
    attribute_factors: AnyArray,
    rows: Rows,
    constants: Constants,
    answers: Answers,
    sums: FixedSums,
) -> tuple[Float[Array, "users rounds K K"], Float[Array, "users rounds K"]]:
    """Q'CQ + lambda_1 U'U and Q'Cr + lambda_1 U'x of (8) at the posterior means, without lambda_2."""
    items = item_rows(model, constants, rows)
    share = jnp.einsum("v,vur->ur", items.weights, answers.items)
    target = jnp.einsum("v,vur->ur", items.weights * items.levels, answers.items)
    first = constants.lambda_attributes
    square = gram(rows.factors, share) if sums.items is None else sums.items
    square = square.swapaxes(0, 1) + first * sums.attributes
    right = jnp.einsum("tukr,ur->utk", rows.factors, target).astype(jnp.float64)
    right += first * jnp.einsum("ua,tka->utk", answers.attributes, jnp.asarray(attribute_factors))
    return square, right


class Link(NamedTuple):
    """p^t = mean + basis (lam - lam_now)."""

    mean: Float[Array, "users rounds K"]
    basis: Float[Array, "users rounds K L"]
    precision: Float[Array, "users L L"]  # of lam a priori


def link(
    model: Model,
    attribute_factors: AnyArray,
    rows: Rows,
    constants: Constants,
    prior: Prior,
    p: AnyArray,
    answers: Answers,
    sums: FixedSums,
) -> Link:
    """What the update rule says about p^t given soft answers: (8), or the steps (9), (10)."""
    square, right = normal_equations(model, attribute_factors, rows, constants, answers, sums)
    if model.tied:
        return _tied(model, jnp.asarray(attribute_factors), rows, constants, p, answers, square, right)
    return _free(model, constants, prior, square, right)


def _tied(
    model: Model,
    attribute_factors: Array,
    rows: Rows,
    constants: Constants,
    p: AnyArray,
    answers: Answers,
    square: Array,
    right: Array,
) -> Link:
    k = right.shape[-1]
    inverse = jnp.linalg.inv(square + constants.lambda_factors * jnp.eye(k))
    pull = contributions(model, rows, constants, p)
    average = jnp.sum(answers.items * pull, axis=0)
    spread = jnp.sum(answers.items * (pull - average) ** 2, axis=0) + LEAST_VARIANCE
    across = gram(rows.factors, spread, rows.middle).swapaxes(0, 1)
    precision = ((rows.middle * spread[:, None]) @ rows.middle.swapaxes(1, 2)).astype(jnp.float64)
    if model.blocks:
        block = np.array(model.blocks)
        same = (block[:, None] == block).astype(np.float64)
        x = answers.attributes
        covariance = jnp.eye(x.shape[1]) * x[:, :, None] - same * x[:, :, None] * x[:, None, :]
        middle = attribute_factors.mean(axis=0).T
        half = constants.lambda_attributes**2 * covariance @ middle
        across += jnp.einsum("tka,ual->utkl", attribute_factors, half)
        precision += jnp.einsum("ak,ual->ukl", middle, half)
    mean = jnp.einsum("utkl,utl->utk", inverse, right)
    return Link(mean, inverse @ across, precision + 1e-9 * jnp.eye(k))


def _free(model: Model, constants: Constants, prior: Prior, square: Array, right: Array) -> Link:
    n_users, _, k = right.shape
    size = model.n_runs * k
    rate = jnp.asarray(constants.rate)

    def carry(
        state: tuple[Array, Array], piece: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        run, new, square, right = piece
        mean, basis = state
        fresh = jax.lax.dynamic_update_slice(jnp.zeros((k, size)), jnp.eye(k), (0, run * k))
        mean = jnp.where(new, 0.0, mean)
        basis = jnp.where(new, fresh, basis)
        step = (1 - 2 * rate * constants.lambda_factors) * jnp.eye(k) - 2 * rate * square
        then = jnp.einsum("ukl,ul->uk", step, mean) + 2 * rate * right
        return (then, step @ basis), (mean, basis)

    state = jnp.zeros((n_users, k)), jnp.zeros((n_users, k, size))
    parts = jnp.array(model.runs), jnp.array(model.starts), square.swapaxes(0, 1), right.swapaxes(0, 1)
    _, (mean, basis) = jax.lax.scan(carry, state, parts)
    precision = jnp.broadcast_to(prior.start_precision, (n_users, size, size))
    return Link(mean.swapaxes(0, 1), basis.swapaxes(0, 1), precision)
