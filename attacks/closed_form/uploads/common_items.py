"""Rows of the items that a client sends in each of a few rounds, where its list changes from round to round.

What compares a client's rows over rounds (differences, in which noise that repeats falls out) needs no more
than items that come in all of these. Clients who take part with some of their items at a time have enough of
them in four rounds, which is what ``attacks.trajectory.differencing`` asks for: of n items, each sent with
probability s, n s^4 are left.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from victims.transcript.view import View, rows_of

ROUNDS = 4  # in a row
ENOUGH = 200  # clients that are looked at
FEWEST = 4  # items of a client, and rows that differences need


def with_common_items(view: View) -> View:
    """Leave out what clients whose lists change did not send in each of the first four rounds in a row."""
    rounds, messages = compared_rounds(view), view.messages
    if rounds.size < ROUNDS or not messages.n_rows or not _lists_change(view, rounds):
        return view
    columns = (messages.round, messages.sender, messages.kind, messages.index)
    round_, sender, kind, index = (np.concatenate(parts).astype(np.int64) for parts in columns)
    inside = np.isin(round_, rounds)
    key = ((sender * 2 + kind) * (int(index.max()) + 1) + index)[inside]
    _, place, count = np.unique(key, return_inverse=True, return_counts=True)
    in_all = np.zeros(inside.size, bool)
    in_all[inside] = count[place] == ROUNDS
    enough = np.bincount(sender[in_all], minlength=int(sender.max()) + 1) >= FEWEST * ROUNDS
    left_out = inside & ~in_all & enough[sender]
    if not left_out.any():
        return view
    return replace(view, messages=rows_of(messages, np.flatnonzero(~left_out)))


def _lists_change(view: View, rounds: np.ndarray) -> bool:
    """Whether one of some clients sends other items in one of the rounds."""
    asked = 0
    for batch in view.batches():
        first, *others = (uploads for uploads in batch.rounds if uploads.round in rounds)
        if not all(first.same_list(other).all() for other in others):
            return True
        asked += batch.users.size
        if asked >= ENOUGH:
            break
    return False


def compared_rounds(view: View) -> np.ndarray:
    """Find the first rounds of the longest run of consecutive ones, four at most."""
    runs = np.split(view.rounds, np.flatnonzero(np.diff(view.rounds) != 1) + 1)
    return max(runs, key=len)[:ROUNDS]
