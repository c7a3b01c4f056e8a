"""Which clients take part in a round, and whose upload arrives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from victims.common.seeds import Purpose, generator
from victims.protocols.switches import Switches


class Present(NamedTuple):
    """Clients of one round, (n_users,) each: who steps, and who is heard of those."""

    stepping: Bool[np.ndarray, " users"]
    heard: Bool[np.ndarray, " users"]


def present(switches: Switches, n_users: int, seed: int, round_: int) -> Present:
    """Draw the clients of a round; at least one is heard."""
    stepping = np.ones(n_users, bool)
    if switches.participation < 1:
        many = max(round(switches.participation * n_users), 1)
        order = generator(seed, Purpose.TAKING_PART, round_).permutation(n_users)
        stepping[order[many:]] = False
    heard = stepping.copy()
    if switches.dropout > 0:
        there = np.flatnonzero(stepping)
        lost = min(round(switches.dropout * there.size), there.size - 1)
        heard[generator(seed, Purpose.LOST_UPLOADS, round_).permutation(there)[:lost]] = False
    return Present(stepping, heard)
