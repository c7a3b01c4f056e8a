"""A round of PDMFRec whose receivers do not wait for all of it: they step at every row that arrives.

Line 9 of Algorithm 1 has them wait. Here all clients handle their k-th rating at once, in step k, and the
rows of a step reach everybody before the next one. The mean of line 11 is then over one row, so that V_j^u of
an unrated item is V_j^0 less gamma times the *sum* of what arrived, and later rows of the round are computed
at copies that earlier ones have moved.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from victims.data.ratings import Ratings
from victims.protocols.pdmfrec_pass import order_of_pass, pass_in_order
from victims.protocols.pdmfrec_round import mean_at
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
    """Form the state after a round.

    Parameters
    ----------
    rules : Rules
    state : State
        Before the round.
    ratings : Ratings

    Returns
    -------
    State
    """
    index, rated = state.by_item, state.rated.copy()

    def arrive(entry: Int[np.ndarray, " entries"], gradient: Float[np.ndarray, "entries K"]) -> None:
        by_item = np.argsort(ratings.items[entry], kind="stable")
        items = ratings.items[entry[by_item]]
        for part in np.split(by_item, np.flatnonzero(np.diff(items)) + 1):
            item = ratings.items[entry[part[0]]]
            here = slice(index.indptr[item], index.indptr[item + 1])
            senders = ratings.users[entry[part]]
            rows = mean_at(index.user[here], senders, gradient[part], state.weight, rules.twice, True)
            rated[index.entry[here]] -= rules.rate * rows
        if rules.own_step:
            rated[entry] -= rules.rate * gradient

    order = order_of_pass(ratings, rules.switches.shuffle, state.seed, state.round)
    clients, gradient = pass_in_order(ratings, order, state.clients, rated, rules.rate, rules.alpha, arrive)
    return state._replace(round=state.round + 1, clients=clients, rated=rated, sent=state.sent + gradient)
