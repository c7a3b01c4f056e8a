"""A round of PDMFRec whose receivers do not wait for all of it: they step at every row that arrives.

Line 9 of Algorithm 1 has them wait. Here clients go through their ratings one after another, as in a program
on one machine, and each row reaches all neighbours before the next rating. The mean of line 11 is then over
one row, so that V_j^u of an unrated item is V_j^0 less gamma times the *sum* of what arrived, and later rows
of the round are computed at copies that earlier ones have moved.
"""

from __future__ import annotations

import numpy as np

from victims.data.ratings import Ratings
from victims.protocols.pdmfrec_pass import order_of_pass
from victims.protocols.pdmfrec_state import Rules, State

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


def after_arrivals(rules: Rules, state: State, ratings: Ratings) -> State:
    """Form the state after a round."""
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
