"""A round of PDMFRec: what clients send, and their state after it; symbols as in ``pdmfrec``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.protocols.base import Received
from victims.protocols.pdmfrec_arrival import after_arrivals
from victims.protocols.pdmfrec_copies import mean_of_copies, mean_of_rows
from victims.protocols.pdmfrec_pass import Pass, order_of_pass, pass_at_once, pass_in_order, pass_in_steps
from victims.protocols.pdmfrec_round import delivered, entry_of
from victims.protocols.pdmfrec_start import Start
from victims.protocols.pdmfrec_state import OwnItems, Rules, State
from victims.protocols.peer_switches import as_gradients
from victims.protocols.presence import present
from victims.protocols.switches import Switches


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
