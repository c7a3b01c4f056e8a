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
from victims.transcript.manifest import Manifest
from victims.transcript.state_table import check_index_ranges, check_rounds
from victims.transcript.view import ATTRIBUTE, ITEM, KINDS, Messages


class MessageTable(NamedTuple):
    """The rows of ``messages.arrow``.

    Attributes
    ----------
    uploads : Messages
        What clients sent, in the chunks of the file.
    receiver : chunks of int32
        Of the uploads.
    sums, item_server : Sent
        Decrypted sums, and what the item server sends.
    ciphertexts : chunks of large binary
        Of the uploads; none where they are in the clear.
    """

    uploads: Messages
    receiver: tuple[np.ndarray, ...]
    sums: Sent
    item_server: Sent
    ciphertexts: tuple[pa.Array, ...]


def read_messages(file: ColumnFile, manifest: Manifest) -> MessageTable:
    """Read and check every column; the gradients are passed over once.

    Parameters
    ----------
    file : ColumnFile
        Rows in any order.
    manifest : Manifest

    Raises
    ------
    InputError
        If there is no row, or a column breaks a rule.
    """
    rounds = integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    if sum(chunk.size for chunk in rounds) == 0:
        raise InputError(f"{file.path} must hold at least one row")
    check_rounds(file.path, rounds, manifest)
    sender, receiver = (_parties(file, name, manifest) for name in ("sender", "receiver"))
    kinds = kind_chunks(file, KINDS)
    index = integer_chunks(file, "index", 0, INT32_MAX, ">= 0")
    check_index_ranges(file.path, kinds, index, manifest)
    uploaded = [(kind <= ATTRIBUTE) & (person >= 0) for kind, person in zip(kinds, sender, strict=True)]
    encrypted = _encrypted(file.path, uploaded, hidden_chunks(file, "gradient"))
    gradient = None if encrypted else tuple(vector_chunks(file, "gradient", manifest.factors))
    exponent = None
    if encrypted and file.has("exponent"):
        exponent = tuple(integer_chunks(file, "exponent", -INT32_MAX, INT32_MAX, "an integer"))
    everything = Messages(tuple(rounds), sender, tuple(kinds), tuple(index), gradient, exponent)
    sums = _read_sent(file, manifest, everything, receiver, [kind > ATTRIBUTE for kind in kinds])
    item_server = manifest.parties.get("item_server")
    of_item_server = [
        (kind == ITEM) & (person < 0) & (person == item_server)
        for kind, person in zip(kinds, sender, strict=True)
    ]
    from_item_server = _read_sent(file, manifest, everything, receiver, of_item_server)
    ciphertexts = tuple(file.columns("ciphertext")) if encrypted else ()
    if all(mask.all() for mask in uploaded):
        return MessageTable(everything, receiver, sums, from_item_server, ciphertexts)
    return MessageTable(
        everything.rows(uploaded),
        tuple(chunk[mask] for chunk, mask in zip(receiver, uploaded, strict=True)),
        sums,
        from_item_server,
        tuple(chunk.filter(pa.array(mask)) for chunk, mask in zip(ciphertexts, uploaded, strict=False)),
    )


def _parties(file: ColumnFile, name: str, manifest: Manifest) -> tuple[np.ndarray, ...]:
    """Clients of the manifest, or its other parties."""
    rule = f"a client below n_users = {manifest.n_users} or a party of the manifest"
    parties = [-1, *manifest.parties.values()]
    chunks = integer_chunks(file, name, min(parties), manifest.n_users - 1, rule)
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
