"""What peers received, as the attacks of this room take it: one row for each message, round by round.

Several members of a coalition get a row of a sender each, times its own weight. Where senders are told,
these are copies of one message; where they are not, rows about one item that are parallel to the last digit
are, and how their lengths relate is how the sender's weights do. A row that one member gets twice, the same
in all digits, was sent twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.peers.row_form import PRECISION, last_digit
from victims.transcript.view import ITEM, UNTOLD, Copies, View

PARALLEL = 1e-9  # sine below which two rows about one item are copies of one message


class Arrived(NamedTuple):
    """Messages of one round about items."""

    round: int
    at: Int[np.ndarray, " copies"]  # row of ``View.copies`` of each copy
    message: Int[np.ndarray, " copies"]  # message of each copy
    sender: Int[np.ndarray, " messages"]  # ``UNTOLD`` where receivers do not see who sends
    item: Int[np.ndarray, " messages"]
    # as its sender had it, where weights are told; else its first copy as it arrived
    rows: Float[np.ndarray, "messages K"]
    length: Float[np.ndarray, "messages members"]  # length of each member's copy, 0 where it has none
    factors: Float[np.ndarray, "messages K"]  # of the items, as the first member holds them
    precision: float  # relative size of the rows' last digit


def arrived(view: View) -> list[Arrived]:
    """Messages by round; rounds in which nothing arrived are left out."""
    copies = view.copies
    assert copies is not None
    out = []
    for round_ in np.unique(copies.round).tolist():
        broadcast = view.broadcasts.get(round_)
        if broadcast is None:
            continue
        here = np.flatnonzero((copies.round == round_) & (copies.kind == ITEM))
        place = broadcast.positions(copies.kind[here], copies.index[here])
        here, place = here[place >= 0], place[place >= 0]
        if here.size:
            one = _of_round(copies, view.members, round_, here, broadcast.factors[place])
            out.append(one._replace(precision=last_digit(view.manifest, one.rows, one.factors)))
    return out


def _of_round(
    copies: Copies, members: tuple[int, ...], round_: int, at: np.ndarray, factors: np.ndarray
) -> Arrived:
    sender, receiver, index = copies.sender[at], copies.receiver[at], copies.index[at]
    rows = copies.gradient[at].astype(np.float64)
    size = np.linalg.norm(rows, axis=1)
    message = _messages(sender, receiver, index, rows, size, members)
    _, first = np.unique(message, return_index=True)
    length = np.zeros((first.size, len(members)))
    length[message, np.searchsorted(members, receiver)] = size
    one = _one_each(rows, copies.weight[at], message, first)
    return Arrived(round_, at, message, sender[first], index[first], one, length, factors[first], PRECISION)


def _one_each(
    rows: np.ndarray, weight: np.ndarray, message: np.ndarray, first: np.ndarray
) -> Float[np.ndarray, "messages K"]:
    """Of known weights the least squares of all copies, else the first one as it is."""
    told = np.isfinite(weight) & (weight != 0)
    total, square = np.zeros((first.size, rows.shape[1])), np.zeros(first.size)
    np.add.at(total, message[told], weight[told, None] * rows[told])
    np.add.at(square, message[told], weight[told] ** 2)
    return np.where(square[:, None] > 0, total / np.where(square > 0, square, 1)[:, None], rows[first])


def _messages(
    sender: np.ndarray,
    receiver: np.ndarray,
    index: np.ndarray,
    rows: np.ndarray,
    size: np.ndarray,
    members: tuple[int, ...],
) -> Int[np.ndarray, " copies"]:
    """Number of each copy's message."""
    if (sender != UNTOLD).all():
        if len(members) == 1:
            return np.arange(sender.size)
        return np.unique(np.stack([sender, index]), axis=1, return_inverse=True)[1].ravel()
    number = _alike(sender, receiver, index, rows, size)
    if len(members) == 1:
        return np.unique(number, return_inverse=True)[1]
    unit = rows / np.where(size > 0, size, 1)[:, None]
    order = np.argsort(index, kind="stable")
    for here in np.split(order, np.flatnonzero(np.diff(index[order])) + 1):
        near = unit[here] @ unit[here].T
        # 1 - cos^2 has no more than half of the digits: the difference of the rows has all
        for a, b in np.argwhere(np.triu(near**2 > 1 - 1e-12, 1)):
            one, other = here[a], here[b]
            apart = np.linalg.norm(unit[one] - np.sign(near[a, b]) * unit[other])
            if receiver[one] != receiver[other] and apart < PARALLEL and number[other] == other:
                number[other] = number[one]
    return np.unique(number[number], return_inverse=True)[1]


def _alike(
    sender: np.ndarray, receiver: np.ndarray, index: np.ndarray, rows: np.ndarray, size: np.ndarray
) -> Int[np.ndarray, " copies"]:
    """For each copy the first that is the same; rows of zeros are all different, for they tell nothing."""
    place = np.where(size > 0, 0, np.arange(size.size) + 1)
    columns = np.column_stack([sender, receiver, index, place, rows])
    _, first, inverse = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    return first[inverse.ravel()]
