"""A round of users who learn shared tables and keep their ratings at home (Yang et al. 2022, Algorithm 2).

==============  ===================================================================================
U, mean of Q    ``clients``, ``offsets``: a user's own, which nobody receives
v_p, v_q        ``items.public``, ``items.personal``: V_j of user i is v_p + v_q, both its own copies
z_p, z_q        ``implicit.public``, ``implicit.personal``: the same for Z
theta, E        ``Rules.rate``; E, which a receiver multiplies a row with, is 1 / d
==============  ===================================================================================

The paper's Algorithm 2 is an image; this is how we read it. Every user passes over its samples and steps
with U, Q, v_q, z_q and its own v_p, z_p. Then it sends dL/dv_p and dL/dz_p, which equal dL/dv_q and
dL/dz_q, and everybody steps with what has arrived: v_p <- v_p - theta E dL/dv_p. Under switches
(``switches``) a user passes several times, and sends how its v_p and z_p changed, or what they are then.

Steps of users on their samples:

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
sample are those of before the pass. Where samples go one by one, or a minibatch at a time, a pass is over the
explicit ones in random order, then over positives and negatives in random order. All users go at once.

A user moves the items that it sees or hears of and no others, so that of its own copy of a table (``Copies``)
only what has left the shared start is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from victims.common.seeds import Purpose, generator
from victims.protocols.cofactor_draws import EXPLICIT, NEGATIVE, Samples
from victims.protocols.exchanged import ranges, summed_by
from victims.protocols.network import Edges
from victims.protocols.sequential import chains
from victims.protocols.switches import Switches, as_gradients, present


class Copies(NamedTuple):
    """All users' copies of one table."""

    start: Float[np.ndarray, "items K"]  # what every copy is where it has not moved
    keys: Int[np.ndarray, " moved"]  # ascending: user * n_items + item
    values: Float[np.ndarray, "moved K"]  # the copies at these pairs


def copies_of(start: Float[np.ndarray, "items K"]) -> Copies:
    """Make copies of which none has moved."""
    return Copies(start, np.zeros(0, np.int64), np.zeros((0, start.shape[1])))


def key_of(
    users: Int[np.ndarray, " pairs"], items: Int[np.ndarray, " pairs"], n_items: int
) -> Int[np.ndarray, " pairs"]:
    """Number the pairs of user and item, ascending by user and then by item."""
    return users.astype(np.int64) * n_items + items


def at(copies: Copies, keys: Int[np.ndarray, " pairs"]) -> Float[np.ndarray, "pairs K"]:
    """The copies at some pairs."""
    found = copies.start[keys % len(copies.start)]
    if copies.keys.size:
        position = np.minimum(np.searchsorted(copies.keys, keys), copies.keys.size - 1)
        moved = copies.keys[position] == keys
        found[moved] = copies.values[position[moved]]
    return found


def whole(copies: Copies, users: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some items K"]:
    """The whole copies of some users; their size is n_items K each."""
    n_items = len(copies.start)
    full = np.repeat(copies.start[None], users.size, axis=0)
    low = np.searchsorted(copies.keys, users.astype(np.int64) * n_items)
    high = np.searchsorted(copies.keys, (users.astype(np.int64) + 1) * n_items)
    size = high - low
    entry = ranges(low, size)
    full[np.repeat(np.arange(users.size), size), copies.keys[entry] % n_items] = copies.values[entry]
    return full


def moved_items(copies: Copies, user: int) -> Int[np.ndarray, " items"]:
    """List the items of which a user's copy has been touched."""
    n_items = len(copies.start)
    low, high = np.searchsorted(copies.keys, [user * n_items, (user + 1) * n_items])
    return copies.keys[low:high] - user * n_items


def moved(copies: Copies, keys: Int[np.ndarray, " steps"], steps: Float[np.ndarray, "steps K"]) -> Copies:
    """The copies after steps, those at one pair added up."""
    if keys.size == 0:
        return copies
    known = copies.keys
    position = np.searchsorted(known, keys)
    new = np.ones(keys.size, bool) if known.size == 0 else known[np.minimum(position, known.size - 1)] != keys
    values = copies.values
    if new.any():
        fresh = np.unique(keys[new])
        where = np.searchsorted(known, fresh)
        known = np.insert(known, where, fresh)
        values = np.insert(values, where, copies.start[fresh % len(copies.start)], axis=0)
        position = np.searchsorted(known, keys)
    return Copies(copies.start, known, values + summed_by(position, steps, known.size))


class Rules(NamedTuple):
    """Constants of the users' steps."""

    rate: float  # theta
    implicit_weight: float  # lambda
    negative_weight: float  # W
    users: float  # lambda_U
    items: float  # lambda_V
    implicit: float  # lambda_Z
    offsets: float  # lambda_Q
    per_sample: bool  # whether U and Q are regularized with every sample, or once a round as the loss says
    link: Literal["logistic", "identity"]  # of explicit scores
    switches: Switches
    has_offsets: bool = True  # whether there is a Q


class Passed(NamedTuple):
    """What a pass leaves."""

    clients: Float[np.ndarray, "users K"]  # U after it
    offsets: Float[np.ndarray, "users K"]  # the mean of Q after it
    rows: Float[np.ndarray, "samples K"]  # dL/dV where explicit, dL/dZ where implicit
    # of each sample in its user's pass, where they do not go all at once
    place: Int[np.ndarray, " samples"] | None = None


def slopes(
    rules: Rules,
    kind: Int[np.ndarray, " samples"],
    target: Float[np.ndarray, " samples"],
    score: Float[np.ndarray, " samples"],
) -> Float[np.ndarray, " samples"]:
    """dL/dx of every sample."""
    g, rest = expit(score), expit(-score)  # rest = 1 - g, and stays above 0 where g rounds to 1
    explicit = score - target if rules.link == "identity" else g * rest * (g - target)
    # 1 - W g in two terms that do not cancel; W = 1 leaves g
    negative = rules.negative_weight * g * rest / (rest + (1 - rules.negative_weight) * g)
    implicit = rules.implicit_weight * np.where(kind == NEGATIVE, negative, -rest)
    return np.where(kind == EXPLICIT, explicit, implicit)


def explicit_counts(samples: Samples, n_users: int) -> Int[np.ndarray, " users"]:
    """Count the explicit ratings of every user, |I|."""
    return np.bincount(samples.user[samples.kind == EXPLICIT], minlength=n_users)


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
    of_clients = summed_by(user, pull, n_users)
    of_offsets = summed_by(user[is_explicit], pull[is_explicit], n_users) / np.maximum(counts, 1)[:, None]
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
        of_users = summed_by(user, slope * factor + pull_users * u / parts, n_users)
        move = is_explicit[:, None] * (slope * factor * share[user][:, None] + pull_offsets * q / parts)
        of_offsets = summed_by(user, move, n_users)
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


class Table(NamedTuple):
    """Users' copies of one table of item factors, in its two parts."""

    public: Copies
    personal: Copies

    def at(self, keys: Int[np.ndarray, " pairs"]) -> Float[np.ndarray, "pairs K"]:
        """Their sums at some pairs of user and item."""
        return at(self.public, keys) + at(self.personal, keys)


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: int
    seed: int
    clients: Float[np.ndarray, "users K"]
    offsets: Float[np.ndarray, "users K"]
    items: Table
    implicit: Table
    samples: Samples  # those of all rounds
    edges: Edges | None  # None where receivers are drawn for every round


class Heard(NamedTuple):
    """What arrives of one kind of rows: pairs of receiver and item, E times each row, and E."""

    keys: Int[np.ndarray, " deliveries"]
    rows: Float[np.ndarray, "deliveries K"]
    times: Float[np.ndarray, " deliveries"]


class Trained(NamedTuple):
    """What all passes of a round leave."""

    last: Passed  # the last one; who takes no part in the round has U and Q of before it
    # sum of the rows of all of them, by which the users step their own copies
    total: Float[np.ndarray, "samples K"]


def heard_along(
    edges: Edges,
    sender: Int[np.ndarray, " rows"],
    item: Int[np.ndarray, " rows"],
    rows: Float[np.ndarray, "rows K"],
    n_users: int,
    n_items: int,
    share: float,
) -> Heard:
    """Each row at each of its receivers."""
    first = np.searchsorted(sender, np.arange(n_users + 1))
    count = np.diff(first)[edges.sender]
    row = ranges(first[edges.sender], count)
    keys = key_of(np.repeat(edges.receiver, count), item[row], n_items)
    times = share * np.repeat(edges.weight, count)
    return Heard(keys, times[:, None] * rows[row], times)


def sample_factors(state: State, samples: Samples) -> Float[np.ndarray, "samples K"]:
    """Look up V or Z that each sample meets: its user's own."""
    keys = key_of(samples.user, samples.item, len(state.items.public.start))
    is_explicit = samples.kind == EXPLICIT
    found = np.empty((samples.user.size, state.clients.shape[1]))
    found[is_explicit] = state.items.at(keys[is_explicit])
    found[~is_explicit] = state.implicit.at(keys[~is_explicit])
    return found


def trained_of(rules: Rules, state: State, samples: Samples) -> Trained:
    """Every user's passes over its samples."""
    factors, passed = sample_factors(state, samples), None
    clients, offsets, total = state.clients, state.offsets, np.zeros((0, 0))
    for _ in range(rules.switches.local_steps):
        if passed is not None:
            factors = factors - 2 * rules.rate * passed.rows  # the public part and the personal one
        passed = one_pass(rules, clients, offsets, samples, factors, state.seed, state.round)
        clients, offsets = passed.clients, passed.offsets
        total = total + passed.rows if total.size else passed.rows
    assert passed is not None
    stepping = present(rules.switches, len(clients), state.seed, state.round).stepping
    if not stepping.all():
        clients = np.where(stepping[:, None], clients, state.clients)
        passed = passed._replace(clients=clients, offsets=np.where(stepping[:, None], offsets, state.offsets))
    return Trained(passed, total)


def sent_of(rules: Rules, state: State, samples: Samples, trained: Trained) -> Float[np.ndarray, "samples K"]:
    """What users send about each sample."""
    if rules.switches.sends == "gradient":
        return trained.last.rows
    change = -rules.rate * trained.total
    if rules.switches.sends == "delta":
        return change
    keys = key_of(samples.user, samples.item, len(state.items.public.start))
    explicit = (samples.kind == EXPLICIT)[:, None]
    return change + np.where(explicit, at(state.items.public, keys), at(state.implicit.public, keys))


def after_round(
    rules: Rules, state: State, samples: Samples, trained: Trained, explicit: Heard, implicit: Heard
) -> State:
    """The state after a round."""
    stepping = present(rules.switches, len(state.clients), state.seed, state.round).stepping[samples.user]
    is_explicit = samples.kind == EXPLICIT
    tables = []
    for table, chosen, heard in (
        (state.items, is_explicit & stepping, explicit),
        (state.implicit, ~is_explicit & stepping, implicit),
    ):
        own = key_of(samples.user[chosen], samples.item[chosen], len(table.public.start))
        step = -rules.rate * trained.total[chosen]
        public = _public_after(rules, table.public, own, step, heard)
        tables.append(Table(public, moved(table.personal, own, step)))
    return state._replace(
        round=state.round + 1,
        clients=trained.last.clients,
        offsets=trained.last.offsets,
        items=tables[0],
        implicit=tables[1],
    )


def _public_after(
    rules: Rules, public: Copies, own: Int[np.ndarray, " own"], step: Float[np.ndarray, "own K"], heard: Heard
) -> Copies:
    """Copies of the public part after their users' own steps and what arrived."""
    switches, keys, rows = rules.switches, heard.keys, heard.rows
    if switches.sends == "weights":  # of which a receiver takes a mean with its own copy as it is then
        public = moved(public, own, step)
        if not keys.size:
            return public
        keys, where = np.unique(keys, return_inverse=True)
        rows = summed_by(where, rows, keys.size)
        times = np.bincount(where, heard.times, minlength=keys.size)
        return moved(
            public, keys, -rules.rate * as_gradients(switches, rules.rate, rows, times, at(public, keys))
        )
    rows = as_gradients(switches, rules.rate, rows, heard.times, rows)
    return moved(public, np.concatenate([own, keys]), np.concatenate([step, -rules.rate * rows]))
