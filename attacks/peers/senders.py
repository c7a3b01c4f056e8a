"""The senders of what arrived in several rounds: as told, or sorted out of rows without a sender.

Where the receiver holds the copy of the item factors that rows were computed at, their planes tell exactly
(``attacks.peers.planes``); in the first round where they do, and from there senders are followed into the
others (``attacks.peers.rounds``). Where planes tell little, nearness must do
(``attacks.peers.directions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.peers.directions import linked_by_direction
from attacks.peers.planes import linked_by_planes, meeting_planes
from attacks.peers.received import Arrived
from attacks.peers.rounds import dealt_out
from victims.transcript.view import UNTOLD

ENOUGH = 0.5  # share of a round's rows that planes must link to be believed to tell
LARGEST = 200_000  # messages of a round: pairs of them are looked at


class Sorted(NamedTuple):
    """Senders of each round's messages."""

    # pseudonyms that are the same in all rounds, or places in the list of senders; -1 is nobody
    label: list[Int[np.ndarray, " messages"]]
    # multiple of its factor that each message holds; NaN where it is not told
    pull: list[Float[np.ndarray, " messages"]]
    n: int  # number of senders
    # place of the round in which they were sorted, and are read; -1 where they are told, in all rounds
    base: int


def sorted_by_sender(rounds: Sequence[Arrived], users: Int[np.ndarray, " users"]) -> Sorted:
    """Sort the messages of all rounds by sender."""
    if all((one.sender != UNTOLD).all() for one in rounds):
        label = [np.searchsorted(users, one.sender) for one in rounds]
        return Sorted(label, [_pulls(one, of) for one, of in zip(rounds, label, strict=True)], users.size, -1)
    label, pull = ([np.full(one.item.size, none) for one in rounds] for none in (-1, np.nan))
    base = 0
    for base, one in enumerate(rounds):
        label[base], pull[base] = linked_by_planes(one.rows, one.factors, one.item, one.precision)
        if _share_linked(one, label[base]) >= ENOUGH:
            break
    else:
        label = [linked_by_direction(one.rows, one.item) for one in rounds]
        base = int(np.argmax([_share_linked(*pair) for pair in zip(rounds, label, strict=True)]))
    for order in (range(base + 1, len(rounds)), range(base - 1, -1, -1)):
        before = base
        for number in order:
            one, last = rounds[number], rounds[before]
            label[number] = dealt_out(one.rows, one.item, last.rows, last.item, label[before])
            before = number
    return Sorted(label, pull, int(label[base].max(initial=-1)) + 1, base)


def _share_linked(one: Arrived, label: Int[np.ndarray, " messages"]) -> float:
    """Share of a round's messages that are somebody's; those of zeros alone, which tell nothing, aside."""
    telling = one.rows.any(axis=1)
    return float(np.mean(label[telling] >= 0)) if telling.any() else 0.0


def _pulls(one: Arrived, label: np.ndarray) -> Float[np.ndarray, " messages"]:
    """Sender by sender what its planes tell."""
    out = np.full(label.size, np.nan)
    order = np.argsort(label, kind="stable")
    for here in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        met = meeting_planes(one.rows[here], one.factors[here], one.item[here], one.precision)
        out[here] = met.pull(np.zeros(met.first.size, int), 1)
    return out
