"""One pass of every user over its samples: slopes, gradient rows, and what stays at home (paper 004).

=================  ================================================================================
x, g               score U . Z or U^ . V; g = 1 / (1 + exp(-x)), or x itself for the link identity
U, U^              ``clients``; U^ = U + mean of the Q_k of the rated k, kept as ``offsets``
lambda, W          ``implicit_weight``, ``negative_weight``
=================  ================================================================================

Equations (15) to (18) as corrected: with g' = g (1 - g) and the slope s = dL/dx,

    explicit  s = g' (g - R)                   dU = s V   dV = s U^   dQ_k = s V / |I| for every rated k
    positive  s = -lambda (1 - g)              dU = s Z   dZ = s U
    negative  s = lambda W g (1 - g)/(1 - W g) dU = s Z   dZ = s U

(15) lost the Z of the negatives, (14), (15) and (17) a minus. All Q_k of a user get the same step, and
only their mean is ever used: it is all that is kept.

A user has each item in one sample at most, so along a pass only U and the mean of Q move: V and Z of a
sample are those of before the round. Where samples go one by one, a pass is over the explicit ones in
random order, then over positives and negatives in random order. All users go at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from victims.common.seeds import Purpose, generator
from victims.protocols.feedback import EXPLICIT, NEGATIVE, Samples
from victims.protocols.sequential import chains


class Rules(NamedTuple):
    """Constants of the users' steps.

    Attributes
    ----------
    rate : float
        theta.
    implicit_weight, negative_weight : float
        lambda and W.
    users, items, implicit, offsets : float
        lambda_U, lambda_V, lambda_Z, lambda_Q.
    per_sample : bool
        Whether U and Q are regularized with every sample, or once a round as the loss says.
    link : "logistic" or "identity"
        Of explicit scores.
    order : "batch" or "per-rating"
        Whether all slopes of a round are taken at its start, or U and Q move after every sample.
    has_offsets : bool
        Whether there is a Q.
    """

    rate: float
    implicit_weight: float
    negative_weight: float
    users: float
    items: float
    implicit: float
    offsets: float
    per_sample: bool
    link: Literal["logistic", "identity"]
    order: Literal["batch", "per-rating"]
    has_offsets: bool = True


class Passed(NamedTuple):
    """What a pass leaves.

    Attributes
    ----------
    clients, offsets : (n_users, K)
        U and the mean of Q after it.
    rows : (n_samples, K)
        dL/dV where explicit, dL/dZ where implicit.
    place : (n_samples,) int32, or None
        Of each sample in its user's pass, where they go one by one.
    """

    clients: Float[np.ndarray, "users K"]
    offsets: Float[np.ndarray, "users K"]
    rows: Float[np.ndarray, "samples K"]
    place: Int[np.ndarray, " samples"] | None = None


def slopes(
    rules: Rules,
    kind: Int[np.ndarray, " samples"],
    target: Float[np.ndarray, " samples"],
    score: Float[np.ndarray, " samples"],
) -> Float[np.ndarray, " samples"]:
    """dL/dx of every sample.

    Parameters
    ----------
    rules : Rules
    kind, target : (n_samples,)
        As in ``Samples``.
    score : (n_samples,)
        x.

    Returns
    -------
    (n_samples,)
    """
    g, rest = expit(score), expit(-score)  # rest = 1 - g, and stays above 0 where g rounds to 1
    explicit = score - target if rules.link == "identity" else g * rest * (g - target)
    # 1 - W g in two terms that do not cancel; W = 1 leaves g
    negative = rules.negative_weight * g * rest / (rest + (1 - rules.negative_weight) * g)
    implicit = rules.implicit_weight * np.where(kind == NEGATIVE, negative, -rest)
    return np.where(kind == EXPLICIT, explicit, implicit)


def one_pass(
    rules: Rules,
    clients: Float[np.ndarray, "users K"],
    offsets: Float[np.ndarray, "users K"],
    samples: Samples,
    factors: Float[np.ndarray, "samples K"],
    seed: int,
    round_: int,
) -> Passed:
    """Let every user go over its samples once.

    Parameters
    ----------
    rules : Rules
    clients, offsets : (n_users, K)
        U and the mean of Q before it.
    samples : Samples
    factors : (n_samples, K)
        The user's V of an explicit sample, its Z of an implicit one.
    seed, round_ : int
        Of the order of the samples, where they go one by one.

    Returns
    -------
    Passed
    """
    go = _at_once if rules.order == "batch" else _one_by_one
    clients, offsets, rows, place = go(rules, clients, offsets, samples, factors, seed, round_)
    if not rules.has_offsets:
        offsets = np.zeros_like(offsets)
    if not rules.per_sample and rules.order == "per-rating":
        clients = clients * (1 - rules.rate * rules.users)
        offsets = offsets * (1 - rules.rate * rules.offsets)
    ridge = np.where(samples.kind == EXPLICIT, rules.items, rules.implicit)
    return Passed(clients, offsets, rows + ridge[:, None] * factors, place)


def explicit_counts(samples: Samples, n_users: int) -> Int[np.ndarray, " users"]:
    """Count the explicit ratings of every user, |I|.

    Parameters
    ----------
    samples : Samples
    n_users : int

    Returns
    -------
    (users,) int
    """
    return np.bincount(samples.user[samples.kind == EXPLICIT], minlength=n_users)


def _at_once(
    rules: Rules,
    clients: Float[np.ndarray, "users K"],
    offsets: Float[np.ndarray, "users K"],
    samples: Samples,
    factors: Float[np.ndarray, "samples K"],
    seed: int,
    round_: int,
) -> Passed:
    n_users, user = len(clients), samples.user
    is_explicit = samples.kind == EXPLICIT
    left = clients[user] + is_explicit[:, None] * offsets[user]
    slope = slopes(rules, samples.kind, samples.target, np.einsum("rk,rk->r", left, factors))
    pull = slope[:, None] * factors
    counts = explicit_counts(samples, n_users)
    of_clients = _over_users(user, pull, n_users)
    of_offsets = _over_users(user[is_explicit], pull[is_explicit], n_users) / np.maximum(counts, 1)[:, None]
    times, times_offsets = (np.bincount(user, minlength=n_users), counts) if rules.per_sample else (1, 1)
    of_clients += rules.users * np.reshape(times, (-1, 1)) * clients
    of_offsets += rules.offsets * np.reshape(times_offsets, (-1, 1)) * offsets
    return Passed(clients - rules.rate * of_clients, offsets - rules.rate * of_offsets, slope[:, None] * left)


def _one_by_one(
    rules: Rules,
    clients: Float[np.ndarray, "users K"],
    offsets: Float[np.ndarray, "users K"],
    samples: Samples,
    factors: Float[np.ndarray, "samples K"],
    seed: int,
    round_: int,
) -> Passed:
    clients, offsets = clients.copy(), offsets.copy()
    rows, place = np.zeros_like(factors), np.zeros(len(factors), np.int32)
    done = np.zeros(len(clients), np.int32)
    share = 1 / np.maximum(explicit_counts(samples, len(clients)), 1)
    pull_users, pull_offsets = (rules.users, rules.offsets) if rules.per_sample else (0.0, 0.0)
    for step in _steps_in_order(samples, len(clients), generator(seed, Purpose.SAMPLE_ORDER, round_)):
        user, factor = samples.user[step], factors[step]
        place[step] = done[user]
        done[user] += 1
        is_explicit = (samples.kind[step] == EXPLICIT)[:, None]
        u, q = clients[user], offsets[user]
        left = u + is_explicit * q if rules.has_offsets else u
        score = np.einsum("rk,rk->r", left, factor)
        pull = slopes(rules, samples.kind[step], samples.target[step], score)[:, None]
        rows[step] = pull * left
        clients[user] = u - rules.rate * (pull * factor + pull_users * u)
        move = pull * factor * share[user][:, None] + pull_offsets * q
        offsets[user] = q - rules.rate * is_explicit * move
    return Passed(clients, offsets, rows, place)


def _steps_in_order(
    samples: Samples, n_users: int, rng: np.random.Generator
) -> Iterator[Int[np.ndarray, " users_going"]]:
    """Samples that are handled together: one of each user who has any left."""
    is_explicit = samples.kind == EXPLICIT
    for chosen in (np.flatnonzero(is_explicit), np.flatnonzero(~is_explicit)):
        for table in chains(samples.user[chosen], n_users, rng).tables:
            for step in table:
                yield chosen[step[step >= 0]]


def _over_users(
    user: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows K"], n_users: int
) -> Float[np.ndarray, "users K"]:
    return np.stack([np.bincount(user, column, minlength=n_users) for column in values.T], axis=1)
