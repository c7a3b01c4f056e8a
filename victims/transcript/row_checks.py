"""What rows must be beside each other and beside the state: every index broadcast, none sent twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from victims.common.errors import InputError
from victims.transcript.adversaries import Sent
from victims.transcript.kinds import ATTRIBUTE, ITEM, KINDS
from victims.transcript.manifest import Manifest
from victims.transcript.messages import Messages, lookup
from victims.transcript.runs import blocks_of, repeat_in_runs, runs_of, scattered
from victims.transcript.sort_keys import Column, distinct, equal_to_the_next, order_of, repeated

DENSE = 4  # a table of all indices is quicker than a search where it has few more places than rows


class Indices(NamedTuple):
    """What somebody has a factor of in one round, ascending."""

    items: Int[np.ndarray, " items"]
    attributes: Int[np.ndarray, " attributes"]


def check_rows(
    path: Path,
    known: Mapping[int, Indices],
    messages: Messages,
    manifest: Manifest,
    receiver: Column | None = None,
) -> bool:
    """State for every index used; no (round, sender, kind, index) twice, nor a sequence number."""
    if messages.reference is None and not _all_known(known, manifest):
        for start, *block in blocks_of(messages, (messages.round, messages.kind, messages.index)):
            _check_state(path, known, start, *block)
    runs = None if scattered(messages) else runs_of(messages)
    sequence = messages.sequence
    client = ((min(manifest.rounds), max(manifest.rounds)), (0, manifest.n_users - 1))
    if sequence is not None and repeat_in_runs(messages, runs, [sequence], [*client, None]):
        rule = "sequence must occur once among the rows of a round and sender"
        ordered = [messages.round, messages.sender, sequence, *(() if receiver is None else (receiver,))]
        if receiver is None or repeated(ordered):
            raise _repetition(path, ordered, rule)
    largest = max(manifest.n_items, manifest.n_attributes) - 1
    if not repeat_in_runs(messages, runs, [messages.kind, messages.index], [*client, None, (0, largest)]):
        return False
    rule = "each round, sender, kind and index must occur once"
    columns = (messages.round, messages.sender, messages.kind, messages.index)
    if receiver is None:
        raise _repetition(path, columns, rule)
    if repeated([*columns, receiver]):
        raise _repetition(path, [*columns, receiver], f"{rule} for a receiver")
    return True


def _all_known(known: Mapping[int, Indices], manifest: Manifest) -> bool:
    """Whether every index that rows may have has state in every round: then no row needs to be looked at."""
    sizes = (manifest.n_items, manifest.n_attributes)
    return all((indices.items.size, indices.attributes.size) == sizes for indices in known.values())


def _check_state(
    path: Path,
    known: Mapping[int, Indices],
    start: int,
    rounds: np.ndarray,
    kind: np.ndarray,
    index: np.ndarray,
) -> None:
    for round_, here in by_round(rounds):
        missing = _without_state(known[round_], kind[here], index[here])
        if missing.size:
            row = int(np.arange(rounds.size)[here][missing].min())
            raise InputError(
                f"{path} row {start + row}: {KINDS[kind[row]]} {index[row]} has no state in "
                f"round {round_}; state.arrow must hold every index used"
            )


def by_round(rounds: Int[np.ndarray, " rows"]) -> Iterator[tuple[int, slice | np.ndarray]]:
    """Go through the rounds and the rows of each, quickly whatever the number of rounds."""
    if rounds.size and (rounds == rounds[0]).all():
        yield int(rounds[0]), slice(None)
        return
    order = np.argsort(rounds, kind="stable")
    cuts = np.flatnonzero(np.diff(rounds[order])) + 1
    for rows in np.split(order, cuts) if order.size else ():
        yield int(rounds[rows[0]]), rows


def _without_state(known: Indices, kind: np.ndarray, index: np.ndarray) -> Int[np.ndarray, " missing"]:
    if not kind.any():
        return _missing(known.items, index)
    found = []
    for code, ids in ((ITEM, known.items), (ATTRIBUTE, known.attributes)):
        rows = np.flatnonzero(kind % 2 == code)
        found.append(rows[_missing(ids, index[rows])])
    return np.concatenate(found)


def _missing(ids: np.ndarray, index: np.ndarray) -> Int[np.ndarray, " missing"]:
    """Places of indices, all >= 0, that are not among the ids."""
    most = int(index.max(initial=-1))
    if ids.size and ids[0] == 0 and ids[-1] == ids.size - 1 and most < ids.size:  # ids are 0, 1, 2, …
        return np.zeros(0, np.int64)
    if most < DENSE * index.size:
        there = np.zeros(most + 1, bool)
        there[ids[: np.searchsorted(ids, most, side="right")]] = True
        return np.flatnonzero(~there[index])
    return np.flatnonzero(lookup(ids, index) < 0)


def check_sums(path: Path, sums: Sent, known: Mapping[int, Indices], *, by_receiver: bool = False) -> None:
    """State for every sum; no (round, kind, index) twice."""
    for round_, here in by_round(sums.round):
        if _without_state(known[round_], sums.kind[here], sums.index[here]).size:
            raise InputError(
                f"{path}: a sum of round {round_} has no state; state.arrow must hold every index"
            )
    columns = [[sums.round], [sums.kind % 2], [sums.index], *([[sums.receiver]] if by_receiver else [])]
    order = order_of(columns)
    again = np.flatnonzero(equal_to_the_next(columns, order))
    if again.size:
        raise InputError(f"{path}: round {sums.round[order[again[0]]]} must hold each sum once")


def check_rounds(path: Path, rounds: Column, declared: Sequence[int], version: int) -> None:
    """Refuse rows of other rounds than those of the manifest, and in version 1 a round without rows."""
    start = 0
    ascending = np.array(sorted(declared))
    seen: set[int] = set()
    for chunk in rounds:
        found = distinct(chunk)
        strange = found[lookup(ascending, found) < 0]
        if strange.size:
            row = int(np.flatnonzero(chunk == strange[0])[0])
            raise InputError(
                f"{path} row {start + row}: round must be one of the manifest's rounds, got {strange[0]}"
            )
        seen.update(found.tolist())
        start += chunk.size
    missing = sorted(set(declared) - seen)
    if missing and version == 1:  # later, nobody may take part in a round
        raise InputError(
            f"{path} must have rows for every round of the manifest, none for round {missing[0]}"
        )


def check_index_ranges(path: Path, kinds: Column, index: Column, manifest: Manifest) -> None:
    """Refuse item indices from n_items on, and attribute indices from n_attributes on."""
    start = 0
    for kind, chunk in zip(kinds, index, strict=True):
        most = int(chunk.max(initial=-1))
        if most >= (manifest.n_items if not kind.any() else min(manifest.n_items, manifest.n_attributes)):
            limit = np.where(kind % 2 == ATTRIBUTE, manifest.n_attributes, manifest.n_items)
            bad = np.flatnonzero(chunk >= limit)
            if bad.size:
                row = int(bad[0])
                raise InputError(
                    f"{path} row {start + row}: index of kind {KINDS[kind[row]]} must be below "
                    f"{limit[row]} (manifest), got {chunk[row]}"
                )
        start += chunk.size


def _repetition(path: Path, columns: Sequence[Column], rule: str) -> InputError:
    """The rule, and the first row that breaks it."""
    order = order_of(columns)
    at = np.flatnonzero(equal_to_the_next(columns, order))
    again = order[at + 1]  # equal rows stay in their order, so the later one is second
    first = int(again.argmin())
    return InputError(f"{path} row {again[first]}: {rule}, it repeats row {order[at[first]]}")
