"""Rows of a reconstruction file, as answers of clients and as their factors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from attacks.base import ClientFactors, Estimates
from victims.common.errors import InputError
from victims.transcript.columns import ColumnFile, integer_chunks
from victims.transcript.kinds import INT32_MAX, OF_FACTORS

PAD_CELLS = 1 << 22
FACTOR = len(OF_FACTORS)
ANSWERS = {**OF_FACTORS, "factor": FACTOR}  # kinds of rows; those of a recording's kinds first


def rounds_of(path: Path, file: ColumnFile, factor: np.ndarray) -> np.ndarray:
    """Read the column ``round``, which rows of factors need."""
    chunks = integer_chunks(file, "round", -1, INT32_MAX - 1, ">= 0", null=-1) if file.has("round") else []
    round_ = np.concatenate(chunks) if chunks else np.full(factor.size, -1)
    wrong = np.flatnonzero(factor & (round_ < 0))
    if wrong.size:
        raise InputError(f"{path} row {wrong[0]}: a row of kind factor needs a round, it has none")
    return round_


def factors_of(
    path: Path, user: np.ndarray, kind: np.ndarray, index: np.ndarray, value: np.ndarray, round_: np.ndarray
) -> ClientFactors:
    """Put rows of kind factor together as vectors."""
    rows = np.flatnonzero(kind == FACTOR)
    rows = rows[np.lexsort((index[rows], user[rows]))]
    users, first = np.unique(user[rows], return_index=True)
    width = int(index[rows].max()) + 1
    if rows.size != users.size * width:
        raise InputError(
            f"{path}: factors must have every coordinate of every client once, {users.size:,} x {width:,} "
            f"rows, got {rows.size:,}"
        )
    rounds = round_[rows].reshape(users.size, width)
    if (rounds != rounds[:, :1]).any():
        raise InputError(f"{path}: the coordinates of a client's factor must be of one round")
    values = value[rows].reshape(users.size, width)
    return ClientFactors(users.astype(np.int32), round_[rows[first]].astype(np.int32), values)


def optional_column(path: Path, file: ColumnFile, name: str) -> Float[np.ndarray, " rows"]:
    """Read a column that may be null anywhere."""
    arrays = file.columns(name)
    for array in arrays:
        kind = array.type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise InputError(f"{path}: {name} must hold numbers or null, got {kind}")
    chunks = [array.to_numpy(zero_copy_only=False) for array in arrays]
    column = np.concatenate(chunks).astype(np.float64) if chunks else np.zeros(0)
    probability = name.endswith("probability")
    rule = "in 0..1" if probability else "finite"
    wrong = np.flatnonzero(np.isinf(column) | (probability & ((column < 0) | (column > 1))))
    if wrong.size:
        raise InputError(f"{path} row {wrong[0]}: {name} must be {rule} or null, got {column[wrong[0]]:g}")
    return column


def refuse_repeats(path: Path, user: np.ndarray, kind: np.ndarray, index: np.ndarray) -> None:
    """Refuse two rows of one user, kind and index."""
    if user.size < 2:
        return
    order = np.lexsort((index, kind, user))
    same = np.ones(user.size - 1, bool)
    for column in (user, kind, index):
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    if same.any():
        row = int(np.maximum(order[1:], order[:-1])[same].min())
        raise InputError(f"{path} row {row}: each user, kind and index must occur once")


def blocks_of(
    user: np.ndarray,
    kind: np.ndarray,
    index: np.ndarray,
    value: np.ndarray,
    others: Mapping[str, np.ndarray],
) -> Iterator[Estimates]:
    """Pad clients with similar numbers of rows to common blocks."""
    order = np.argsort(user, kind="stable")
    users, start, length = np.unique(user[order], return_index=True, return_counts=True)
    by_length = np.argsort(length, kind="stable")
    position = 0
    while position < users.size:
        longest = length[by_length]
        limit = int(np.searchsorted(longest, 2 * longest[position], side="right"))
        cells = np.arange(1, limit - position + 1) * longest[position:limit]
        count = max(1, int(np.searchsorted(cells, PAD_CELLS, side="right")))
        members = by_length[position : position + count]
        position += count
        slot = np.arange(int(length[members].max()))
        valid = slot < length[members][:, None]
        rows = order[np.where(valid, start[members][:, None] + slot, 0)]
        yield Estimates(
            users[members].astype(np.int32),
            kind[rows].astype(np.int8),
            index[rows].astype(np.int32),
            np.where(valid, value[rows], np.nan),
            **{name: np.where(valid, column[rows], np.nan) for name, column in others.items()},
        )
