"""``messages.arrow``: what was sent, checked row by row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
from victims.transcript.state_table import check_index_ranges, check_rounds, without_other_kinds

NOBODY = -INT32_MAX - 1  # in place of a null: a sender who is not told, receivers who are those of the graph


class MessageTable(NamedTuple):
    """The rows of ``messages.arrow``.

    Attributes
    ----------
    uploads : Messages
        What clients sent, in the chunks of the file.
    receiver : chunks of int32
        Of the uploads; ``NOBODY`` where ``deliveries.arrow`` says who.
    sums, item_server : Sent
        Decrypted sums, and what the item server sends.
    ciphertexts : chunks of large binary
        Of the uploads; none where they are in the clear.
    anonymous : Messages
        Uploads whose sender is not told.
    anonymous_receiver : chunks of int32
    other : dict of str to int
        Rows of each kind that no attack reads.
    """

    uploads: Messages
    receiver: tuple[np.ndarray, ...]
    sums: Sent
    item_server: Sent
    ciphertexts: tuple[pa.Array, ...]
    anonymous: Messages
    anonymous_receiver: tuple[np.ndarray, ...]
    other: dict[str, int]


def read_messages(whole: ColumnFile, manifest: Manifest) -> MessageTable:
    """Read and check every column; the gradients are passed over once.

    Parameters
    ----------
    whole : ColumnFile
        Rows in any order.
    manifest : Manifest

    Raises
    ------
    InputError
        If there is no row, or a column breaks a rule.
    """
    rounds = integer_chunks(whole, "round", 0, INT32_MAX, ">= 0")
    if sum(chunk.size for chunk in rounds) == 0:
        raise InputError(f"{whole.path} must hold at least one row")
    check_rounds(whole.path, rounds, manifest)
    file, other = without_other_kinds(whole, manifest)
    rounds = rounds if file is whole else integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    sender, receiver = (_parties(file, name, manifest) for name in ("sender", "receiver"))
    kinds = kind_chunks(file, codes(manifest.kinds))
    index = integer_chunks(file, "index", 0, INT32_MAX, ">= 0")
    check_index_ranges(file.path, kinds, index, manifest)
    of_client = [(kind <= ATTRIBUTE) & (person >= 0) for kind, person in zip(kinds, sender, strict=True)]
    unsigned = [(kind <= ATTRIBUTE) & (person == NOBODY) for kind, person in zip(kinds, sender, strict=True)]
    uploaded = [a | b for a, b in zip(of_client, unsigned, strict=True)]
    encrypted = _encrypted(file.path, uploaded, hidden_chunks(file, "gradient"))
    gradient = None if encrypted else tuple(vector_chunks(file, "gradient", manifest.factors))
    everything = Messages(
        tuple(rounds),
        sender,
        tuple(kinds),
        tuple(index),
        gradient,
        _optional(file, "exponent", -INT32_MAX) if encrypted else None,
        _optional(file, "sequence", 0) if manifest.version > 1 else None,
        _references(file, manifest, uploaded) if manifest.version > 1 else None,
    )
    sums = _read_sent(file, manifest, everything, receiver, [kind > ATTRIBUTE for kind in kinds])
    item_server = manifest.parties.get("item_server")
    of_item_server = [
        (kind == ITEM) & (person < 0) & (person == item_server)
        for kind, person in zip(kinds, sender, strict=True)
    ]
    from_item_server = _read_sent(file, manifest, everything, receiver, of_item_server)
    ciphertexts = tuple(file.columns("ciphertext")) if encrypted else ()
    return MessageTable(
        everything if _all(of_client) else everything.rows(of_client),
        _kept(receiver, of_client),
        sums,
        from_item_server,
        tuple(chunk.filter(pa.array(mask)) for chunk, mask in zip(ciphertexts, of_client, strict=False)),
        everything.rows(unsigned),
        _kept(receiver, unsigned),
        other,
    )


def _all(masks: list[np.ndarray]) -> bool:
    return all(bool(mask.all()) for mask in masks)


def _kept(column: tuple[np.ndarray, ...], masks: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    chunks = zip(column, masks, strict=True)
    return tuple(chunk if mask.all() else chunk[mask] for chunk, mask in chunks)


def _optional(file: ColumnFile, name: str, low: int) -> tuple[np.ndarray, ...] | None:
    """A column of whole numbers that may be missing."""
    if not file.has(name):
        return None
    return tuple(integer_chunks(file, name, low, INT32_MAX, f"a whole number >= {low}"))


def _references(
    file: ColumnFile, manifest: Manifest, uploaded: list[np.ndarray]
) -> tuple[np.ndarray, ...] | None:
    """The factor that each uploaded row was computed at; 0 for other rows, which need none."""
    if not file.has("reference"):
        return None
    found = vector_chunks(file, "reference", manifest.factors, uploaded)
    if _all(uploaded):
        return tuple(found)
    out = []
    for mask, vectors in zip(uploaded, found, strict=True):
        out.append(np.zeros((mask.size, manifest.factors), vectors.dtype))
        out[-1][mask] = vectors
    return tuple(out)


def _parties(file: ColumnFile, name: str, manifest: Manifest) -> tuple[np.ndarray, ...]:
    """Clients of the manifest, or its other parties."""
    rule = f"a client below n_users = {manifest.n_users} or a party of the manifest"
    parties = [-1, *manifest.parties.values()]
    null = NOBODY if manifest.version > 1 else None
    parties += [] if null is None else [null]
    chunks = integer_chunks(file, name, min(parties), manifest.n_users - 1, rule, null)
    start = 0
    for chunk in chunks:
        if chunk.min(initial=0) < 0:
            bad = np.flatnonzero((chunk < 0) & ~np.isin(chunk, parties))
            if bad.size:
                row = int(bad[0])
                raise InputError(f"{file.path} row {start + row}: {name} must be {rule}, got {chunk[row]}")
        start += chunk.size
    return tuple(chunks)


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
    if any(mask.any() for mask in chosen):
        chunks = vector_chunks(file, "gradient", manifest.factors, chosen)
        gradient = np.concatenate(chunks).astype(np.float64)
    columns = [
        of_these(column)
        for column in (messages.round, messages.sender, receiver, messages.kind, messages.index)
    ]
    order = np.lexsort([columns[key] for key in (4, 3, 0)])  # rows come in any order
    return Sent(*(column[order] for column in (*columns, gradient)))
