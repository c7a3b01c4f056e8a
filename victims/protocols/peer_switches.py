"""Switches among neighbours, who have copies of the item factors of their own and send each other rows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from victims.protocols.network import Edges
from victims.protocols.no_server import NoServer
from victims.protocols.presence import present
from victims.protocols.switches import Switches, check_switches, refuse

GRADIENT_ALONE = "a row is the gradient by which its sender steps its own copy, too"
NO_BIASES = (
    "neighbours send rows about copies of item factors, and a row about a bias would be the error itself"
)


class PeerSwitches(Switches, NoServer):
    """The switches of a victim without a server; victims inherit them.

    They mean what they mean with a server (``Switches``), but that a client's copies of the item factors are
    its own: it keeps them, and its own steps move them in every pass, whatever it sends.

    ``upload`` has all of its values. A ``delta`` is the change of the sender's own copy by its own steps of
    the round, for a copy moves by what neighbours send, too, which they need not hear again; receivers add
    it where they would step by a gradient. ``weights`` is the sender's copy after these steps, as gossip
    learning sends (R. Ormandi et al., "Gossip learning with linear models on fully distributed data", 2013,
    doi:10.1002/cpe.2858): a receiver takes the mean of its own copy, which counts once, and of those that
    arrive, each with the weight that its gradient would have. A mean, and no sum, for copies added up grow
    with the number of neighbours.

    Who takes no part in a round is not there: it does not step, does not send, and nothing reaches it.
    ``row_factor`` is refused: a row is the gradient by which its sender steps its own copy. ``biases`` are
    refused: neighbours send rows about copies of item factors, and what they would send about a bias is each
    error itself, in the clear.

    Attributes
    ----------
    row_factor : "before"
        No other is taken here: a row is the gradient by which its sender steps its own copy.
    biases : none
        No others are taken here: neighbours send rows about copies of item factors.
    """


def check_peer_switches(victim: PeerSwitches, thing: str) -> None:
    """Refuse values that no switch has, and switches that make no sense among neighbours."""
    check_switches(victim, thing)
    refuse(victim, thing, {"row_factor": "before"}, GRADIENT_ALONE)
    refuse(victim, thing, {"biases": None}, NO_BIASES)


def edges_present(switches: Switches, edges: Edges, n_users: int, seed: int, round_: int) -> Edges:
    """Leave out the edges to clients who take no part in a round."""
    if switches.participation == 1:
        return edges
    there = present(switches, n_users, seed, round_).stepping[edges.receiver]
    return Edges(*(column[there] for column in edges))


def as_gradients(
    switches: Switches,
    rate: float,
    arrived: Float[np.ndarray, "*pairs K"],
    times: Float[np.ndarray, "*pairs"],
    own: Float[np.ndarray, "*pairs K"],
) -> Float[np.ndarray, "*pairs K"]:
    """What receivers make of rows, as the gradients by which they would step as far.

    Examples
    --------
    >>> one, copy = np.array([[2.0, 4.0]]), np.array([[0.0, 0.0]])
    >>> as_gradients(Switches(upload="weights"), 0.5, one, np.ones(1), copy)  # half way, in steps of 1/2
    array([[-2., -4.]])
    """
    if switches.sends == "gradient":
        return arrived
    if switches.sends == "delta":
        return -arrived / rate
    return (times[..., None] * own - arrived) / ((1 + times[..., None]) * rate)
