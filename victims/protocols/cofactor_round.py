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

from victims.protocols.cofactor_steps import Passed, Rules, one_pass
from victims.protocols.feedback import EXPLICIT, Samples
from victims.protocols.network import Edges
from victims.protocols.own_copies import Copies, at, key_of, moved


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
    """What arrives of one kind of rows: pairs of receiver and item, and E times each row."""

    keys: Int[np.ndarray, " deliveries"]
    rows: Float[np.ndarray, "deliveries K"]


def heard_along(
    edges: Edges,
    sender: Int[np.ndarray, " rows"],
    item: Int[np.ndarray, " rows"],
    rows: Float[np.ndarray, "rows K"],
    n_users: int,
    n_items: int,
    share: float,
) -> Heard:
    """Each row at each of its receivers.

    Parameters
    ----------
    edges : Edges
    sender, item : (n_rows,)
        Ascending by sender.
    rows : (n_rows, K)
    n_users, n_items : int
    share : float
        E for an edge of weight 1.

    Returns
    -------
    Heard
    """
    first = np.searchsorted(sender, np.arange(n_users + 1))
    count = np.diff(first)[edges.sender]
    row = np.arange(count.sum()) + np.repeat(first[edges.sender] - (np.cumsum(count) - count), count)
    keys = key_of(np.repeat(edges.receiver, count), item[row], n_items)
    return Heard(keys, share * np.repeat(edges.weight, count)[:, None] * rows[row])


def sample_factors(state: State, samples: Samples) -> Float[np.ndarray, "samples K"]:
    """Look up V or Z that each sample meets: its user's own.

    Parameters
    ----------
    state : State
    samples : Samples

    Returns
    -------
    (samples, K)
    """
    keys = key_of(samples.user, samples.item, len(state.items.public.start))
    is_explicit = samples.kind == EXPLICIT
    found = np.empty((samples.user.size, state.clients.shape[1]))
    found[is_explicit] = state.items.at(keys[is_explicit])
    found[~is_explicit] = state.implicit.at(keys[~is_explicit])
    return found


def passed_of(rules: Rules, state: State, samples: Samples) -> Passed:
    """Every user's pass over its samples.

    Parameters
    ----------
    rules : Rules
    state : State
        Before the round.
    samples : Samples
        Of the round.

    Returns
    -------
    Passed
    """
    factors = sample_factors(state, samples)
    return one_pass(rules, state.clients, state.offsets, samples, factors, state.seed, state.round)


def after_round(
    rules: Rules, state: State, samples: Samples, passed: Passed, explicit: Heard, implicit: Heard
) -> State:
    """The state after a round.

    Parameters
    ----------
    rules : Rules
    state : State
        Before it.
    samples : Samples
    passed : Passed
        From ``passed_of``.
    explicit, implicit : Heard
        What arrives about V and about Z.

    Returns
    -------
    State
    """
    is_explicit = samples.kind == EXPLICIT
    tables = []
    for table, chosen, heard in (
        (state.items, is_explicit, explicit),
        (state.implicit, ~is_explicit, implicit),
    ):
        own = key_of(samples.user[chosen], samples.item[chosen], len(table.public.start))
        step = -rules.rate * passed.rows[chosen]
        keys = np.concatenate([own, heard.keys])
        public = moved(table.public, keys, np.concatenate([step, -rules.rate * heard.rows]))
        tables.append(Table(public, moved(table.personal, own, step)))
    return state._replace(
        round=state.round + 1,
        clients=passed.clients,
        offsets=passed.offsets,
        items=tables[0],
        implicit=tables[1],
    )
