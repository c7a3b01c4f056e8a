"""Clients who may have a bias of their own, in all rounds: ratings up to a shift, and its course."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.biases.bias_steps import Moves
from attacks.closed_form.centres.shifted import Shifted, read_any_shifted, read_shifted
from attacks.closed_form.uploads.item_rows import rows_of
from attacks.closed_form.uploads.readings import some_of
from victims.transcript.manifest import Manifest
from victims.transcript.view import Uploads, UserBatch


class Part(NamedTuple):
    """Some clients in the first round that tells them."""

    place: Int[np.ndarray, " some"]  # of the clients in their batch
    round: int
    kinds: Int[np.ndarray, "some rows"]
    items: Int[np.ndarray, "some rows"]
    found: Shifted


class Course(NamedTuple):
    """What all rounds say of the clients of one batch."""

    users: Int[np.ndarray, " users"]
    parts: list[Part]
    first_bias: Float[np.ndarray, " users"]  # as of ``Clients``
    moves: Moves  # of clients by their place in the batch


def course_of(
    manifest: Manifest, batch: UserBatch, levels: Float[np.ndarray, " levels"], pull: float
) -> Course:
    """Read each client in its first round that tells it, and by what is known of it in the later ones."""
    n = batch.users.size
    first_bias = np.full(n, np.nan)
    new, open_ = np.ones(n, bool), np.ones(n, bool)
    last = _State.unknown(n, manifest.factors)
    parts: list[tuple[Part, Uploads]] = []
    moves: list[Moves] = []
    for uploads in batch.rounds:
        rows = rows_of(manifest, uploads, None, 0.0, pull)
        there = np.asarray(rows.item.any(axis=1))
        now = _State.unknown(n, manifest.factors)
        for part, first in parts:
            same = (uploads.same_list(first) & there)[part.place]
            known = _wide(part.found.above[same], rows.item.shape[1])
            again = part.place[same]
            now.note(again, read_shifted(some_of(rows, again), levels, known))
        fresh = np.flatnonzero(open_ & there)
        if fresh.size:
            found = read_any_shifted(some_of(rows, fresh), levels)
            now.note(fresh, found)
            told = fresh[found.told]
            open_[told] = False
            if told.size:
                parts.append((_part(told, uploads, found), uploads))
        moves.append(_moved(last, now, there))
        first_bias[new & there] = now.bias[new & there]
        new &= ~there
        last = _State(*(_where(there, *pair) for pair in zip(now, last, strict=True)))
    return Course(batch.users, [part for part, _ in parts], first_bias, joined_moves(moves))


def _part(place: Int[np.ndarray, " some"], uploads: Uploads, found: Shifted) -> Part:
    """Those of whom ``found`` tells."""
    shape = uploads.gradients.shape[:2]
    kinds, items = (np.broadcast_to(one, shape)[place] for one in (uploads.kind, uploads.index))
    return Part(place, uploads.round, kinds, items, Shifted(*(column[found.told] for column in found)))


class _State(NamedTuple):
    """What a round says of clients, as ``Shifted`` has it; NaN where it tells nothing."""

    bias: Float[np.ndarray, " users"]
    pushed: Float[np.ndarray, " users"]
    factor: Float[np.ndarray, "users K"]
    pushed_factor: Float[np.ndarray, "users K"]

    @classmethod
    def unknown(cls, n_users: int, n_factors: int) -> _State:
        """Of nobody."""
        return cls(*np.full((2, n_users), np.nan), *np.full((2, n_users, n_factors), np.nan))

    def note(self, place: Int[np.ndarray, " some"], found: Shifted) -> None:
        """Take down what is read of some clients."""
        for name, column in self._asdict().items():
            column[place[found.told]] = getattr(found, name)[found.told]


def _where(here: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.where(here.reshape(-1, *[1] * (first.ndim - 1)), first, second)


def _moved(last: _State, now: _State, there: np.ndarray) -> Moves:
    """Of clients who are told in this round and in the last one in which they took part."""
    both = np.flatnonzero(there & np.isfinite(now.bias) & np.isfinite(last.bias))
    before, after = (_State(*(column[both] for column in one)) for one in (last, now))
    return Moves(
        both,
        before.bias,
        after.bias - before.bias,
        before.pushed,
        before.factor,
        after.factor - before.factor,
        before.pushed_factor,
    )


def joined_moves(moves: list[Moves]) -> Moves:
    """Put moves one after the other."""
    return Moves(*(np.concatenate(columns) for columns in zip(*moves, strict=True)))


def _wide(above: Int[np.ndarray, "some rows"], width: int) -> Int[np.ndarray, "some width"]:
    """The same with as much padding as the rows of another round have."""
    out = np.full((len(above), width), -1)
    common = min(width, above.shape[1])
    out[:, :common] = above[:, :common]
    return out
