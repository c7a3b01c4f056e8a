"""What each party sees in a round: a pure function of the run before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.protocols.base import Cipher, Holding, Network
from victims.protocols.network import SERVER, Sums
from victims.training import Run, each_message, formed_rows, sums_of
from victims.transcript.kinds import ITEM

ITEM_SERVER = -2  # of the parties


@dataclass(frozen=True)
class SentBatch:
    """Rows on their way, as ``TranscriptWriter.messages`` takes them."""

    sender: Int[np.ndarray, " rows"]
    kind: Int[np.ndarray, " rows"]
    index: Int[np.ndarray, " rows"]
    gradient: Float[np.ndarray, "rows factors"]
    # in place of the gradients; None for rows that stay in the clear
    ciphertext: Sequence[bytes | None] | None = None
    exponent: Int[np.ndarray, " rows"] | None = None  # what an encoding publishes beside a row
    sequence: Int[np.ndarray, " rows"] | None = None  # as of ``Rows``
    reference: Float[np.ndarray, "rows factors"] | None = None  # as of ``Rows``
    bias: Float[np.ndarray, " rows"] | None = None  # as of ``Rows``
    # the server, if nothing is said; None where the edges of the network say who
    receiver: int | None = SERVER


class Exchange(NamedTuple):
    """Everything that is sent in one round."""

    round: int
    items: Float[np.ndarray, "items factors"]  # what everybody knows
    attributes: Float[np.ndarray, "attributes factors"]  # what everybody knows
    ciphertext: list[bytes] | None  # in place of both, where the server does not know them
    # standard deviation of the noise in every upload about a row, where the server knows it
    noise_scale: Float[np.ndarray, "rows factors"] | None
    # uploads, what the item server sends, decrypted sums; formed while they are read, to bound memory
    batches: Iterator[SentBatch]
    sums: list[Sums]  # what somebody sees of encrypted rows
    bias: Float[np.ndarray, " rows"] | None = None  # what everybody adds to predictions
    # what single clients know; None where rows go to one server, and nobody knows more than everybody
    holdings: Iterator[Holding] | None = None


def exchange_of(
    run: Run,
    users: Int[np.ndarray, " users"],
    round_: int,
    on_received: bool = True,
    watched: Int[np.ndarray, " watched"] | None = None,
) -> Exchange:
    """What is sent in one round, as a function of the run before it."""
    watched = users if watched is None else watched
    network = run.network
    items, attributes = run.victim.broadcast(run.state)
    sealed = None
    if run.cipher is not None and run.can.blind_server:
        sealed = run.cipher.seal(np.concatenate([items, attributes]))
    sums = sums_of(run, round_, watched) if decrypts_sums(run) else []
    uploads = _uploads(run, network, users, round_, on_received, watched)
    batches = _numbered(chain(uploads, _item_server_rows(run), _decrypted(run.cipher, sums)))
    noise = _noise_scale(run, items, attributes, round_)
    bias = np.concatenate([run.state.biases.items, np.zeros(len(attributes))]) if run.can.has_biases else None
    holdings = None if network.edges is None else run.holdings(watched)
    return Exchange(round_, items, attributes, sealed, noise, batches, sums, bias, holdings)


def decrypts_sums(run: Run) -> bool:
    """Tell whether somebody decrypts the sums of encrypted rows for a server that cannot."""
    return run.cipher is not None and not run.can.blind_server


def _uploads(
    run: Run,
    network: Network,
    users: Int[np.ndarray, " users"],
    round_: int,
    on_received: bool,
    watched: Int[np.ndarray, " watched"],
) -> Iterator[SentBatch]:
    each = each_message(run, round_)
    for formed in formed_rows(run, users, round_, on_received=on_received):
        for receiver, rows in network.sent(formed, each, watched, run.seed):
            columns = vars(rows)
            batch = SentBatch(**columns, receiver=receiver)
            if run.cipher is not None:
                exponent = run.cipher.rules.exponents(rows.gradient)
                batch = replace(batch, ciphertext=run.cipher.seal(rows.gradient), exponent=exponent)
            yield batch


def _numbered(batches: Iterator[SentBatch]) -> Iterator[SentBatch]:
    """Where clients' rows have an order, those of other parties have one, too."""
    ordered = False
    for batch in batches:
        ordered |= batch.sequence is not None
        if ordered and batch.sequence is None:
            yield replace(batch, sequence=np.arange(batch.index.size, dtype=np.int32))
        else:
            yield batch


def _item_server_rows(run: Run) -> Iterator[SentBatch]:
    """What a third party sends about items, where the protocol has one that knows features."""
    if run.can.item_server_rows is None or not run.ratings.item_features.shape[1]:
        return
    rows = run.can.item_server_rows(run.state, run.ratings)
    index = np.arange(rows.shape[0])
    sender, kind = np.full(index.size, ITEM_SERVER), np.full(index.size, ITEM)
    yield _in_the_clear(run.cipher, sender, kind, index, rows)


def _decrypted(cipher: Cipher | None, seen: Sequence[Sums]) -> Iterator[SentBatch]:
    """What somebody sees of the sums of encrypted rows."""
    for sums in seen:
        row = np.flatnonzero(sums.released)
        kind, index = sums.shape.about(row)
        batch = _in_the_clear(cipher, sums.sender[row], kind, index, sums.values[row])
        yield replace(batch, receiver=sums.receiver)


def _in_the_clear(
    cipher: Cipher | None,
    sender: Int[np.ndarray, " rows"],
    kind: Int[np.ndarray, " rows"],
    index: Int[np.ndarray, " rows"],
    values: Float[np.ndarray, "rows factors"],
) -> SentBatch:
    """Rows that are not encrypted; where uploads are, their columns are there and empty."""
    if cipher is None:
        return SentBatch(sender, kind, index, values)
    exponent = None if cipher.rules.exponents(values[:0]) is None else np.zeros(index.size, np.int32)
    return SentBatch(sender, kind, index, values, [None] * index.size, exponent)


def _noise_scale(
    run: Run, items: np.ndarray, attributes: np.ndarray, round_: int
) -> Float[np.ndarray, "rows factors"] | None:
    """Standard deviation of the noise in every upload about each broadcast row, where the server knows it."""
    scales = [d.noise_scale(run.ratings, items.shape[1], round_, run.seed) for d in run.defenses]
    squares = [scale**2 for scale in scales if scale is not None]
    if not squares:
        return None
    return np.concatenate([np.sqrt(sum(squares)), np.zeros_like(attributes)])
