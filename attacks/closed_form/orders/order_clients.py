"""Clients that can be read as ones that went several times through their ratings, and what they share.

Rows of a client point along one direction, nearly: what they are along it, and what their items' factors are,
is all that ``attacks.closed_form.orders.order_pairs`` asks for. Most clients have to agree on A B, and their
ratings must not have another multiple on the grid.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.closed_form.fit.images import in_larger_steps, one_multiple
from attacks.closed_form.orders.order_answers import FEWEST
from attacks.closed_form.orders.order_pairs import VAGUE, FirstOrder
from attacks.closed_form.orders.second_order import second_order
from attacks.closed_form.uploads.readings import Rows
from attacks.closed_form.uploads.reduction import leading_direction

FEWEST_ROWS = 6  # ratings of a client
MOST = 0.75  # of those that can be read alone, that have to agree
SPREAD = 0.4  # of the rows' size, across their common direction, above which steps are not small
VARIED = (
    0.02  # of predictions, by which they must differ: equal ones leave all ratings shifted by a level open
)


def able_clients(rows: Rows, users: set[int]) -> dict[int, tuple[FirstOrder, FirstOrder | None]]:
    """Take the clients of one round that can be read, those with most ratings first."""
    able = {user: sent for user in sorted(users) if (sent := _client(rows, user)) is not None}
    return dict(sorted(able.items(), key=lambda one: -one[1][0].g.size))


def _client(rows: Rows, user: int) -> tuple[FirstOrder, FirstOrder | None] | None:
    """One client to first order and, if there is more, to second; None where its rows do not tell it.

    These are few, or have no direction, or predictions hardly differ.
    """
    here = rows.item[user] & (rows.rows[user] != 0).any(axis=1)
    sent, v = rows.rows[user, here], rows.factors[user, here].astype(float)
    if here.sum() < FEWEST_ROWS or not np.isfinite(sent).all():
        return None
    directions, energy = leading_direction(sent[None])
    direction = directions[0]
    g = sent @ direction
    across = np.linalg.norm(sent - g[:, None] * direction) / np.sqrt(energy[0])
    if not across < SPREAD:
        return None
    # rows that are no changes of copies are larger, or smaller, and leave half-way where it was
    change = np.linalg.norm(sent) < np.linalg.norm(v)
    halfway = v + sent / 2 if change else v
    h, before = halfway @ direction, v @ direction  # half of a row is in h, and varies as ratings do
    if np.std(before) < VARIED * np.abs(np.mean(before)):
        return None
    offset = rows.offset[user, here]
    better = second_order(sent, halfway, direction)
    moved = (g * change, halfway @ (g @ halfway) * change, float(g @ h) * change)
    second = None if better is None else FirstOrder(*better, offset, here, *moved)
    return FirstOrder(g, h, offset, here, *moved), second


def agreed(alone: dict[int, tuple[np.ndarray, np.ndarray]]) -> float | None:
    """Find the A B that most clients have within what they tell it; each may have several."""
    if len(alone) < FEWEST:
        return None
    every = np.concatenate([own for own, _ in alone.values()])
    votes = [sum((np.abs(own / c - 1) < near).any() for own, near in alone.values()) for c in every]
    best = every[int(np.argmax(votes))]
    # clients who use every second level alone fit half as large, too: others have to tell
    rival = np.max(votes, where=np.abs(every / best - 1) > VAGUE, initial=0)
    if max(votes) < max(FEWEST, MOST * len(alone)) or rival >= max(votes):
        return None
    like = [own[np.abs(own / best - 1).argmin()] for own, _ in alone.values()]
    return float(np.median([c for c in like if abs(c / best - 1) < VAGUE]))


def on_one_grid(
    answers: dict[int, np.ndarray], ones: dict[int, FirstOrder], levels: Float[np.ndarray, " levels"]
) -> bool:
    """Whether there are ratings, of which no other multiple is on the grid."""
    if not answers:
        return False
    value = np.concatenate(list(answers.values()))
    offset = np.concatenate([ones[user].offset for user in answers])
    sure = np.isfinite(value)
    if not sure.any():
        return False
    # of every second level, say, numbers with half the differences fit, too, and an offset: predictions
    # through a link that is nearly straight are such numbers
    return not in_larger_steps(value[sure], levels) and bool(
        one_multiple((value - offset)[sure], offset, levels)
    )
