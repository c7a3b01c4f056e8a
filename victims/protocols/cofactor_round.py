"""A round of users who learn shared tables together and keep their ratings at home (paper 004, Algorithm 2).

==============  ===================================================================================
U, mean of Q    ``clients``, ``offsets``: a user's own, which nobody receives
v_p, v_q        ``items.public``, ``items.personal``: V_j of user i is v_p + v_q, both its own copies
z_p, z_q        ``implicit.public``, ``implicit.personal``: the same for Z
theta, E        ``Rules.rate``; E, which a receiver multiplies a row with, is 1 / d
==============  ===================================================================================

The paper's Algorithm 2 is an image; this is how we read it. Every user passes over its samples and steps
with U, Q, v_q, z_q and its own v_p, z_p. Then it sends dL/dv_p and dL/dz_p, which equal dL/dv_q and
dL/dz_q, and everybody steps with what has arrived: v_p <- v_p - theta E dL/dv_p.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.protocols.cofactor_steps import Rules, one_pass
from victims.protocols.feedback import EXPLICIT, Samples
from victims.protocols.own_copies import Copies, at, key_of, moved
from victims.protocols.trust_graph import Edges


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


class Delivered(NamedTuple):
    """Rows as they arrive: the receiver's key of each pair, which row, and how often; (n_deliveries,) each."""

    keys: Int[np.ndarray, " deliveries"]
    row: Int[np.ndarray, " deliveries"]
    times: Float[np.ndarray, " deliveries"]


def delivered(
    edges: Edges,
    sender: Int[np.ndarray, " rows"],
    item: Int[np.ndarray, " rows"],
    n_users: int,
    n_items: int,
) -> Delivered:
    """Each row at each of its receivers.

    Parameters
    ----------
    edges : Edges
    sender, item : (n_rows,)
        Ascending by sender.
    n_users, n_items : int

    Returns
    -------
    Delivered
    """
    first = np.searchsorted(sender, np.arange(n_users + 1))
    count = np.diff(first)[edges.sender]
    start = first[edges.sender]
    row = np.arange(count.sum()) + np.repeat(start - (np.cumsum(count) - count), count)
    keys = key_of(np.repeat(edges.receiver, count), item[row], n_items)
    return Delivered(keys, row, np.repeat(edges.weight, count))


def sample_factors(state: State, samples: Samples) -> Float[np.ndarray, "samples K"]:
    """V or Z that each sample meets: its user's own."""
    keys = key_of(samples.user, samples.item, len(state.items.public.start))
    is_explicit = samples.kind == EXPLICIT
    found = np.empty((samples.user.size, state.clients.shape[1]))
    found[is_explicit] = state.items.at(keys[is_explicit])
    found[~is_explicit] = state.implicit.at(keys[~is_explicit])
    return found


def rows_of(rules: Rules, state: State, samples: Samples) -> Float[np.ndarray, "samples K"]:
    """dL/dv_p or dL/dz_p of every sample, before anything is done to them.

    Parameters
    ----------
    rules : Rules
    state : State
        Before the round.
    samples : Samples
        Of the round.
    """
    factors = sample_factors(state, samples)
    return one_pass(rules, state.clients, state.offsets, samples, factors, state.seed, state.round).rows


def after_round(
    rules: Rules,
    state: State,
    samples: Samples,
    edges: Edges,
    share: float,
    sent: Float[np.ndarray, "samples K"] | None = None,
) -> State:
    """The state after a round.

    Parameters
    ----------
    rules : Rules
    state : State
    samples : Samples
    edges : Edges
        Of the round.
    share : float
        E, 1 / d.
    sent : (n_samples, K), optional
        What receivers get in place of the gradients, where a defense changes them.
    """
    factors = sample_factors(state, samples)
    passed = one_pass(rules, state.clients, state.offsets, samples, factors, state.seed, state.round)
    sent = passed.rows if sent is None else sent
    is_explicit = samples.kind == EXPLICIT
    tables = []
    for table, chosen in ((state.items, is_explicit), (state.implicit, ~is_explicit)):
        user, item = samples.user[chosen], samples.item[chosen]
        n_items = len(table.public.start)
        own = key_of(user, item, n_items)
        step = -rules.rate * passed.rows[chosen]
        arriving = delivered(edges, user, item, len(state.clients), n_items)
        heard = -rules.rate * share * arriving.times[:, None] * sent[chosen][arriving.row]
        public = moved(
            table.public, np.concatenate([own, arriving.keys]), np.concatenate([step, heard])
        )
        tables.append(Table(public, moved(table.personal, own, step)))
    return state._replace(
        round=state.round + 1,
        clients=passed.clients,
        offsets=passed.offsets,
        items=tables[0],
        implicit=tables[1],
    )
