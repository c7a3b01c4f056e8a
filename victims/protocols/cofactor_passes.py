"""One pass of every user over its samples, in each order: gradient rows, and what stays at home (paper 004).

A user has each item in one sample at most, so along a pass only U and the mean of Q move: V and Z of a
sample are those of before the pass. Where samples go one by one, or a minibatch at a time, a pass is over the
explicit ones in random order, then over positives and negatives in random order. All users go at once.
Symbols as in ``cofactor_steps``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from victims.common.seeds import Purpose, generator
from victims.protocols.cofactor_steps import Passed, Rules, explicit_counts, over_users, slopes
from victims.protocols.feedback import EXPLICIT, Samples
from victims.protocols.sequential import chains


def one_pass(
    rules: Rules,
    clients: Float[np.ndarray, "users K"],
    offsets: Float[np.ndarray, "users K"],
    samples: Samples,
    factors: Float[np.ndarray, "samples K"],
    seed: int,
    round_: int,
) -> Passed:
    """Let every user go over its samples once."""
    size = rules.switches.ratings_of_a_step
    published = size is None and rules.switches.reduction == "sum"
    go = _at_once if published else _one_by_one if size == 1 else _in_steps
    clients, offsets, rows, place = go(rules, clients, offsets, samples, factors, seed, round_)
    if not rules.has_offsets:
        offsets = np.zeros_like(offsets)
    if not rules.per_sample and size is not None:
        clients = clients * (1 - rules.rate * rules.users)
        offsets = offsets * (1 - rules.rate * rules.offsets)
    ridge = np.where(samples.kind == EXPLICIT, rules.items, rules.implicit)
    return Passed(clients, offsets, rows + ridge[:, None] * factors, place)


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
    of_clients = over_users(user, pull, n_users)
    of_offsets = over_users(user[is_explicit], pull[is_explicit], n_users) / np.maximum(counts, 1)[:, None]
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
    for step in _steps_in_order(samples, len(clients), _drawing(rules, seed, round_)):
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


def _in_steps(
    rules: Rules,
    clients: Float[np.ndarray, "users K"],
    offsets: Float[np.ndarray, "users K"],
    samples: Samples,
    factors: Float[np.ndarray, "samples K"],
    seed: int,
    round_: int,
) -> Passed:
    """Minibatches of the pass in its order, or means over all samples."""
    clients, offsets, rows = clients.copy(), offsets.copy(), np.zeros_like(factors)
    n_users, size = len(clients), rules.switches.ratings_of_a_step
    share = 1 / np.maximum(explicit_counts(samples, n_users), 1)
    pull_users, pull_offsets = (rules.users, rules.offsets) if rules.per_sample else (0.0, 0.0)
    place = None if size is None else _places(rules, samples, n_users, seed, round_)
    number = np.zeros(len(rows), int) if place is None else place // size
    by_step = np.argsort(number, kind="stable")
    for step in np.split(by_step, np.flatnonzero(np.diff(number[by_step])) + 1):
        user, factor, is_explicit = samples.user[step], factors[step], samples.kind[step] == EXPLICIT
        mean = rules.switches.reduction == "mean"
        parts = np.bincount(user, minlength=n_users)[user, None] if mean else np.ones((user.size, 1))
        u, q = clients[user], offsets[user]
        left = u + is_explicit[:, None] * q if rules.has_offsets else u
        score = np.einsum("rk,rk->r", left, factor)
        slope = slopes(rules, samples.kind[step], samples.target[step], score)[:, None] / parts
        rows[step] = slope * left
        of_users = over_users(user, slope * factor + pull_users * u / parts, n_users)
        move = is_explicit[:, None] * (slope * factor * share[user][:, None] + pull_offsets * q / parts)
        of_offsets = over_users(user, move, n_users)
        if size is None and not rules.per_sample:  # with the one step, as without a mean
            of_users, of_offsets = of_users + rules.users * clients, of_offsets + rules.offsets * offsets
        clients, offsets = clients - rules.rate * of_users, offsets - rules.rate * of_offsets
    return Passed(clients, offsets, rows, place)


def _places(
    rules: Rules, samples: Samples, n_users: int, seed: int, round_: int
) -> Int[np.ndarray, " samples"]:
    """Of each sample in its user's pass."""
    place, done = np.zeros(samples.user.size, np.int32), np.zeros(n_users, np.int32)
    for step in _steps_in_order(samples, n_users, _drawing(rules, seed, round_)):
        place[step] = done[samples.user[step]]
        done[samples.user[step]] += 1
    return place


def _drawing(rules: Rules, seed: int, round_: int) -> np.random.Generator | None:
    """What draws the order of a pass; None where samples go as they lie."""
    if rules.switches.shuffle == "never":
        return None
    return generator(seed, Purpose.SAMPLE_ORDER, round_ if rules.switches.shuffle == "rounds" else 0)


def _steps_in_order(
    samples: Samples, n_users: int, rng: np.random.Generator | None
) -> Iterator[Int[np.ndarray, " users_going"]]:
    """Samples that are handled together: one of each user who has any left."""
    is_explicit = samples.kind == EXPLICIT
    for chosen in (np.flatnonzero(is_explicit), np.flatnonzero(~is_explicit)):
        for table in chains(samples.user[chosen], n_users, rng).tables:
            for step in table:
                yield chosen[step[step >= 0]]
