"""``messages.arrow``: what was sent, checked row by row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from victims.common.errors import InputError
from victims.transcript.adversaries import Sent
from victims.transcript.arrow import INT32_MAX, ColumnFile
from victims.transcript.columns import hidden_chunks, integer_chunks, kind_chunks, vector_chunks
from victims.transcript.kinds import ATTRIBUTE, ITEM, codes
from victims.transcript.manifest import Manifest
from victims.transcript.messages import Messages
from victims.transcript.neighbourhood import Told
from victims.transcript.parties import UNTOLD, party_chunks
from victims.transcript.row_checks import check_index_ranges, check_rounds
from victims.transcript.sort_keys import Column, order_of
from victims.transcript.state_table import without_other_kinds
from victims.transcript.told import read_told


class MessageTable(NamedTuple):
    """The rows of ``messages.arrow``."""

    uploads: Messages  # what clients sent, in the chunks of the file
    receiver: tuple[np.ndarray, ...]  # of the uploads; ``UNTOLD`` where ``deliveries.arrow`` says who
    sums: Sent  # decrypted sums, and what the item server sends
    item_server: Sent  # decrypted sums, and what the item server sends
    ciphertexts: tuple[pa.Array, ...]  # of the uploads; none where they are in the clear
    anonymous: Messages | None  # uploads whose sender is not told
    anonymous_receiver: tuple[np.ndarray, ...]
    other: dict[str, int]  # rows of each kind of role other
    told: dict[str, Told]  # those rows


def read_messages(whole: ColumnFile, manifest: Manifest) -> MessageTable:
    """Read and check every column; the gradients are passed over once."""
    rounds = integer_chunks(whole, "round", 0, INT32_MAX, ">= 0")
    if sum(chunk.size for chunk in rounds) == 0:
        raise InputError(f"{whole.path} must hold at least one row")
    check_rounds(whole.path, rounds, manifest.rounds, manifest.version)
    file, other = without_other_kinds(whole, manifest)
    rounds = rounds if file is whole else integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    sender, receiver = (
        tuple(party_chunks(file, name, manifest, null=manifest.version > 1))
        for name in ("sender", "receiver")
    )
    kinds = kind_chunks(file, codes(manifest.kinds))
    index = integer_chunks(file, "index", 0, INT32_MAX, ">= 0")
    check_index_ranges(file.path, kinds, index, manifest)
    masks = _masks(kinds, sender)
    uploaded = None if masks is None else [own | unsigned for own, unsigned in zip(*masks[:2], strict=True)]
    encrypted = _encrypted(file, uploaded)
    everything = Messages(
        tuple(rounds),
        sender,
        tuple(kinds),
        tuple(index),
        None if encrypted else tuple(vector_chunks(file, "gradient", manifest.factors)),
        _optional(file, "exponent", -INT32_MAX) if encrypted else None,
        _optional(file, "sequence", 0) if manifest.version > 1 else None,
        _references(file, manifest, uploaded) if manifest.version > 1 else None,
    )
    ciphertexts = tuple(file.columns("ciphertext")) if encrypted else ()
    told = read_told(whole, manifest) if other else {}
    if masks is None:
        nothing = _nothing(manifest)
        return MessageTable(everything, receiver, nothing, nothing, ciphertexts, None, (), other, told)
    own, unsigned, sums = masks
    item_server = manifest.parties.get("item_server", UNTOLD)
    of_item_server = [
        (kind == ITEM) & (person == item_server) & (person != UNTOLD)
        for kind, person in zip(kinds, sender, strict=True)
    ]
    return MessageTable(
        everything.rows(own),
        _kept(receiver, own),
        _read_sent(file, manifest, everything, receiver, sums),
        _read_sent(file, manifest, everything, receiver, of_item_server),
        tuple(chunk.filter(pa.array(mask)) for chunk, mask in zip(ciphertexts, own, strict=False)),
        everything.rows(unsigned),
        _kept(receiver, unsigned),
        other,
        told,
    )


def _masks(kinds: Column, sender: Column) -> tuple[list[np.ndarray], ...] | None:
    """Uploads of clients, uploads without a sender, sums, chunk by chunk; None where all are the first."""
    pairs = list(zip(kinds, sender, strict=True))
    if all(kind.max(initial=0) <= ATTRIBUTE and person.min(initial=0) >= 0 for kind, person in pairs):
        return None
    return (
        [(kind <= ATTRIBUTE) & (person >= 0) for kind, person in pairs],
        [(kind <= ATTRIBUTE) & (person == UNTOLD) for kind, person in pairs],
        [kind > ATTRIBUTE for kind in kinds],
    )


def _kept(column: Column, masks: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    chunks = zip(column, masks, strict=True)
    return tuple(chunk if mask.all() else chunk[mask] for chunk, mask in chunks)


def _optional(file: ColumnFile, name: str, low: int) -> tuple[np.ndarray, ...] | None:
    """A column of whole numbers that may be missing."""
    if not file.has(name):
        return None
    return tuple(integer_chunks(file, name, low, INT32_MAX, f"a whole number >= {low}"))


def _references(
    file: ColumnFile, manifest: Manifest, uploaded: list[np.ndarray] | None
) -> tuple[np.ndarray, ...] | None:
    """The factor that each uploaded row was computed at; 0 for other rows, which need none."""
    if not file.has("reference"):
        return None
    found = vector_chunks(file, "reference", manifest.factors, uploaded)
    out = []
    for number, vectors in enumerate(found):
        if uploaded is None or uploaded[number].all():
            out.append(vectors)
            continue
        out.append(np.zeros((uploaded[number].size, manifest.factors), vectors.dtype))
        out[-1][uploaded[number]] = vectors
    return tuple(out)


def _encrypted(file: ColumnFile, uploaded: list[np.ndarray] | None) -> bool:
    """Either all uploads are encrypted or none is; sums are in the clear."""
    if not any(column.null_count for column in file.columns("gradient")):
        return False
    start, first = 0, None
    for number, null in enumerate(hidden_chunks(file, "gradient")):
        sent = np.ones(null.size, bool) if uploaded is None else uploaded[number]
        if first is None and sent.any():
            first = bool(null[sent.argmax()])
        bad = np.flatnonzero(np.where(sent, null != first, null))
        if bad.size:
            row = int(bad[0])
            rule = "either every upload has a gradient or none has" if sent[row] else "a sum needs a gradient"
            raise InputError(f"{file.path} row {start + row}: {rule}")
        start += sent.size
    return bool(first)


def _read_sent(
    file: ColumnFile,
    manifest: Manifest,
    messages: Messages,
    receiver: Column,
    chosen: list[np.ndarray],
) -> Sent:
    """The chosen rows, which are no uploads."""

    def of_these(column: Column) -> np.ndarray:
        return np.concatenate([chunk[keep] for chunk, keep in zip(column, chosen, strict=True)])

    if not any(mask.any() for mask in chosen):
        return _nothing(manifest)
    chunks = vector_chunks(file, "gradient", manifest.factors, chosen)
    gradient = np.concatenate(chunks).astype(np.float64)
    columns = [
        of_these(column)
        for column in (messages.round, messages.sender, receiver, messages.kind, messages.index)
    ]
    order = order_of([[columns[key]] for key in (0, 3, 4)])  # rows come in any order
    return Sent(*(column[order] for column in (*columns, gradient)))


def _nothing(manifest: Manifest) -> Sent:
    empty = np.zeros(0, np.int32)
    return Sent(empty, empty, empty, empty, empty, np.zeros((0, manifest.factors)))
