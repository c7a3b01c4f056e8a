"""What users of a protocol without a server send in a round, counted from its rows and its graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from victims.data.ratings import Ratings
from victims.protocols.cofactor_round import State
from victims.protocols.cofactor_users import AmongTrusted

INDEX_BYTES, NUMBER_BYTES = 4, 8  # an item, and a float64 of a row


class Traffic(NamedTuple):
    """Of one round."""

    rows: int  # gradients that are computed
    # gradients that arrive: a row once for every edge of its sender, as often as its weight says
    messages: int
    bytes: int  # of the messages: an index and K numbers each


def traffic(victim: AmongTrusted, state: State, ratings: Ratings) -> Traffic:
    """Count what is sent in the next round."""
    samples, edges = victim.samples_of(state, ratings), victim.edges_of(state, ratings)
    rows = np.bincount(samples.user, minlength=ratings.n_users)
    messages = int(np.sum(rows[edges.sender] * edges.weight))
    return Traffic(int(rows.sum()), messages, messages * (INDEX_BYTES + NUMBER_BYTES * victim.factors))
