"""Transcripts on disk, format version 1: read memory-mapped and checked.

A transcript is a directory with ``manifest.json``, ``state.arrow`` (what was broadcast before the
uploads of each round) and ``messages.arrow`` (what was sent). What the clients kept private lies in
``NAME.truth.arrow`` beside it, never in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from victims.arrow import (
    INT32_MAX,
    ColumnFile,
    find_columns,
    integer_chunks,
    kind_chunks,
    open_columns,
    vector_chunks,
)
from victims.errors import InputError
from victims.manifest import Manifest
from victims.view import ATTRIBUTE, ITEM, KINDS, Broadcast, Messages, View

MANIFEST_BYTES = 64 << 20
ADVERSARIES = {
    "server": "receives every client's upload and knows what it broadcast",
    "eavesdropper": "reads every message on the wire and the broadcast",
    "item-server": "knows the broadcast item factors and receives no client's upload",
    "client:N": "client N: its own messages and the broadcast",
}


@dataclass(frozen=True)
class Transcript:
    """A checked recording. Attacks get a ``view`` of it, never the object itself."""

    path: Path
    manifest: Manifest
    broadcasts: dict[int, Broadcast]
    messages: Messages
    receiver: tuple[np.ndarray, ...]

    def view(self, adversary: str = "server") -> View:
        """Only what one party sees.

        Parameters
        ----------
        adversary : str
            One of ``ADVERSARIES``; ``client:3`` is client 3.

        Raises
        ------
        InputError
            If the party is unknown or was not recorded.
        """
        messages = self.messages
        uploaded = (
            (kind <= ATTRIBUTE) & (sender >= 0)
            for kind, sender in zip(messages.kind, messages.sender, strict=True)
        )
        keep = [a & b for a, b in zip(self._received(adversary), uploaded, strict=True)]
        if self.manifest.upload.zeros_if_unrated and messages.gradient is not None:
            # zeros in the clear say what they stand for
            keep = [k & (part != 0).any(axis=1) for k, part in zip(keep, messages.gradient, strict=True)]
        if not all(part.all() for part in keep):
            messages = Messages(
                *(
                    tuple(c[k] for c, k in zip(column, keep, strict=True))
                    for column in (messages.round, messages.sender, messages.kind, messages.index)
                ),
                gradient=messages.gradient
                and tuple(c[k] for c, k in zip(messages.gradient, keep, strict=True)),
            )
        return View(adversary, self.manifest, self.broadcasts, messages)

    def _received(self, adversary: str) -> list[np.ndarray]:
        recorded = self.manifest.adversary
        if recorded not in ("all", adversary):
            raise InputError(
                f"{self.path} holds what {recorded!r} saw, not what {adversary!r} saw; "
                f"use --adversary {recorded}"
            )
        if adversary == "eavesdropper":
            return [np.ones(part.size, bool) for part in self.receiver]
        if adversary.startswith("client:"):
            number = adversary.removeprefix("client:")
            if not number.isdigit() or int(number) >= self.manifest.n_users:
                raise InputError(f"adversary {adversary!r} must name a client below {self.manifest.n_users}")
            return [
                (receiver == int(number)) | (sender == int(number))
                for receiver, sender in zip(self.receiver, self.messages.sender, strict=True)
            ]
        defaults = {"server": -1, "item-server": -2}
        party = self.manifest.parties.get(
            adversary.replace("-", "_"), self.manifest.parties.get(adversary, defaults.get(adversary))
        )
        if party is None:
            raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {adversary!r}")
        return [receiver == party for receiver in self.receiver]


def open_transcript(path: Path | str) -> Transcript:
    """Open and check a transcript directory.

    Every column, type, range, null, non-finite number, repeated row and missing state is checked
    here, once; attacks rely on it.

    Raises
    ------
    InputError
        Naming file, row and rule.
    """
    path = Path(path)
    manifest = read_manifest(path)
    state = open_columns(find_columns(path, "state"))
    broadcasts = _read_state(state, manifest)
    file = open_columns(find_columns(path, "messages"))
    messages, receiver = _read_messages(file, manifest)
    _refuse_absurd_sizes(path, manifest, broadcasts, messages)
    _check_rows(file.path, manifest, broadcasts, messages)
    return Transcript(path, manifest, broadcasts, messages, receiver)


def read_manifest(path: Path) -> Manifest:
    """Read and check ``manifest.json`` of a transcript directory."""
    file = path / "manifest.json"
    if not file.is_file():
        raise InputError(f"{path} is not a transcript: it must contain manifest.json")
    if file.stat().st_size > MANIFEST_BYTES:
        raise InputError(f"{file} must be at most {MANIFEST_BYTES >> 20} MiB")
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not valid JSON: {error}") from None
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "manifest"
        got = str(first.get("input"))[:80]
        raise InputError(f"{file}: {where}: {first['msg']}, got {got}") from None


def _index_ranges(path: Path, kinds: list[np.ndarray], index: list[np.ndarray], manifest: Manifest) -> None:
    """Item indices below n_items, attribute indices below n_attributes."""
    start = 0
    for kind, chunk in zip(kinds, index, strict=True):
        limit = np.where(kind % 2 == ATTRIBUTE, manifest.n_attributes, manifest.n_items)
        bad = np.flatnonzero(chunk >= limit)
        if bad.size:
            row = int(bad[0])
            raise InputError(
                f"{path} row {start + row}: index of kind {KINDS[kind[row]]} must be below "
                f"{limit[row]} (manifest), got {chunk[row]}"
            )
        start += chunk.size


def _round_check(path: Path, rounds: list[np.ndarray], manifest: Manifest) -> None:
    start = 0
    known = np.array(sorted(manifest.rounds))
    seen: set[int] = set()
    for chunk in rounds:
        distinct = np.unique(chunk)
        strange = distinct[~np.isin(distinct, known)]
        if strange.size:
            row = int(np.flatnonzero(chunk == strange[0])[0])
            raise InputError(
                f"{path} row {start + row}: round must be one of the manifest's rounds, got {strange[0]}"
            )
        seen.update(distinct.tolist())
        start += chunk.size
    missing = sorted(set(manifest.rounds) - seen)
    if missing:
        raise InputError(
            f"{path} must have rows for every round of the manifest, none for round {missing[0]}"
        )


def _read_state(file: ColumnFile, manifest: Manifest) -> dict[int, Broadcast]:
    rounds = integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    _round_check(file.path, rounds, manifest)
    kinds = kind_chunks(file, KINDS[:2])
    index = integer_chunks(file, "index", 0, INT32_MAX, ">= 0")
    _index_ranges(file.path, kinds, index, manifest)
    factors = np.concatenate(vector_chunks(file, "factor", manifest.factors)).astype(np.float64)
    round_, kind, position = (np.concatenate(column) for column in (rounds, kinds, index))
    order = np.lexsort((position, kind, round_))
    round_, kind, position = round_[order], kind[order], position[order]
    repeated = (np.diff(round_) == 0) & (np.diff(kind.astype(np.int16)) == 0) & (np.diff(position) == 0)
    if repeated.any():
        row = int(order[1:][repeated].min())
        raise InputError(f"{file.path} row {row}: each round, kind and index must occur once")
    broadcasts = {}
    for number in sorted(manifest.rounds):
        here = slice(*np.searchsorted(round_, [number, number + 1]))
        ids, kind_here = position[here], kind[here]
        broadcasts[number] = Broadcast(
            ids[kind_here == ITEM], ids[kind_here == ATTRIBUTE], factors[order[here]]
        )
    return broadcasts


def _read_messages(file: ColumnFile, manifest: Manifest) -> tuple[Messages, tuple[np.ndarray, ...]]:
    rounds = integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    if sum(chunk.size for chunk in rounds) == 0:
        raise InputError(f"{file.path} must hold at least one row")
    _round_check(file.path, rounds, manifest)
    clients = f"a client below n_users = {manifest.n_users} or a party of the manifest"
    parties = [-1, *manifest.parties.values()]
    people = []
    for name in ("sender", "receiver"):
        chunks = integer_chunks(file, name, min(parties), manifest.n_users - 1, clients)
        start = 0
        for chunk in chunks:
            if chunk.min(initial=0) < 0:
                bad = np.flatnonzero((chunk < 0) & ~np.isin(chunk, parties))
                if bad.size:
                    row = int(bad[0])
                    raise InputError(
                        f"{file.path} row {start + row}: {name} must be {clients}, got {chunk[row]}"
                    )
            start += chunk.size
        people.append(chunks)
    kinds = kind_chunks(file, KINDS)
    index = integer_chunks(file, "index", 0, INT32_MAX, ">= 0")
    _index_ranges(file.path, kinds, index, manifest)
    gradient = None
    if not _encrypted(file):
        gradient = tuple(vector_chunks(file, "gradient", manifest.factors))
    messages = Messages(tuple(rounds), tuple(people[0]), tuple(kinds), tuple(index), gradient)
    return messages, tuple(people[1])


def _encrypted(file: ColumnFile) -> bool:
    """Every gradient is null and every row has a ciphertext instead."""
    columns = file.columns("gradient")
    if not file.has("ciphertext") or not all(c.null_count == len(c) for c in columns):
        return False
    start = 0
    for cipher in file.columns("ciphertext"):
        if cipher.null_count:
            row = int(np.flatnonzero(cipher.is_null().to_numpy(zero_copy_only=False))[0])
            raise InputError(f"{file.path} row {start + row}: needs a gradient or a ciphertext, has neither")
        start += len(cipher)
    return True


def _refuse_absurd_sizes(
    path: Path, manifest: Manifest, broadcasts: dict[int, Broadcast], messages: Messages
) -> None:
    """Declared sizes must be plausible beside the rows, or scores would be about nothing."""
    items = max(b.item_ids.size for b in broadcasts.values())
    attributes = max(b.attribute_ids.size for b in broadcasts.values())
    rows = messages.n_rows
    for name, value, seen, what in (
        ("n_items", manifest.n_items, items, "items in the state"),
        ("n_attributes", manifest.n_attributes, attributes, "attributes in the state"),
        ("n_users", manifest.n_users, rows, "uploaded rows"),
    ):
        limit = 1000 * seen + 1_000_000
        if value > limit:
            raise InputError(
                f"{path / 'manifest.json'}: {name} must be at most {limit:,} with {seen:,} {what}, "
                f"got {value:,}; correct the manifest"
            )


def _check_rows(path: Path, manifest: Manifest, broadcasts: dict[int, Broadcast], messages: Messages) -> None:
    """State for every index used; no (round, sender, kind, index) twice."""
    ascending = True
    previous = None
    for chunk, start in enumerate(messages.offsets[:-1]):
        columns = [
            column[chunk] for column in (messages.round, messages.sender, messages.kind, messages.index)
        ]
        for low in range(0, columns[0].size, 1 << 20):
            part = [column[low : low + (1 << 20)] for column in columns]
            _check_state(path, part, broadcasts, int(start) + low)
            if ascending:
                ascending = _strictly_ascending(part, previous)
                previous = [column[-1:] for column in part]
    if not ascending:
        _refuse_repeats(path, messages)


def _check_state(path: Path, part: list[np.ndarray], broadcasts: dict[int, Broadcast], start: int) -> None:
    round_, _, kind, index = part
    for number in np.unique(round_):
        here = slice(None) if (round_ == number).all() else np.flatnonzero(round_ == number)
        missing = np.flatnonzero(broadcasts[int(number)].positions(kind[here] % 2, index[here]) < 0)
        if missing.size:
            row = int(np.arange(round_.size)[here][missing[0]])
            raise InputError(
                f"{path} row {start + row}: {KINDS[kind[row]]} {index[row]} has no state in "
                f"round {number}; state.arrow must hold every index used"
            )


def _strictly_ascending(part: list[np.ndarray], previous: list[np.ndarray] | None) -> bool:
    """(round, sender, kind, index) ascends from row to row, so no row repeats another."""
    if previous is not None:
        part = [np.concatenate([a, b]) for a, b in zip(previous, part, strict=True)]
    larger = np.zeros(part[0].size - 1, bool)
    equal = ~larger
    for column in part:
        larger |= equal & (column[1:] > column[:-1])
        equal &= column[1:] == column[:-1]
    return bool(larger.all())


def _refuse_repeats(path: Path, messages: Messages) -> None:
    columns = [
        np.concatenate(column) for column in (messages.index, messages.kind, messages.sender, messages.round)
    ]
    order = np.lexsort(columns)
    same = np.ones(order.size - 1, bool)
    for column in columns:
        sorted_column = column[order]
        same &= sorted_column[1:] == sorted_column[:-1]
    if same.any():
        row = int(np.minimum(order[1:], order[:-1])[same].min())
        again = int(np.maximum(order[1:], order[:-1])[same].min())
        raise InputError(
            f"{path} row {again}: each round, sender, kind and index must occur once, it repeats row {row}"
        )
