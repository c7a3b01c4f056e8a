"""One round under the switches: what clients send, what becomes of them, and the sums that the server has.

A victim says with a ``Task`` what its clients' step is and what a gradient is; everything else is here and
below, once for all victims.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.protocols.client_task import Biases, Task
from victims.protocols.exchanged import Received, Rows
from victims.protocols.local_rows import trained_pieces
from victims.protocols.presence import present
from victims.transcript.view import ATTRIBUTE, ITEM


class Outcome(NamedTuple):
    """A round, as the server and the clients have it."""

    items: Float[np.ndarray, "items K"]  # sums of what arrived, as gradients of the protocol
    attributes: Float[np.ndarray, "attributes K"]  # sums of what arrived, as gradients of the protocol
    senders: Float[np.ndarray, " items"]  # rows that arrived about each item
    clients: Float[np.ndarray, "users K"]  # their factors after the round
    stepping: Bool[np.ndarray, " users"]  # who took part
    biases: Biases | None  # after the round


def rows_of_round(task: Task, users: Int[np.ndarray, " some"]) -> Iterator[Rows]:
    """Compute the rows of those of some clients who are heard in the round."""
    heard = present(task.switches, len(task.clients), task.seed, task.round).heard
    for piece in trained_pieces(task, users[heard[users]]):
        yield piece.rows


def after_round(task: Task, received: Received | None) -> Outcome:
    """Compute what becomes of the clients, and the sums that the server has of them."""
    stepping, heard = present(task.switches, len(task.clients), task.seed, task.round)
    items, attributes = np.zeros_like(task.items), np.zeros_like(task.attributes)
    senders, bias = np.zeros(len(items)), np.zeros(len(items))
    clients = np.array(task.clients)
    biases = None if task.biases is None else np.array(task.biases.clients)
    for piece in trained_pieces(task, np.flatnonzero(stepping)):
        clients[piece.users] = piece.clients[:, : clients.shape[1]]
        if biases is not None:
            biases[piece.users] = piece.clients[:, clients.shape[1]]
        arrived = heard[piece.rows.sender]
        for kind, total in ((ITEM, items), (ATTRIBUTE, attributes)):
            rows = arrived & (piece.rows.kind == kind)
            _add(total, piece.rows.index[rows], piece.rows.gradient[rows])
        arrived &= piece.rows.kind == ITEM
        index = piece.rows.index[arrived]
        senders += np.bincount(index, minlength=senders.size)
        if piece.rows.bias is not None:
            bias += np.bincount(index, piece.rows.bias[arrived], minlength=bias.size)
    if received is not None:
        items, attributes = received.items, received.attributes
    n_heard = float(heard.sum())
    items = _as_gradients(task, items, task.items, senders[:, None])
    attributes = _as_gradients(task, attributes, task.attributes, n_heard)
    moved = None
    if task.biases is not None and biases is not None:
        moved = Biases(task.biases.items + bias, biases)
    return Outcome(items, attributes, senders, clients, stepping, moved)


def _as_gradients(
    task: Task, sums: np.ndarray, factors: np.ndarray, senders: float | np.ndarray
) -> Float[np.ndarray, "rows K"]:
    """Sums of the rows as if these were gradients, which the server's step is written for."""
    sends = task.switches.sends
    if sends == "gradient":
        return sums
    change = sums - senders * factors if sends == "weights" else sums
    return change * (task.step.scale / (2 * task.step.rate))


def _add(total: np.ndarray, index: np.ndarray, rows: np.ndarray) -> None:
    for column in range(total.shape[1]):
        total[:, column] += np.bincount(index, rows[:, column], minlength=len(total))
