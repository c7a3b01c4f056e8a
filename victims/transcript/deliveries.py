"""``deliveries.arrow`` of version 2: to whom a row that is stored once goes, and times what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.transcript.arrow import INT32_MAX, open_columns
from victims.transcript.columns import finite_chunks, integer_chunks
from victims.transcript.manifest import Manifest
from victims.transcript.parties import party_chunks

STEM = "deliveries"


@dataclass(frozen=True)
class Deliveries:
    """Edges of a graph, by receiver, sender and first round."""

    sender: Int[np.ndarray, " edges"]
    receiver: Int[np.ndarray, " edges"]
    weight: Float[np.ndarray, " edges"]  # what the sender's rows are multiplied by on the way
    first: Int[np.ndarray, " edges"]  # rounds in which the edge is there, both included
    last: Int[np.ndarray, " edges"]  # rounds in which the edge is there, both included

    def weights(
        self, receiver: int, sender: Int[np.ndarray, " rows"], round_: Int[np.ndarray, " rows"]
    ) -> Float[np.ndarray, " rows"]:
        """Multiples at which somebody receives rows; 0 where it does not."""
        here = slice(*np.searchsorted(self.receiver, [receiver, receiver + 1]))
        if here.start == here.stop:
            return np.zeros(sender.size)
        key = _key(self.sender[here], self.first[here])
        at = np.maximum(np.searchsorted(key, _key(sender, round_), side="right") - 1, 0)
        there = (self.sender[here][at] == sender) & (self.first[here][at] <= round_)
        there &= round_ <= self.last[here][at]
        return np.where(there, self.weight[here][at], 0.0)


def _key(sender: np.ndarray, round_: np.ndarray) -> np.ndarray:
    """One number that ascends by sender, then by round."""
    return sender.astype(np.int64) << 31 | round_.astype(np.int64)


def read_deliveries(directory: Path, manifest: Manifest) -> Deliveries | None:
    """Read and check the graph of a recording."""
    files = [directory / f"{STEM}{suffix}" for suffix in (".arrow", ".parquet")]
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        return None
    file = open_columns(path)
    columns = {name: _joined(party_chunks(file, name, manifest)) for name in ("sender", "receiver")}
    columns["weight"] = np.concatenate([np.zeros(0), *finite_chunks(file, "weight")])
    for name in ("first_round", "last_round"):
        columns[name] = _joined(integer_chunks(file, name, 0, INT32_MAX, ">= 0"))
    bad = np.flatnonzero(columns["last_round"] < columns["first_round"])
    if bad.size:
        raise InputError(f"{path} row {bad[0]}: last_round must be >= first_round")
    order = _order(*(columns[name] for name in ("sender", "receiver", "first_round")))
    pair = overlapping(*(columns[name] for name in ("sender", "receiver", "first_round", "last_round")))
    if pair is not None:
        raise InputError(
            f"{path} row {pair[1]}: sender and receiver must have one edge in a round, they have two"
        )
    return Deliveries(*(column[order] for column in columns.values()))


def overlapping(
    sender: Int[np.ndarray, " edges"],
    receiver: Int[np.ndarray, " edges"],
    first: Int[np.ndarray, " edges"],
    last: Int[np.ndarray, " edges"],
) -> tuple[int, int] | None:
    """Find two edges of the same parties that share a round."""
    order = _order(sender, receiver, first)
    here, then = order[:-1], order[1:]
    shared = (receiver[then] == receiver[here]) & (sender[then] == sender[here]) & (first[then] <= last[here])
    at = np.flatnonzero(shared)
    return (int(here[at[0]]), int(then[at[0]])) if at.size else None


def _order(sender: np.ndarray, receiver: np.ndarray, first: np.ndarray) -> np.ndarray:
    return np.lexsort([first, sender, receiver])


def _joined(chunks: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(chunks) if chunks else np.zeros(0, np.int32)
