"""What rows must be beside each other and beside the state: every index broadcast, none sent twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from victims.common.errors import InputError
from victims.transcript.adversaries import Sent
from victims.transcript.kinds import KINDS
from victims.transcript.messages import Broadcast, Messages

BLOCK_ROWS = 1 << 20  # checked at a time: few calls, yet little memory


def check_rows(
    path: Path,
    broadcasts: dict[int, Broadcast],
    messages: Messages,
    receiver: Sequence[np.ndarray] | None = None,
) -> bool:
    """State for every index used; no (round, sender, kind, index) twice.

    Parameters
    ----------
    path : Path
        Of the file, for messages.
    broadcasts : dict of int to Broadcast
    messages : Messages
        Rows with a factor of their own need no state.
    receiver : chunks of int, optional
        Where one row may be sent to several receivers.

    Returns
    -------
    bool
        Whether a row is there for several receivers.

    Raises
    ------
    InputError
        Naming the row.
    """
    ascending = True
    previous = None
    for chunk, start in enumerate(messages.offsets[:-1]):
        columns = [
            column[chunk] for column in (messages.round, messages.sender, messages.kind, messages.index)
        ]
        for low in range(0, columns[0].size, BLOCK_ROWS):
            block = [column[low : low + BLOCK_ROWS] for column in columns]
            if messages.reference is None:
                _check_state(path, block, broadcasts, int(start) + low)
            if ascending:
                ascending = _strictly_ascending(block, previous)
                previous = [column[-1:] for column in block]
    if messages.sequence is not None:
        _refuse_repeated_sequence(path, messages)
    return not ascending and _refuse_repeats(path, messages, receiver)


def _check_state(path: Path, block: list[np.ndarray], broadcasts: dict[int, Broadcast], start: int) -> None:
    rounds, _, kind, index = block
    for round_ in np.unique(rounds):
        here = slice(None) if (rounds == round_).all() else np.flatnonzero(rounds == round_)
        missing = np.flatnonzero(broadcasts[int(round_)].positions(kind[here] % 2, index[here]) < 0)
        if missing.size:
            row = int(np.arange(rounds.size)[here][missing[0]])
            raise InputError(
                f"{path} row {start + row}: {KINDS[kind[row]]} {index[row]} has no state in "
                f"round {round_}; state.arrow must hold every index used"
            )


def check_sums(path: Path, sums: Sent, broadcasts: dict[int, Broadcast]) -> None:
    """State for every sum; no (round, kind, index) twice.

    Parameters
    ----------
    path : Path
        Of the file, for messages.
    sums : Sent
    broadcasts : dict of int to Broadcast

    Raises
    ------
    InputError
        Naming the round.
    """
    for round_ in np.unique(sums.round).tolist():
        here = sums.round == round_
        kind, index = sums.kind[here] % 2, sums.index[here]
        if (broadcasts[round_].positions(kind, index) < 0).any():
            raise InputError(
                f"{path}: a sum of round {round_} has no state; state.arrow must hold every index"
            )
        if np.unique(np.stack([kind, index]), axis=1).shape[1] < index.size:
            raise InputError(f"{path}: round {round_} must hold each sum once")


def _strictly_ascending(block: list[np.ndarray], previous: list[np.ndarray] | None) -> bool:
    """(round, sender, kind, index) ascends from row to row, so no row repeats another."""
    if previous is not None:
        block = [np.concatenate([a, b]) for a, b in zip(previous, block, strict=True)]
    larger = np.zeros(block[0].size - 1, bool)
    equal = ~larger
    for column in block:
        larger |= equal & (column[1:] > column[:-1])
        equal &= column[1:] == column[:-1]
    return bool(larger.all())


def _refuse_repeats(path: Path, messages: Messages, receiver: Sequence[np.ndarray] | None) -> bool:
    """Whether rows repeat each other for another receiver."""
    columns = [
        np.concatenate(column) for column in (messages.index, messages.kind, messages.sender, messages.round)
    ]
    to = None if receiver is None else np.concatenate(list(receiver))
    order = np.lexsort(columns if to is None else [to, *columns])
    same = _equal_to_the_next(columns, order)
    repeated = same if to is None else same & _equal_to_the_next([to], order)
    if repeated.any():
        row, again = _pair(order, repeated)
        rule = "each round, sender, kind and index must occur once"
        rule += "" if to is None else " for a receiver"
        raise InputError(f"{path} row {again}: {rule}, it repeats row {row}")
    return bool(same.any())


def _refuse_repeated_sequence(path: Path, messages: Messages) -> None:
    assert messages.sequence is not None
    columns = [np.concatenate(column) for column in (messages.sequence, messages.sender, messages.round)]
    order = np.lexsort(columns)
    same = _equal_to_the_next(columns, order)
    if same.any():
        row, again = _pair(order, same)
        raise InputError(
            f"{path} row {again}: sequence must occur once among the rows of a round and sender, "
            f"it repeats row {row}"
        )


def _equal_to_the_next(columns: list[np.ndarray], order: np.ndarray) -> np.ndarray:
    same = np.ones(max(order.size - 1, 0), bool)
    for column in columns:
        sorted_column = column[order]
        same &= sorted_column[1:] == sorted_column[:-1]
    return same


def _pair(order: np.ndarray, same: np.ndarray) -> tuple[int, int]:
    """Rows of the first repetition."""
    return int(np.minimum(order[1:], order[:-1])[same].min()), int(
        np.maximum(order[1:], order[:-1])[same].min()
    )
