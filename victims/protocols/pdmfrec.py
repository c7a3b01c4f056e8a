"""PDMFRec: matrix factorisation among neighbours, without a server; gradients go one way and without a name.

Z. Li, a report that reproduces E. Duriakova, E. Tragos, B. Smyth et al., "PDMFRec: A Decentralised
Matrix Factorisation with Tunable User-centric Privacy", RecSys 2019, doi:10.1145/3298689.3347035; Algorithm 1
and equations (1) to (6).

================  ==================================================================================
U_u               a client's own factor                     ``State.clients``
V_i^u             its own copy of an item's factor          ``OwnItems``
W_uu'             similarity of neighbours                  ``similarity_graph``
gamma, alpha      ``learning_rate``, ``regularization``
d                 ``factors``
================  ==================================================================================

Before the first round a helper is told what it needs for W: each client's set of items, or, as from a
private set intersection, the sizes of their intersections and of the sets (Duriakova et al. 2019 do not say
which). It tells each client its neighbours and W. Then in every round each client goes through its ratings, e
= r - U.V, U <- U - gamma (-e V + alpha U), V_i <- V_i - gamma (-e U + alpha V_i), both gradients at the same
point, and sends (i, W_uu' grad V_i) to every neighbour u'. After all have, V_j^u <- V_j^u - gamma mean_w
(W_wu grad V_j^w) over the neighbours w that sent j.

Open in the paper, an option each: W is in the message and again in line 11 (``weight=twice``) or once; the
start is one matrix for all (``start=shared``) or each client's own; gradients step by step
(``order=per-rating``, as Algorithm 1 is indented) or all at the state before the round (``batch``); receivers
step after all have sent, as line 9 says (``receive=barrier``), or at each row (``arrival``). Not given: T,
alpha, the threshold, the start, the order of a pass. The threshold is one of co-rated items (6), not of
similarity.

A neighbour sees the rows that its neighbours send it, with ``anonymous`` without their names; it knows its
own factors, its ratings, W of its neighbours, and the shared start. Nobody holds all of V.

Nothing dense over clients, items and factors exists, but where every receiver's mean is its own. A client
rates an item once, so its pass meets each of its V_i once, as it was before the round. And what neighbours
send about an item that u did not rate moves V_j^u by the same weights in every round: V_j^u = V_j^0 - gamma
sum_w W_wu (sum over rounds of grad_j^w) / |N_u^j|. So it is enough to carry U, the V of rated items, and for
each rating the sum of the rows that it sent. Where every message is changed anew, where those who send change
from round to round, and where copies are sent, of which a receiver takes a mean with its own, the means are a
table of clients, items and factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from victims.common.errors import InputError
from victims.common.limits import are_plausible, diverged
from victims.common.seeds import Purpose, generator
from victims.common.validation import above, at_least, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import (
    Attacker,
    Capabilities,
    Centralised,
    Edges,
    Graph,
    Holding,
    Received,
    Rows,
    Sample,
    SetUp,
    Shape,
    pieces,
)
from victims.protocols.exchanged import summed_by
from victims.protocols.switches import (
    Switches,
    as_gradients,
    check_peer_switches,
    edges_present,
    peer_manifest,
    present,
    refuse,
)
from victims.transcript.kinds import ITEM, STANDARD, Kind
from victims.transcript.manifest import Manifest

SHARED, PRIVATE, CLIENTS = range(3)  # what is drawn
MOST_NUMBERS = 100_000_000  # of a table of clients, items and factors


@dataclass(frozen=True)
class Start:
    """How factors start."""

    factors: int  # K
    items: Literal["shared", "private"]  # one start of V for all clients, or one for each
    # entries are uniform on 0..``scale``, or normal with that standard deviation
    law: Literal["uniform", "normal"]
    scale: float  # > 0

    def clients(self, seed: int, n_users: int) -> Float[np.ndarray, "users K"]:
        """U^0."""
        return self._draw(seed, n_users, CLIENTS)

    def shared(self, seed: int, n_items: int) -> Float[np.ndarray, "items K"]:
        """V^0 of all clients, where it is one."""
        return self._draw(seed, n_items, SHARED)

    def at(
        self,
        seed: int,
        ratings: Ratings,
        users: Int[np.ndarray, " pairs"],
        items: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, "pairs K"]:
        """V^0 of pairs of a client and an item."""
        if self.items == "shared":
            return self.shared(seed, ratings.n_items)[items]
        out = np.empty((users.size, self.factors))
        order = np.argsort(users, kind="stable")
        cuts = np.searchsorted(users[order], np.arange(ratings.n_users + 1))
        for client in np.flatnonzero(np.diff(cuts)).tolist():
            pairs = order[cuts[client] : cuts[client + 1]]
            out[pairs] = self._draw(seed, ratings.n_items, PRIVATE, client)[items[pairs]]
        return out

    def _draw(self, seed: int, rows: int, *which: int) -> Float[np.ndarray, "rows K"]:
        rng = generator(seed, Purpose.PDMFREC_START, *which)
        if self.law == "uniform":
            return self.scale * rng.random((rows, self.factors))
        return self.scale * rng.standard_normal((rows, self.factors))


class ByItem(NamedTuple):
    """Ratings in the order of their items."""

    entry: Int[np.ndarray, " ratings"]  # numbers of ratings, by item, then client
    indptr: Int[np.ndarray, " items_plus_1"]
    user: Int[np.ndarray, " ratings"]  # client of each of ``entry``

    def raters(self) -> Iterator[tuple[int, slice]]:
        """Items that somebody rated, and where their ratings lie."""
        for item in np.flatnonzero(np.diff(self.indptr)).tolist():
            yield item, slice(self.indptr[item], self.indptr[item + 1])


def by_item(ratings: Ratings) -> ByItem:
    """Sort ratings by item."""
    entry = np.argsort(ratings.items, kind="stable")
    counts = np.bincount(ratings.items, minlength=ratings.n_items)
    return ByItem(entry, np.concatenate([[0], np.cumsum(counts)]), ratings.users[entry])


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: int
    seed: int
    clients: Float[np.ndarray, "users K"]  # U
    rated: Float[np.ndarray, "ratings K"]  # V_i^u of rated items
    # for each rating the sum over rounds of what left its client, as gradients
    sent: Float[np.ndarray, "ratings K"]
    by_item: ByItem
    weight: Float[np.ndarray, "users users"]  # W
    edges: Edges
    # where receivers' means are their own: for each client the sum over rounds of the means of line 11, as
    # gradients
    arrived: Float[np.ndarray, "users items K"] | None = None


class Rules(NamedTuple):
    """How clients step."""

    rate: float  # gamma > 0
    alpha: float  # >= 0
    twice: bool  # whether the receiver multiplies by W again (line 11)
    own_step: bool  # whether clients step their own V_i by their own gradient (line 5)
    on_arrival: bool  # whether receivers step at every row that arrives
    switches: Switches


def delivered(
    sent: Float[np.ndarray, "ratings K"],
    index: ByItem,
    weight: Float[np.ndarray, "users users"],
    twice: bool,
) -> Float[np.ndarray, "ratings K"]:
    """Line 11 for rated items: the mean of what neighbours send about the item of each rating."""
    out = np.zeros_like(sent)
    for _, here in index.raters():
        users, entry = index.user[here], index.entry[here]
        out[entry] = mean_at(users, users, sent[entry], weight, twice)
    return out


def mean_at(
    receivers: Int[np.ndarray, " m"],
    senders: Int[np.ndarray, " n"],
    rows: Float[np.ndarray, "n K"],
    weight: Float[np.ndarray, "users users"],
    twice: bool,
    one_by_one: bool = False,
) -> Float[np.ndarray, "m K"]:
    """Mean over the neighbours of each receiver among the senders; zeros where it has none."""
    of_edge = weight[receivers[:, None], senders]
    total = (of_edge**2 if twice else of_edge) @ rows
    return total if one_by_one else total / np.maximum(np.count_nonzero(of_edge, axis=1), 1)[:, None]


def item_factors_at(
    ratings: Ratings,
    index: ByItem,
    weight: Float[np.ndarray, "users users"],
    twice: bool,
    rate: float,
    rated: Float[np.ndarray, "ratings K"],
    sent_so_far: Float[np.ndarray, "ratings K"],
    start: Callable[[np.ndarray, np.ndarray], np.ndarray],  # users and items of pairs -> V^0 of each
    users: Int[np.ndarray, " pairs"],
    items: Int[np.ndarray, " pairs"],
    one_by_one: bool = False,
) -> Float[np.ndarray, "pairs K"]:
    """V_j^u of any pairs of a client and an item."""
    out = start(users, items).astype(np.float64, copy=True)
    order = np.argsort(items, kind="stable")
    cuts = np.searchsorted(items[order], np.arange(index.indptr.size))
    for item, here in index.raters():
        pairs = order[cuts[item] : cuts[item + 1]]
        if pairs.size:
            rows = sent_so_far[index.entry[here]]
            arrived = mean_at(users[pairs], index.user[here], rows, weight, twice, one_by_one)
            out[pairs] -= rate * arrived
    entry = entry_of(ratings, users, items)
    out[entry >= 0] = rated[entry[entry >= 0]]
    return out


def entry_of(
    ratings: Ratings, users: Int[np.ndarray, " pairs"], items: Int[np.ndarray, " pairs"]
) -> Int[np.ndarray, " pairs"]:
    """Number of the rating of each pair; -1 where the client did not rate the item."""
    if ratings.n_ratings == 0:
        return np.full(users.size, -1)
    key = ratings.users.astype(np.int64) * ratings.n_items + ratings.items
    wanted = users.astype(np.int64) * ratings.n_items + items
    at = np.minimum(np.searchsorted(key, wanted), key.size - 1)
    return np.where(key[at] == wanted, at, -1)


def moved_items(state: State, ratings: Ratings, client: int) -> Int[np.ndarray, " items"]:
    """List the items whose factor a client has moved or been told to move."""
    if state.round == 0:
        return np.zeros(0, np.int64)
    told = state.weight[client] != 0
    told[client] = True
    return np.unique(ratings.items[told[ratings.users]])


@dataclass(frozen=True, eq=False)
class OwnItems:
    """Each client's own V, and predictions with it."""

    rules: Rules
    start: Start
    state: State
    ratings: Ratings  # of the training

    def factors(
        self, users: Int[np.ndarray, " pairs"], items: Int[np.ndarray, " pairs"]
    ) -> Float[np.ndarray, "pairs K"]:
        """V_j^u of pairs of a client and an item."""
        state, rules = self.state, self.rules
        start = partial(self.start.at, state.seed, self.ratings)
        if state.arrived is not None:
            moved = start(users, items) - rules.rate * state.arrived[users, items]
            entry = entry_of(self.ratings, users, items)
            moved[entry >= 0] = state.rated[entry[entry >= 0]]
            return moved
        return item_factors_at(
            self.ratings,
            state.by_item,
            state.weight,
            rules.twice,
            rules.rate,
            state.rated,
            state.sent,
            start,
            users,
            items,
            rules.on_arrival,
        )

    def pairs(self, users: Int[np.ndarray, " n"], items: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """U_u . V_j^u, in stars."""
        return np.einsum("nk,nk->n", self.state.clients[users], self.factors(users, items))

    def scores(self, users: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some items"]:
        """U_u . V_j^u of all items, in stars."""
        everything = np.tile(np.arange(self.ratings.n_items), users.size)
        each = np.repeat(users, self.ratings.n_items)
        return self.pairs(each, everything).reshape(users.size, self.ratings.n_items)


class Pass(NamedTuple):
    """What one pass of clients over their ratings comes to."""

    clients: Float[np.ndarray, "users K"]  # U after it
    gradient: Float[np.ndarray, "ratings K"]  # the gradient of V_i^u of each rating


def pass_in_order(
    ratings: Ratings,
    order: Int[np.ndarray, " ratings"],
    clients: Float[np.ndarray, "users K"],
    items: Float[np.ndarray, "ratings K"],
    rate: float,
    alpha: float,
) -> Pass:
    """Equations (2) to (4) after each rating, all clients at once: the k-th rating of each in step k."""
    count = np.diff(ratings.indptr)
    largest = np.argsort(-count, kind="stable")
    busy = np.searchsorted(-count[largest], -np.arange(count.max(initial=0)), side="left")
    first = ratings.indptr[largest]
    u, gradient = clients[largest], np.empty_like(items)
    for step, width in enumerate(busy.tolist()):
        entry = order[first[:width] + step]
        now, v = u[:width], items[entry]
        error = (ratings.values[entry] - np.einsum("uk,uk->u", now, v))[:, None]
        gradient[entry] = alpha * v - error * now
        u[:width] = (1 - rate * alpha) * now + rate * error * v
    after = np.empty_like(u)
    after[largest] = u
    return Pass(after, gradient)


def pass_at_once(
    ratings: Ratings,
    clients: Float[np.ndarray, "users K"],
    items: Float[np.ndarray, "ratings K"],
    rate: float,
    alpha: float,
) -> Pass:
    """Equations (2) to (4) with all gradients at the state before the round."""
    users = ratings.users
    u = clients[users]
    error = (ratings.values - np.einsum("rk,rk->r", u, items))[:, None]
    of_users = alpha * u - error * items
    return Pass(clients - rate * summed_by(users, of_users, len(clients)), alpha * items - error * u)


def order_of_pass(ratings: Ratings, shuffle: str, seed: int, round_: int) -> Int[np.ndarray, " ratings"]:
    """Numbers of ratings, by client: as they are, in an order of its own, or in a new one each round."""
    if shuffle == "never":
        return np.arange(ratings.n_ratings)
    draw = round_ if shuffle == "rounds" else 0
    keys = generator(seed, Purpose.CLIENT_ORDER, draw).random(ratings.n_ratings)
    return np.lexsort((keys, ratings.users))


def pass_in_steps(
    ratings: Ratings,
    order: Int[np.ndarray, " ratings"],
    clients: Float[np.ndarray, "users K"],
    items: Float[np.ndarray, "ratings K"],
    rate: float,
    alpha: float,
    size: int | None,
    mean: bool,
) -> Pass:
    """Equations (2) to (4) after each minibatch: the k-th minibatch of each client in step k."""
    user = ratings.users[order]
    place = np.arange(user.size) - ratings.indptr[user]
    step = place // size if size is not None else np.zeros_like(place)
    by_step = np.argsort(step, kind="stable")
    u, gradient = clients.copy(), np.empty_like(items)
    for at in np.split(by_step, np.flatnonzero(np.diff(step[by_step])) + 1):
        entry, who = order[at], user[at]
        now, v = u[who], items[entry]
        parts = np.bincount(who, minlength=len(u))[who] if mean else np.ones(who.size)
        error = ((ratings.values[entry] - np.einsum("rk,rk->r", now, v)) / parts)[:, None]
        gradient[entry] = alpha * v - error * now
        of_users = alpha * now / parts[:, None] - error * v
        u -= rate * summed_by(who, of_users, len(u))
    return Pass(u, gradient)


def mean_of_copies(
    copies: Callable[[int], Rows],
    weight: Float[np.ndarray, "users users"],
    twice: bool,
    ratings: Ratings,
) -> Float[np.ndarray, "users items K"]:
    """Means of what reaches each client about each item; zeros where nothing does."""
    out: np.ndarray | None = None
    for client in range(ratings.n_users):
        rows = copies(client)
        gradient = rows.gradient * weight[rows.sender, client, None] if twice else rows.gradient
        if out is None:
            out = _table(ratings, gradient.shape[1])
        counts = np.maximum(np.bincount(rows.index, minlength=ratings.n_items), 1)
        for factor, column in enumerate(gradient.T):
            out[client, :, factor] = np.bincount(rows.index, column, minlength=ratings.n_items) / counts
    return np.zeros((0, ratings.n_items, 0)) if out is None else out


def mean_of_rows(
    rows: Float[np.ndarray, "ratings K"],
    heard: Bool[np.ndarray, " ratings"],
    index: ByItem,
    weight: Float[np.ndarray, "users users"],
    twice: bool,
    ratings: Ratings,
) -> Float[np.ndarray, "users items K"]:
    """The same means where a row is one for all who receive it, of the rows of those who are heard."""
    out, everybody = _table(ratings, rows.shape[1]), np.arange(ratings.n_users)
    for item, here in index.raters():
        entry = index.entry[here][heard[index.entry[here]]]
        if entry.size:
            out[:, item] = mean_at(everybody, ratings.users[entry], rows[entry], weight, twice)
    return out


def _table(ratings: Ratings, factors: int) -> Float[np.ndarray, "users items K"]:
    size = ratings.n_users * ratings.n_items * factors
    if size > MOST_NUMBERS:
        raise InputError(
            f"noise of its own for every message, participation, dropout and upload=weights need a table of "
            f"{size:,} numbers, more than {MOST_NUMBERS:,}; use fewer clients, or none of these"
        )
    return np.zeros((ratings.n_users, ratings.n_items, factors))


def after_arrivals(rules: Rules, state: State, ratings: Ratings) -> State:
    """Form the state after a round whose receivers do not wait, but step at every row that arrives.

    Line 9 of Algorithm 1 has them wait. Here clients go through their ratings one after another, as in a
    program on one machine, and each row reaches all neighbours before the next rating. The mean of line 11 is
    then over one row, so that V_j^u of an unrated item is V_j^0 less gamma times the *sum* of what arrived,
    and later rows of the round are computed at copies that earlier ones have moved.
    """
    index, rate, alpha = state.by_item, rules.rate, rules.alpha
    weight = state.weight**2 if rules.twice else state.weight
    users, items, clients = ratings.users, ratings.items, state.clients.copy()
    copies, place = state.rated[index.entry], np.argsort(index.entry)
    gradient = np.empty_like(copies)
    for entry in order_of_pass(ratings, rules.switches.shuffle, state.seed, state.round).tolist():
        user, item, own = users[entry], items[entry], place[entry]
        u, v = clients[user], copies[own]
        error = ratings.values[entry] - u @ v
        row = alpha * v - error * u
        clients[user] = (1 - rate * alpha) * u + rate * error * v
        here = slice(index.indptr[item], index.indptr[item + 1])
        copies[here] -= np.outer(rate * weight[index.user[here], user], row)
        if rules.own_step:
            copies[own] -= rate * row
        gradient[entry] = row
    return state._replace(
        round=state.round + 1, clients=clients, rated=copies[place], sent=state.sent + gradient
    )


class Passed(NamedTuple):
    """What the passes of a round come to."""

    clients: Float[np.ndarray, "users K"]  # U after them
    gradient: Float[np.ndarray, "ratings K"]  # the gradient of V_i^u of each rating in the last one
    rated: Float[np.ndarray, "ratings K"]  # V_i^u of rated items after the clients' own steps

    def sent(self, switches: Switches, state: State) -> Float[np.ndarray, "ratings K"]:
        """The row of each rating, before any weight."""
        if switches.sends == "gradient":
            return self.gradient
        return self.rated if switches.sends == "weights" else self.rated - state.rated


def passed_of(rules: Rules, state: State, ratings: Ratings) -> Passed:
    """Let every client go through its ratings."""
    switches, order = rules.switches, np.arange(ratings.n_ratings)
    if switches.ratings_of_a_step is not None:
        order = order_of_pass(ratings, switches.shuffle, state.seed, state.round)
    clients, rated = state.clients, state.rated
    for _ in range(switches.local_steps):
        clients, gradient = _one_pass(rules, ratings, order, clients, rated)
        rated = rated - rules.rate * gradient if rules.own_step else rated
    return Passed(clients, gradient, rated)


def _one_pass(
    rules: Rules, ratings: Ratings, order: np.ndarray, clients: np.ndarray, rated: np.ndarray
) -> Pass:
    size, mean = rules.switches.ratings_of_a_step, rules.switches.reduction == "mean"
    if size == 1:
        return pass_in_order(ratings, order, clients, rated, rules.rate, rules.alpha)
    if size is None and not mean:
        return pass_at_once(ratings, clients, rated, rules.rate, rules.alpha)
    return pass_in_steps(ratings, order, clients, rated, rules.rate, rules.alpha, size, mean)


def after_round(
    rules: Rules, start: Start, state: State, ratings: Ratings, received: Received | None
) -> State:
    """Form the state after a round of Algorithm 1."""
    if rules.on_arrival:
        return after_arrivals(rules, state, ratings)
    switches, passed = rules.switches, passed_of(rules, state, ratings)
    stepping, heard = present(switches, ratings.n_users, state.seed, state.round)
    if not stepping.all():
        absent = ~stepping[ratings.users, None]
        clients = np.where(stepping[:, None], passed.clients, state.clients)
        passed = Passed(clients, passed.gradient, np.where(absent, state.rated, passed.rated))
    sent = passed.sent(switches, state)
    if received is not None:
        sent = _in_order(received, ratings, heard[ratings.users])
    arrived = state.arrived
    copies = None if received is None else received.copies
    if copies is not None or not switches.everybody or switches.sends == "weights":
        if copies is not None:
            means = mean_of_copies(copies, state.weight, rules.twice, ratings)
        else:
            among = heard[ratings.users], state.by_item, state.weight, rules.twice, ratings
            means = mean_of_rows(sent, *among)
        means = _stood_for(rules, start, state, ratings, passed, heard, means)
        means[~stepping] = 0
        arrived = means if arrived is None else arrived + means
        mean = means[ratings.users, ratings.items]
    else:
        sent = as_gradients(switches, rules.rate, sent, np.zeros(len(sent)), state.rated)
        mean = delivered(sent, state.by_item, state.weight, rules.twice)
    return state._replace(
        round=state.round + 1,
        clients=passed.clients,
        rated=passed.rated - rules.rate * mean,
        sent=state.sent + sent,
        arrived=arrived,
    )


def _stood_for(
    rules: Rules,
    start: Start,
    state: State,
    ratings: Ratings,
    passed: Passed,
    heard: Bool[np.ndarray, " users"],
    means: Float[np.ndarray, "users items K"],
) -> Float[np.ndarray, "users items K"]:
    """Means of what arrived, as gradients."""
    times, own = np.broadcast_to(0.0, means.shape[:2]), np.broadcast_to(0.0, means.shape)
    if rules.switches.sends == "weights":
        among = heard[ratings.users], state.by_item, state.weight, rules.twice, ratings
        times = mean_of_rows(np.ones((ratings.n_ratings, 1)), *among)[..., 0]
        users, items = (place.ravel() for place in np.indices(times.shape))
        now = state._replace(rated=passed.rated)
        own = OwnItems(rules, start, now, ratings).factors(users, items).reshape(means.shape)
    return as_gradients(rules.switches, rules.rate, means, times, own)


def _in_order(
    received: Received, ratings: Ratings, heard: Bool[np.ndarray, " ratings"]
) -> Float[np.ndarray, "ratings K"]:
    """What left the clients, a row for each rating; zeros of clients who are not heard."""
    rows = received.rows
    assert rows is not None
    entry = entry_of(ratings, rows.sender, rows.index)
    if not np.array_equal(np.sort(entry), np.flatnonzero(heard)):
        raise InputError(
            "pdmfrec needs the row of every rating, for its means are over those who send; use defenses that "
            "change rows and leave none out"
        )
    sent = np.zeros((ratings.n_ratings, rows.gradient.shape[1]))
    sent[entry] = rows.gradient
    return sent


ATTACKERS = (  # linking and reading what neighbours receive, and lists: named, or told to the helper
    Attacker("peers", 1),
    Attacker("peers-named", 1),
    Attacker("peers-lists", 1),
    Attacker("rated-set", 2),
    Attacker("helper-lists", 1),
)
UNWEIGHED = "pdmfrec has no weight for unrated items, so they must not be sampled; leave the sampling out"
UNRECORDED = (
    "receive=arrival of pdmfrec forms no rows to record or to change by defenses: each is computed at a copy "
    "that others of the same round have moved, and no recording holds that copy; use receive=barrier"
)
ONE_PASS = {  # what is left of the switches
    "order": "per-rating",
    "local_steps": 1,
    "upload": "gradient",
    "participation": 1.0,
    "dropout": 0.0,
}
HELPER = -3
ITEM_SET, CO_RATED = "item-set", "co-rated"
OF_HELPER: dict[str, Literal["item", "client"]] = {ITEM_SET: "item", CO_RATED: "client"}
Variant = Literal["full", "-sim", "-sim,all"]


def edges_of(weight: Float[np.ndarray, "users users"]) -> Edges:
    """The edges of a graph without direction, by receiver, then sender."""
    receiver, sender = np.nonzero(weight)
    return Edges(sender.astype(np.int32), receiver.astype(np.int32), weight[receiver, sender])


def co_rated(ratings: Ratings) -> Int[np.ndarray, "users users"]:
    """|I_u n I_u'| of all pairs; |I_u| on the diagonal."""
    ones = np.ones(ratings.n_ratings, np.int32)
    rated = sp.csr_array((ones, ratings.items, ratings.indptr), shape=(ratings.n_users, ratings.n_items))
    return (rated @ rated.T).toarray()


def similarity_graph(ratings: Ratings, threshold: int, variant: Variant) -> Float[np.ndarray, "users users"]:
    """W of a variant of the protocol, 0 where there is no edge."""
    if variant == "-sim,all":
        weight = np.ones((ratings.n_users, ratings.n_users))
    else:
        common = co_rated(ratings)
        near = common >= threshold
        if variant == "-sim":
            weight = near.astype(np.float64)
        else:
            size = np.sqrt(np.maximum(np.diag(common), 1).astype(np.float64))
            weight = np.where(near, common, 0) / size[:, None] / size
    np.fill_diagonal(weight, 0.0)
    return weight


def told_to_the_helper(helper: Literal["item-set", "counts"], ratings: Ratings) -> Iterator[SetUp]:
    """Form what the helper needs for W."""
    if helper == "item-set":
        yield SetUp(ITEM_SET, HELPER, ratings.users, ratings.items)
        return
    common = co_rated(ratings)
    one, other = np.nonzero(np.triu(common))
    yield SetUp(CO_RATED, HELPER, one, other, common[one, other].astype(np.float64))


@dataclass(frozen=True)
class PDMFRec(Switches):
    """Hyper-parameters; d and the candidates of gamma are those of section 4.4, the rest is not given.

    Attributes
    ----------
    update, weighting : str
        "sgd" and "observed-only", the only ones of this protocol.
    factors : int
        d, >= 1.
    learning_rate, regularization : float
        gamma > 0, alpha >= 0.
    variant : "full", "-sim" or "-sim,all"
        Similarities as weights; the same neighbours with weight 1; everybody with weight 1.
    threshold : int
        Fewest co-rated items of neighbours, >= 1.
    weight : "once" or "twice"
        Whether W is in the message alone, or in line 11 again.
    own_step : bool
        Whether clients step their own V_i by their own gradient (line 5), as published; else by those of
        neighbours alone.
    order : "per-rating" or "batch"
        Whether U moves after every rating, as Algorithm 1 is indented, or once per step.
    receive : "barrier" or "arrival"
        Whether receivers step once all have sent, as line 9 has it, or at every row that arrives
        (``after_arrivals``), which is not recorded.
    start : "shared" or "private"
        One start of V for all clients, which is public, or one for each.
    start_law : "uniform" or "normal"
        Entries of U and V are uniform on 0..``init_scale``, or normal with that standard deviation.
    init_scale : float
        > 0.
    helper : "item-set" or "counts"
        What clients tell the helper.
    anonymous : bool
        Whether neighbours do not see who sends a row.
    links : "sealed" or "plain"
        Whether others cannot read what is on the links.
    row_factor : "before"
        No other is taken here: a row is the gradient by which its sender steps its own copy.
    biases : none
        No others are taken here: neighbours send rows about copies of item factors.

    References
    ----------
    Duriakova et al. 2019; E. Duriakova et al., RecSys 2019, doi:10.1145/3298689.3347035.
    """

    update: Literal["sgd"] = "sgd"
    weighting: Literal["observed-only"] = "observed-only"
    factors: int = 20
    learning_rate: float = 0.02
    regularization: float = 0.01
    variant: Literal["full", "-sim", "-sim,all"] = "full"
    threshold: int = 1
    weight: Literal["once", "twice"] = "twice"
    own_step: bool = True
    order: Literal["batch", "per-rating"] = field(default="per-rating", kw_only=True)
    receive: Literal["barrier", "arrival"] = field(default="barrier", kw_only=True)
    start: Literal["shared", "private"] = "shared"
    start_law: Literal["uniform", "normal"] = "uniform"
    init_scale: float = 0.5
    helper: Literal["item-set", "counts"] = "item-set"
    anonymous: bool = True
    links: Literal["sealed", "plain"] = "plain"

    def __post_init__(self) -> None:
        require_fields(
            self,
            "pdmfrec",
            update=one_of("sgd"),
            weighting=one_of("observed-only"),
            factors=between(1, 4096),
            learning_rate=above(0),
            regularization=at_least(0),
            variant=one_of("full", "-sim", "-sim,all"),
            threshold=at_least(1),
            weight=one_of("once", "twice"),
            receive=one_of("barrier", "arrival"),
            start=one_of("shared", "private"),
            start_law=one_of("uniform", "normal"),
            init_scale=above(0),
            helper=one_of("item-set", "counts"),
            links=one_of("sealed", "plain"),
        )
        check_peer_switches(self, "pdmfrec")
        if not self.own_step:
            refuse(
                self, "pdmfrec", {"upload": "gradient"}, "own_step=false leaves the sender's copy as it is"
            )

        if self.receive == "arrival":
            refuse(self, "pdmfrec", ONE_PASS, "receive=arrival sends a row at every rating")

    @property
    def rules(self) -> Rules:
        """How clients step."""
        twice, on_arrival = self.weight == "twice", self.receive == "arrival"
        return Rules(self.learning_rate, self.regularization, twice, self.own_step, on_arrival, self)

    @property
    def start_rule(self) -> Start:
        """How factors start."""
        return Start(self.factors, self.start, self.start_law, self.init_scale)

    @property
    def capabilities(self) -> Capabilities:
        """The loss (1) with one V: ridge counts once per rating; clients who send to each other."""
        return Capabilities(
            Centralised(self.factors, self.regularization, per_rating=True),
            ATTACKERS,
            sampling_obstacle=UNWEIGHED,
            network=self.network,
            holdings=self.holdings,
            set_up=self.set_up,
            predictor=self.predictor,
        )

    def init(self, ratings: Ratings, seed: int) -> State:
        """Start factors, and the graph."""
        weight = similarity_graph(ratings, self.threshold, self.variant)
        rated = self.start_rule.at(seed, ratings, ratings.users, ratings.items)
        clients = self.start_rule.clients(seed, ratings.n_users)
        sent = np.zeros_like(rated)
        return State(0, seed, clients, rated, sent, by_item(ratings), weight, edges_of(weight))

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One round of Algorithm 1; neighbours get the rows ``received`` instead of exact ones."""
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            after = after_round(self.rules, self.start_rule, state, ratings, received)
        if not are_plausible(after.clients, after.rated):
            rates = f"learning_rate (now {self.learning_rate:g})"
            raise diverged(
                "pdmfrec",
                state.round,
                rates + (", use order=per-rating" * (self.order == "batch")),
            )
        return after

    def broadcast(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """The shared start, which everybody knows; nothing where starts are private."""
        nothing = np.zeros((0, self.factors))
        if self.start == "private":
            return nothing, nothing
        n_items = state.by_item.indptr.size - 1
        return self.start_rule.shared(state.seed, n_items), nothing

    def network(self, state: State, ratings: Ratings) -> Graph:
        """The graph of similar clients, those who take part in this round."""
        edges = edges_present(self, state.edges, ratings.n_users, state.seed, state.round)
        return Graph(Shape(ratings.n_items, 0, self.factors), edges)

    def holdings(
        self, state: State, ratings: Ratings, watched: Int[np.ndarray, " clients"]
    ) -> Iterator[Holding]:
        """V of each client, where it differs from the shared start."""
        own = self.predictor(state, ratings)
        for client in watched.tolist():
            items = np.arange(ratings.n_items)
            if self.start == "shared":
                items = moved_items(state, ratings, client)
            if items.size:
                yield Holding(client, items, own.factors(np.full(items.size, client), items))

    def set_up(self, state: State, ratings: Ratings) -> Iterator[SetUp]:
        """What the helper is told: sets of items, or sizes of intersections and of sets."""
        return told_to_the_helper(self.helper, ratings)

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """U before the pass of this round."""
        return state.clients

    def items_of(
        self,
        state: State,
        ratings: Ratings,
        users: Int[np.ndarray, " pairs"],
        items: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, "pairs K"]:
        """V_j^u of pairs of a client and an item."""
        return OwnItems(self.rules, self.start_rule, state, ratings).factors(users, items)

    def predictor(self, state: State, ratings: Ratings, sample: Sample | None = None) -> OwnItems:
        """U_u . V_j^u."""
        return OwnItems(self.rules, self.start_rule, state, ratings)

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Rows of those of the given clients who are heard, items ascending, with their places in a pass."""
        if self.receive == "arrival":
            raise InputError(UNRECORDED)
        row = passed_of(self.rules, state, ratings).sent(self, state)
        position = np.empty(ratings.n_ratings, np.int32)
        order = order_of_pass(ratings, self.shuffle, state.seed, state.round)
        position[order] = np.arange(ratings.n_ratings) - ratings.indptr[ratings.users]
        in_order = self.ratings_of_a_step is not None and self.sends == "gradient"
        users = users[present(self, ratings.n_users, state.seed, state.round).heard[users]]
        for piece in pieces(users, np.diff(ratings.indptr)[users], self.factors):
            entry = np.flatnonzero(np.isin(ratings.users, piece))
            yield Rows(
                ratings.users[entry],
                np.full(entry.size, ITEM, np.int8),
                ratings.items[entry].astype(np.int32),
                row[entry],
                position[entry] if in_order else None,
            )

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """Everything that neighbours know."""
        if self.receive == "arrival":
            raise InputError(UNRECORDED)
        kinds = {name: Kind(of=of, role="other", width=1) for name, of in OF_HELPER.items()}
        return peer_manifest(
            "pdmfrec",
            self,
            ratings,
            rounds,
            {"learning_rate": self.learning_rate, "regularization": self.regularization},
            self.regularization,
            self.own_step and (self.local_steps > 1 or self.sends != "gradient"),
            {name: getattr(self, name) for name in ("own_step", "weight", "variant", "threshold")},
            parties={"helper": HELPER},
            kinds={**STANDARD, **kinds},
            roles={"helper": "helper"},
            links=self.links,
            senders_hidden=self.anonymous,
        )
