"""Transcripts on disk, format version 1: read memory-mapped and checked.

A transcript is a directory with ``manifest.json``, ``state.arrow`` (what was broadcast before the
uploads of each round) and ``messages.arrow`` (what was sent). What the clients kept private lies in
``NAME.truth.arrow`` beside it, never in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int
from pydantic import ValidationError

from victims.common.errors import InputError
from victims.common.limits import refuse_absurd_sizes, refuse_absurd_table, scanned
from victims.transcript.arrow import (
    INT32_MAX,
    ColumnFile,
    find_columns,
    hidden_chunks,
    integer_chunks,
    kind_chunks,
    open_columns,
    vector_chunks,
)
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM, KINDS, Broadcast, Messages, Sums, View
from victims.transcript.writer import key_path

MANIFEST_BYTES = 64 << 20
ADVERSARIES = {
    "server": "receives every client's upload, and decrypted sums, and knows what it broadcast",
    "server+client": "the server together with one client, whose key opens whatever is encrypted",
    "eavesdropper": "reads every message on the wire and the broadcast",
    "decrypter": "the first client who decrypts sums: those that it decrypts, and the broadcast",
    "item-server": "knows the broadcast, which tells sums of uploads, and its own part of the server's step",
    "client:N": "client N: its own messages and the broadcast, which tells sums of uploads",
}
Opener = Callable[[Sequence[bytes]], Float[np.ndarray, "rows factors"]]


@dataclass(frozen=True)
class Sent:
    """Rows in the clear that are no client's upload, and who sent and received them, (n_rows, ...) each."""

    round: Int[np.ndarray, " rows"]
    sender: Int[np.ndarray, " rows"]
    receiver: Int[np.ndarray, " rows"]
    kind: Int[np.ndarray, " rows"]
    index: Int[np.ndarray, " rows"]
    gradient: Float[np.ndarray, "rows factors"]


class Sealed(NamedTuple):
    """Ciphertexts, (n_rows,) of large binary: of the uploads, in their chunks, and of the state."""

    uploads: tuple[pa.Array, ...]
    state: Mapping[int, pa.Array]


@dataclass(frozen=True)
class Transcript:
    """A checked recording. Attacks get a ``view`` of it, never the object itself.

    Attributes
    ----------
    path : Path
    manifest : Manifest
    broadcasts : mapping of round to Broadcast
        Factors are NaN where they are encrypted.
    messages : Messages
        What clients uploaded.
    receiver : chunks of int32
    sums : Sent
        Decrypted ones.
    item_server : Sent
        What the item server sends about items.
    sealed : Sealed
        Empty where nothing is encrypted.
    """

    path: Path
    manifest: Manifest
    broadcasts: dict[int, Broadcast]
    messages: Messages
    receiver: tuple[np.ndarray, ...]
    sums: Sent
    item_server: Sent
    sealed: Sealed

    def __repr__(self) -> str:
        """One line: what was recorded, and how much of it."""
        about = self.manifest
        return (
            f"Transcript({str(self.path)!r}, {about.protocol} {about.update}/{about.weighting}, "
            f"rounds={about.rounds!s:.60}, users={about.n_users}, items={about.n_items}, "
            f"uploaded rows={self.messages.n_rows})"
        )

    def view(self, adversary: str = "server", opener: Opener | None = None) -> View:
        """Only what one party sees.

        Parameters
        ----------
        adversary : str
            One of ``ADVERSARIES``; ``client:3`` is client 3.
        opener : callable, optional
            Turns ciphertexts into rows; used for parties who hold the clients' key.

        Raises
        ------
        InputError
            If the party is unknown or was not recorded, or holds a key that is not given.
        """
        party = self._party(adversary)
        messages = self._uploads(party)
        broadcasts = dict(self.broadcasts)
        if self.sealed.state:
            broadcasts = self._opened_state(opener) if party.key else {}
        if messages.gradient is None and party.key and messages.n_rows:
            gradient = _opened(self._own(self.sealed.uploads, party), opener, self.path)
            messages = replace(messages, gradient=gradient)
        if self.manifest.upload.zeros_if_unrated and messages.gradient is not None:
            # zeros in the clear say what they stand for
            keep = [(part != 0).any(axis=1) for part in messages.gradient]
            messages = messages if all(part.all() for part in keep) else messages.rows(keep)
        sums, item_server = (_seen_by(party, rows) for rows in (self.sums, self.item_server))
        return View(adversary, self.manifest, broadcasts, messages, sums, item_server)

    def _uploads(self, party: _Party) -> Messages:
        keep = self._received(party)
        return self.messages if all(part.all() for part in keep) else self.messages.rows(keep)

    def _own(self, column: tuple[pa.Array, ...], party: _Party) -> list[pa.Array]:
        return [part.filter(pa.array(k)) for part, k in zip(column, self._received(party), strict=True)]

    def _opened_state(self, opener: Opener | None) -> dict[int, Broadcast]:
        out = {}
        for number, broadcast in self.broadcasts.items():
            (factors,) = _opened([self.sealed.state[number]], opener, self.path)
            out[number] = replace(broadcast, factors=factors)
        return out

    def _party(self, adversary: str) -> _Party:
        """Who an adversary is.

        Raises
        ------
        InputError
            If nobody, or somebody who was not recorded.
        """
        recorded = self.manifest.adversary
        if recorded not in ("all", adversary):
            raise InputError(
                f"{self.path} holds what {recorded!r} saw, not what {adversary!r} saw; "
                f"use --adversary {recorded}"
            )
        if adversary == "eavesdropper":
            return _Party(-1, everything=True)
        if adversary == "decrypter":
            if self.sums.sender.size == 0:
                raise InputError("adversary 'decrypter' needs decrypted sums, and nobody decrypts here")
            return _Party(int(self.sums.sender.min()), key=True)
        if adversary.startswith("client:"):
            number = adversary.removeprefix("client:")
            if not number.isdigit() or int(number) >= self.manifest.n_users:
                raise InputError(f"adversary {adversary!r} must name a client below {self.manifest.n_users}")
            return _Party(int(number), key=True)
        with_key = adversary == "server+client"
        name = "server" if with_key else adversary
        defaults = {"server": -1, "item-server": -2}
        party = self.manifest.parties.get(
            name.replace("-", "_"), self.manifest.parties.get(name, defaults.get(name))
        )
        if party is None:
            raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {adversary!r}")
        return _Party(party, key=with_key)

    def _received(self, party: _Party) -> list[np.ndarray]:
        """Which uploads a party sent or received, chunk by chunk."""
        if party.everything:
            return [np.ones(part.size, bool) for part in self.receiver]
        return [
            (receiver == party.number) | (sender == party.number)
            for receiver, sender in zip(self.receiver, self.messages.sender, strict=True)
        ]


class _Party(NamedTuple):
    """A number of the format, whether it reads every message, and whether it holds the clients' key."""

    number: int
    everything: bool = False
    key: bool = False


def _seen_by(party: _Party, rows: Sent) -> dict[int, Sums]:
    """Those that a party sent or received, by round."""
    seen = np.full(rows.round.size, party.everything)
    seen |= (rows.receiver == party.number) | (rows.sender == party.number)
    out = {}
    for number in np.unique(rows.round[seen]).tolist():
        here = seen & (rows.round == number)
        out[number] = Sums((rows.kind[here] % 2).astype(np.int8), rows.index[here], rows.gradient[here])
    return out


def _opened(column: list[pa.Array], opener: Opener | None, path: Path) -> tuple[np.ndarray, ...]:
    """Ciphertexts, chunk by chunk, as rows in the clear."""
    if opener is None:
        raise InputError(
            f"{path} is encrypted and this adversary holds the clients' key; "
            f"put the key file {key_path(path).name} beside the recording"
        )
    opened = tuple(opener(part.to_pylist()) for part in column)
    if any(scanned(part)[0] is not None for part in opened):
        raise InputError(
            f"{path} must hold numbers of a plausible size once it is decrypted; use its own key"
        )
    return opened


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
    broadcasts, sealed_state = _read_state(state, manifest)
    file = open_columns(find_columns(path, "messages"))
    messages, receiver, sums, item_server, sealed = _read_messages(file, manifest)
    _refuse_absurd_sizes(path, manifest, broadcasts, messages)
    _check_rows(file.path, manifest, broadcasts, messages)
    for rows in (sums, item_server):
        _check_sums(file.path, rows, broadcasts)
    hidden = Sealed(sealed, sealed_state)
    return Transcript(path, manifest, broadcasts, messages, receiver, sums, item_server, hidden)


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


def _read_state(file: ColumnFile, manifest: Manifest) -> tuple[dict[int, Broadcast], dict[int, pa.Array]]:
    rounds = integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    _round_check(file.path, rounds, manifest)
    kinds = kind_chunks(file, KINDS[:2])
    index = integer_chunks(file, "index", 0, INT32_MAX, ">= 0")
    _index_ranges(file.path, kinds, index, manifest)
    round_, kind, position = (np.concatenate(column) for column in (rounds, kinds, index))
    hidden = np.concatenate(hidden_chunks(file, "factor"))
    if hidden.any() and not hidden.all():
        row = int(np.flatnonzero(hidden != hidden[0])[0])
        raise InputError(f"{file.path} row {row}: either every row has a factor or none has, got both")
    order = np.lexsort((position, kind, round_))
    if hidden.any():
        factors = np.broadcast_to(np.nan, (round_.size, manifest.factors))
        ciphertext = pa.concat_arrays(file.columns("ciphertext")).take(pa.array(order))
    else:
        factors = np.concatenate(vector_chunks(file, "factor", manifest.factors)).astype(np.float64)
    round_, kind, position = round_[order], kind[order], position[order]
    repeated = (np.diff(round_) == 0) & (np.diff(kind.astype(np.int16)) == 0) & (np.diff(position) == 0)
    if repeated.any():
        row = int(order[1:][repeated].min())
        raise InputError(f"{file.path} row {row}: each round, kind and index must occur once")
    noise = None
    if file.has("noise_scale"):
        noise = np.concatenate(vector_chunks(file, "noise_scale", manifest.factors)).astype(np.float64)
        if (noise < 0).any():
            row = int(np.flatnonzero((noise < 0).any(axis=1))[0])
            raise InputError(f"{file.path} row {row}: noise_scale must be >= 0, got {noise[row].min():g}")
    broadcasts, sealed = {}, {}
    for number in sorted(manifest.rounds):
        here = slice(*np.searchsorted(round_, [number, number + 1]))
        ids, kind_here = position[here], kind[here]
        broadcasts[number] = Broadcast(
            ids[kind_here == ITEM],
            ids[kind_here == ATTRIBUTE],
            factors[order[here]],
            None if noise is None else noise[order[here]],
        )
        if hidden.any():
            sealed[number] = ciphertext[here]
    return broadcasts, sealed


def _read_messages(
    file: ColumnFile, manifest: Manifest
) -> tuple[Messages, tuple[np.ndarray, ...], Sent, Sent, tuple[pa.Array, ...]]:
    """Uploads, their receivers, decrypted sums, the item server's rows, and the uploads' ciphertexts."""
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
    uploaded = [(kind <= ATTRIBUTE) & (sender >= 0) for kind, sender in zip(kinds, people[0], strict=True)]
    hidden = hidden_chunks(file, "gradient")
    encrypted = _encrypted(file.path, uploaded, hidden)
    gradient = None if encrypted else tuple(vector_chunks(file, "gradient", manifest.factors))
    exponent = None
    if encrypted and file.has("exponent"):
        exponent = tuple(integer_chunks(file, "exponent", -INT32_MAX, INT32_MAX, "an integer"))
    receiver = tuple(people[1])
    messages = Messages(tuple(rounds), tuple(people[0]), tuple(kinds), tuple(index), gradient, exponent)
    item_server = manifest.parties.get("item_server")
    of_item_server = [
        (kind == ITEM) & (sender < 0) & (sender == item_server)
        for kind, sender in zip(kinds, people[0], strict=True)
    ]
    sums = _read_sent(file, manifest, messages, receiver, [kind > ATTRIBUTE for kind in kinds])
    from_item_server = _read_sent(file, manifest, messages, receiver, of_item_server)
    sealed = tuple(file.columns("ciphertext")) if encrypted else ()
    if not all(part.all() for part in uploaded):
        messages = messages.rows(uploaded)
        receiver = tuple(part[keep] for part, keep in zip(receiver, uploaded, strict=True))
        sealed = tuple(part.filter(pa.array(keep)) for part, keep in zip(sealed, uploaded, strict=False))
    return messages, receiver, sums, from_item_server, sealed


def _encrypted(path: Path, uploaded: list[np.ndarray], hidden: list[np.ndarray]) -> bool:
    """Either all uploads are encrypted or none is; sums are in the clear."""
    start, first = 0, None
    for sent, null in zip(uploaded, hidden, strict=True):
        if first is None and sent.any():
            first = bool(null[sent.argmax()])
        bad = np.flatnonzero(np.where(sent, null != first, null))
        if bad.size:
            row = int(bad[0])
            rule = "either every upload has a gradient or none has" if sent[row] else "a sum needs a gradient"
            raise InputError(f"{path} row {start + row}: {rule}")
        start += sent.size
    return bool(first)


def _read_sent(
    file: ColumnFile,
    manifest: Manifest,
    messages: Messages,
    receiver: tuple[np.ndarray, ...],
    chosen: list[np.ndarray],
) -> Sent:
    """The chosen rows, which are no uploads."""

    def of_these(column: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([chunk[keep] for chunk, keep in zip(column, chosen, strict=True)])

    gradient = np.zeros((0, manifest.factors))
    if any(part.any() for part in chosen):
        chunks = vector_chunks(file, "gradient", manifest.factors, chosen)
        gradient = np.concatenate(chunks).astype(np.float64)
    columns = [
        of_these(c) for c in (messages.round, messages.sender, receiver, messages.kind, messages.index)
    ]
    order = np.lexsort([columns[column] for column in (4, 3, 0)])  # rows come in any order
    return Sent(*(column[order] for column in (*columns, gradient)))


def _refuse_absurd_sizes(
    path: Path, manifest: Manifest, broadcasts: dict[int, Broadcast], messages: Messages
) -> None:
    """Declared sizes must be plausible beside the rows, or scores would be about nothing."""
    items = max(b.item_ids.size for b in broadcasts.values())
    attributes = max(b.attribute_ids.size for b in broadcasts.values())
    file = path / "manifest.json"
    seen = {
        "n_items": (items, "items in the state"),
        "n_attributes": (attributes, "attributes in the state"),
        "n_users": (messages.n_rows, "uploaded rows"),
    }
    refuse_absurd_sizes(file, {name: getattr(manifest, name) for name in seen}, seen)
    senders = min(manifest.n_users, messages.n_rows)
    refuse_absurd_table(file, senders, manifest.n_attributes, messages.n_rows)


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


def _check_sums(path: Path, sums: Sent, broadcasts: dict[int, Broadcast]) -> None:
    """State for every sum; no (round, kind, index) twice."""
    for number in np.unique(sums.round).tolist():
        here = sums.round == number
        kind, index = sums.kind[here] % 2, sums.index[here]
        if (broadcasts[number].positions(kind, index) < 0).any():
            raise InputError(
                f"{path}: a sum of round {number} has no state; state.arrow must hold every index"
            )
        if np.unique(np.stack([kind, index]), axis=1).shape[1] < index.size:
            raise InputError(f"{path}: round {number} must hold each sum once")


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
