"""The plain programs of victims without a server, at the start of a run, and what is drawn in a round."""

from __future__ import annotations

import numpy as np

from tests.oracles.cofactor_program import Constants, User
from tests.oracles.pdmfrec_program import Program, weights_of
from victims.protocols.cofactor_draws import EXPLICIT, NEGATIVE, POSITIVE
from victims.protocols.cofactor_round import trained_of, whole

NAMES = {EXPLICIT: "explicit", POSITIVE: "positive", NEGATIVE: "negative"}


def pdmfrec_of(victim, run, ratings):
    """The plain program at the start of a run."""
    everybody, every = np.arange(ratings.n_users), np.arange(ratings.n_items)
    rated = {u: ratings.items[ratings.indptr[u] : ratings.indptr[u + 1]].tolist() for u in everybody.tolist()}
    starts = [victim.items_of(run.state, ratings, np.full(every.size, u), every) for u in everybody]
    return rated, Program(
        ratings.matrix().toarray().tolist(),
        run.state.clients,
        starts,
        victim.learning_rate,
        victim.regularization,
        weights_of(rated, victim.threshold, victim.variant),
        twice=victim.weight == "twice",
        size=victim.ratings_of_a_step,
        own_step=victim.own_step,
        passes=victim.local_steps,
        mean=victim.reduction == "mean",
        upload=victim.sends,
    )


def uploads_of(run):
    """Gradients by client and item, and the items of each client in the order of its pass."""
    seen: dict[int, dict[int, np.ndarray]] = {}
    orders: dict[int, list[int]] = {}
    for rows in run.victim.uploads(run.state, run.ratings, np.arange(run.ratings.n_users)):
        for client in np.unique(rows.sender).tolist():
            mine = np.flatnonzero(rows.sender == client)
            seen[client] = dict(zip(rows.index[mine].tolist(), rows.gradient[mine], strict=True))
            place = rows.sequence[mine] if rows.sequence is not None else np.arange(mine.size)
            orders[client] = rows.index[mine[np.argsort(place)]].tolist()
    return seen, orders


def drawn(rng, n, k=3):
    return 0.3 * rng.normal(size=(n, k))


def cofactors_of(victim, state, ratings):
    """The plain program at the start of a victim: Q apart, and a copy of everything for everybody."""
    rules = victim.rules
    constants = Constants(
        rules.rate, rules.implicit_weight, rules.negative_weight, rules.users, rules.items, rules.implicit,
        rules.offsets, rules.per_sample, rules.link == "logistic", victim.ratings_of_a_step,
        1 / victim.degree, victim.local_steps, victim.reduction == "mean", victim.sends,
    )  # fmt: skip
    rng, users = np.random.default_rng(3), []
    for number in range(ratings.n_users):
        mine = (state.samples.user == number) & (state.samples.kind == EXPLICIT)
        q = drawn(rng, mine.sum()) if rules.has_offsets else np.zeros((mine.sum(), 0))
        if rules.has_offsets and mine.any():  # any Q_k with the mean that the victim starts from
            q += state.offsets[number] - q.mean(axis=0)
        parts = {}
        for name, table in (("v", state.items), ("z", state.implicit)):
            for part, copies in (("p", table.public), ("q", table.personal)):
                held = whole(copies, np.array([number]))[0]
                parts[name + part] = dict(enumerate(held.copy()))
        offsets = dict(zip(state.samples.item[mine].tolist(), q, strict=True)) if rules.has_offsets else {}
        users.append(User(state.clients[number].copy(), offsets, parts))
    return constants, users


def round_of(victim, state, ratings):
    """A victim's samples in the order of each user's pass, and receivers, for the plain program."""
    samples, edges = victim.samples_of(state, ratings), victim.edges_of(state, ratings)
    place = trained_of(victim.rules, state, samples).last.place
    order = np.arange(samples.user.size) if place is None else np.lexsort((place, samples.user))
    mine = [[] for _ in range(ratings.n_users)]
    for at in order:
        one = NAMES[int(samples.kind[at])], int(samples.item[at]), float(samples.target[at])
        mine[samples.user[at]].append(one)
    receivers = [[] for _ in range(ratings.n_users)]
    for sender, receiver, times in zip(*edges, strict=True):
        receivers[sender].append((int(receiver), float(times)))
    return mine, receivers, order
