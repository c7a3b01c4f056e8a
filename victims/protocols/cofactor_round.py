"""A round of users who learn shared tables together and keep their ratings at home (paper 004, Algorithm 2).

==============  ===================================================================================
U, mean of Q    ``clients``, ``offsets``: a user's own, which nobody receives
v_p, v_q        ``items.public``, ``items.personal``: V_j of user i is v_p + v_q, both its own copies
z_p, z_q        ``implicit.public``, ``implicit.personal``: the same for Z
theta, E        ``Rules.rate``; E, which a receiver multiplies a row with, is 1 / d
==============  ===================================================================================

The paper's Algorithm 2 is an image; this is how we read it. Every user passes over its samples and steps
with U, Q, v_q, z_q and its own v_p, z_p. Then it sends dL/dv_p and dL/dz_p, which equal dL/dv_q and
dL/dz_q, and everybody steps with what has arrived: v_p <- v_p - theta E dL/dv_p. Under switches
(``peer_switches``) a user passes several times, and sends how its v_p and z_p changed, or what they are then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.protocols.cofactor_passes import one_pass
from victims.protocols.cofactor_steps import Passed, Rules
from victims.protocols.feedback import EXPLICIT, Samples
from victims.protocols.network import Edges
from victims.protocols.own_copies import Copies, at, key_of, moved
from victims.protocols.peer_switches import as_gradients
from victims.protocols.presence import present


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
    row = np.arange(count.sum()) + np.repeat(first[edges.sender] - (np.cumsum(count) - count), count)
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
        rows = np.stack([np.bincount(where, column, minlength=keys.size) for column in rows.T], axis=1)
        times = np.bincount(where, heard.times, minlength=keys.size)
        return moved(
            public, keys, -rules.rate * as_gradients(switches, rules.rate, rows, times, at(public, keys))
        )
    rows = as_gradients(switches, rules.rate, rows, heard.times, rows)
    return moved(public, np.concatenate([own, keys]), np.concatenate([step, -rules.rate * rows]))
