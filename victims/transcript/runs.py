"""Rows of one round and sender that lie together: most files have them so, and then nothing is sorted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from victims.transcript.messages import Messages
from victims.transcript.sort_keys import Bounds, Column, repeated

BLOCK_ROWS = 1 << 18  # looked at together: few calls, and what is made of them stays near the processor


@dataclass(frozen=True)
class Runs:
    """Rows of one round and sender that follow each other."""

    start: Int[np.ndarray, " runs"]  # first row of each
    round: Int[np.ndarray, " runs"]
    sender: Int[np.ndarray, " runs"]
    n_rows: int  # of all runs together
    apart: bool  # no round and sender has two runs

    @property
    def stop(self) -> Int[np.ndarray, " runs"]:
        """One after the last row of each."""
        return np.append(self.start[1:], self.n_rows)


def scattered(messages: Messages) -> bool:
    """Tell whether the first block shows that rows of a round and sender do not lie together.

    Then every row may be a run, and nobody needs to know where they begin.
    """
    for _, round_, sender in blocks_of(messages, (messages.round, messages.sender)):
        begin = np.flatnonzero(_begins(round_, sender))
        return repeated([[round_[begin]], [sender[begin]]])
    return False


def _begins(round_: np.ndarray, sender: np.ndarray) -> np.ndarray:
    """Which rows begin a run, the first one among them."""
    begins = np.ones(sender.size, bool)
    begins[1:] = sender[1:] != sender[:-1]
    begins[1:] |= round_[1:] != round_[:-1]
    return begins


def runs_of(messages: Messages) -> Runs:
    """Find the runs of some messages, across the chunks of a file."""
    columns: tuple[list[np.ndarray], ...] = ([], [], [])
    for first, round_, sender in blocks_of(messages, (messages.round, messages.sender)):
        begin = np.flatnonzero(_begins(round_, sender))
        for column, rows in zip(columns, (begin + first, round_[begin], sender[begin]), strict=True):
            column.append(rows)
    nothing = np.zeros(0, np.int32)
    start, round_, sender = (np.concatenate([nothing, *parts]) for parts in columns)
    begins = _begins(round_, sender)  # a run may go on in the next block
    start, round_, sender = start[begins], round_[begins], sender[begins]
    return Runs(start, round_, sender, messages.n_rows, apart=not repeated([[round_], [sender]]))


def ascend_in_runs(messages: Messages, columns: Sequence[Column]) -> bool:
    """Some columns, the first counting most, ascend from row to row of a round and sender."""
    for round_, sender, *major, minor in _overlapping(messages, (messages.round, messages.sender, *columns)):
        suspect = minor[1:] <= minor[:-1]  # few rows are, and only those are looked at closely
        for column in major:
            suspect |= column[1:] < column[:-1]
        at = np.flatnonzero(suspect)
        at = at[(sender[at + 1] == sender[at]) & (round_[at + 1] == round_[at])]
        larger = np.zeros(at.size, bool)
        equal = ~larger
        for column in (*major, minor):
            larger |= equal & (column[at + 1] > column[at])
            equal &= column[at + 1] == column[at]
        if not larger.all():
            return False
    return True


def _overlapping(messages: Messages, columns: Sequence[Column]) -> Iterator[tuple[np.ndarray, ...]]:
    """Blocks that begin with the last row of the one before; copied is only where chunks meet."""
    before: tuple[np.ndarray, ...] = ()
    for chunk in range(len(messages.sender)):
        whole = tuple(column[chunk] for column in columns)
        size = whole[0].size
        if size and before:
            yield tuple(
                np.concatenate([last, column[:1]]) for last, column in zip(before, whole, strict=True)
            )
        for low in range(0, size - 1, BLOCK_ROWS):
            yield tuple(column[low : low + BLOCK_ROWS + 1] for column in whole)
        before = tuple(column[-1:] for column in whole) if size else before


def repeat_in_runs(
    messages: Messages,
    runs: Runs | None,
    columns: Sequence[Column],
    bounds: Sequence[Bounds | None] = (),
) -> bool:
    """Whether two rows of a round and sender have the same numbers in some columns."""
    apart = runs is not None and runs.apart
    if apart and ascend_in_runs(messages, columns):
        return False
    if runs is None or not apart:
        return repeated([messages.round, messages.sender, *columns], bounds)
    stop = runs.stop
    first = 0
    while first < stop.size:  # whole runs, as many as fit into a block
        last = max(int(np.searchsorted(stop, runs.start[first] + BLOCK_ROWS, side="right")), first + 1)
        low, high = int(runs.start[first]), int(stop[last - 1])
        run = np.repeat(np.arange(last - first), stop[first:last] - runs.start[first:last])
        if repeated([[run], *([messages.between(column, low, high)] for column in columns)]):
            return True
        first = last
    return False


def blocks_of(messages: Messages, columns: Sequence[Column]) -> Iterator[tuple]:
    """Cut columns into blocks of at most ``BLOCK_ROWS`` rows; no block is empty."""
    for chunk, start in enumerate(messages.offsets[:-1].tolist()):
        for low in range(0, messages.sender[chunk].size, BLOCK_ROWS):
            yield start + low, *(column[chunk][low : low + BLOCK_ROWS] for column in columns)
