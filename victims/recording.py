"""Record a victim: what each party sees, a pure function of the run before it, round by round to disk."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from pydantic import ValidationError

from victims.common.declarations import first_complaint
from victims.common.errors import InputError
from victims.common.files import PRIVATE, replacing
from victims.common.limits import Implausible, diverged
from victims.data.ratings import Ratings
from victims.protocols.base import Cipher, Defense, Holding, Network, SetUp, Victim
from victims.protocols.network import SERVER, Edges, Sums
from victims.training import Run, as_read, each_message, formed_rows, start, sums_of
from victims.transcript.beside import factors_path, key_path, truth_path, write_key, write_truth
from victims.transcript.columns import FACTORS
from victims.transcript.kinds import ATTRIBUTE, INT32_MAX, ITEM, ITEM_BIAS
from victims.transcript.manifest import Manifest
from victims.transcript.writer import Table, TranscriptWriter

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
    shared: Iterator[SetUp] = iter(())  # about parameters that all share, beside the item factors


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
    if run.cipher is not None and run.blind:
        sealed = run.cipher.seal(np.concatenate([items, attributes]))
    sums = sums_of(run, round_, watched) if decrypts_sums(run) else []
    uploads = _uploads(run, network, users, round_, on_received, watched)
    batches = _numbered(chain(uploads, _item_server_rows(run), _decrypted(run.cipher, sums)))
    noise = _noise_scale(run, items, attributes, round_)
    bias = np.concatenate([run.state.biases.items, np.zeros(len(attributes))]) if run.can.has_biases else None
    holdings = None if network.edges is None else run.holdings(watched)
    shared = iter(()) if run.can.shared_rows is None else run.can.shared_rows(run.state, run.ratings, users)
    return Exchange(round_, items, attributes, sealed, noise, batches, sums, bias, holdings, shared)


def decrypts_sums(run: Run) -> bool:
    """Tell whether somebody opens the sums of encrypted rows for the server, or masks cancel in them."""
    return run.cipher is not None and not run.blind


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


def record(
    victim: Victim,
    ratings: Ratings,
    path: Path,
    *,
    rounds: Sequence[int],
    users: Sequence[int] | np.ndarray | None = None,
    defenses: Sequence[Defense] = (),
    train_on_received: bool = True,
    watched: Sequence[int] | np.ndarray | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Run a victim up to the last of ``rounds`` and write the transcript ``path`` and its truth."""
    kept_rounds, kept_users = _wanted_rounds(rounds), _wanted_users(users, ratings.n_users)
    for beside in (truth_path(path), factors_path(path), key_path(path)):
        if beside.exists():
            raise InputError(f"{beside} exists; choose another name or remove it first")
    kept_watched = kept_users if watched is None else _wanted_users(watched, ratings.n_users)
    ratings = as_read(victim, ratings)
    run = start(victim, ratings, defenses, seed)
    if decrypts_sums(run) and kept_users.size < ratings.n_users:
        raise InputError(
            f"users must be all {ratings.n_users} where sums are decrypted, for they are sums over all "
            f"clients; got {kept_users.size}"
        )
    manifest, last = _manifest_of(run, kept_rounds), kept_rounds[-1]
    with (
        _beside(path, run.cipher) as (truth, factors, key),
        _spooled(factors) as kept,
        TranscriptWriter(path, manifest) as writer,
    ):
        write_truth(truth, *truth_columns(ratings, kept_users))
        if run.cipher is not None and run.cipher.key():
            write_key(key, run.cipher.key())
        graphs = GraphsWritten(writer, kept_users)
        for round_ in range(last + 1):
            sums: list[Sums] = []
            if round_ in kept_rounds:
                graphs.add(round_, run.network.edges)
                exchange = exchange_of(run, kept_users, round_, train_on_received, kept_watched)
                try:
                    write_exchange(writer, exchange)
                except Implausible as error:  # rows are products of factors, and so too large before these
                    raise diverged(manifest.protocol, round_, "the learning rates") from error
                sums = exchange.sums
                own = np.asarray(run.user_factors(round_), np.float64)[kept_users]
                kept.add(
                    kept_users.size, {"user": kept_users.astype(np.int32), "round": round_, "factor": own}
                )
            if round_ == kept_rounds[0]:
                _write_set_up(writer, run, round_)
            if round_ < last:
                run = run.trained(round_, sums, train_on_received)
                if run.stopped:
                    raise InputError(
                        f"the training was over after round {round_}, by the victim's stop_gradient; "
                        f"rounds must be at most {round_}, got {last}"
                    )
            progress(round_ + 1, last + 1)
        graphs.end()


def write_exchange(writer: TranscriptWriter, exchange: Exchange) -> None:
    """Append one round to a transcript."""
    writer.state(
        exchange.round,
        exchange.items,
        exchange.attributes,
        exchange.ciphertext,
        exchange.noise_scale,
        exchange.bias,
        holders=exchange.holdings is not None,
    )
    for holding in exchange.holdings or ():
        writer.holding(exchange.round, holding.holder, holding.index, holding.factors, holding.kind)
    for batch in exchange.batches:
        writer.messages(
            exchange.round,
            batch.sender,
            batch.kind,
            batch.index,
            batch.gradient,
            batch.receiver,
            ciphertext=batch.ciphertext,
            exponent=batch.exponent,
            sequence=batch.sequence,
            reference=batch.reference,
        )
        if batch.bias is not None:
            sent = batch.kind == ITEM
            columns = (column[sent] for column in (batch.index, batch.bias))
            writer.set_up(exchange.round, ITEM_BIAS, batch.sender[sent], SERVER, *columns)
    for sent in exchange.shared:
        writer.set_up(exchange.round, sent.kind, sent.sender, sent.receiver, sent.index, sent.value)


def truth_columns(
    ratings: Ratings, users: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """User, kind, index and value of the ratings that exist and of all attribute columns."""
    kept = np.isin(np.arange(ratings.n_users), users)
    mine, n_attributes = np.repeat(kept, np.diff(ratings.indptr)), ratings.n_attributes
    # as narrow as in the file: of millions of ratings wider copies are most of what a recording takes
    user = np.concatenate([ratings.users[mine], np.repeat(users.astype(np.int32), n_attributes)])
    kind = np.repeat(np.array([ITEM, ATTRIBUTE], np.int8), [mine.sum(), users.size * n_attributes])
    index = np.concatenate(
        [ratings.items[mine], np.tile(np.arange(n_attributes, dtype=np.int32), users.size)]
    )
    value = np.concatenate([ratings.values[mine], ratings.attributes[users].ravel()])
    return user, kind, index, value


def _wanted_rounds(rounds: Sequence[int]) -> list[int]:
    try:
        wanted = sorted({operator.index(round_) for round_ in rounds})
    except TypeError:
        wanted = []
    if not wanted or wanted[0] < 0:
        raise InputError(f"rounds must be a non-empty list of numbers >= 0, got {rounds!r:.80}; name one")
    return wanted


def _wanted_users(users: Sequence[int] | np.ndarray | None, n_users: int) -> Int[np.ndarray, " users"]:
    wanted = np.arange(n_users) if users is None else np.unique(np.asarray(users))
    if wanted.size == 0 or wanted.dtype.kind not in "iu" or wanted[0] < 0 or wanted[-1] >= n_users:
        raise InputError(f"users must be between 0 and {n_users - 1}, got {wanted}; name one of the clients")
    return wanted


def _manifest_of(run: Run, rounds: list[int]) -> Manifest:
    entries: list[dict[str, Any]] = [defense.public() for defense in run.defenses]
    if run.cipher is not None:
        entries[-1] |= run.cipher.public()
    return manifest_of(run.victim, run.ratings, rounds).model_copy(update={"defenses": entries})


def manifest_of(victim: Victim, ratings: Ratings, rounds: list[int]) -> Manifest:
    """What a recording of a victim declares."""
    try:
        return victim.manifest(ratings, rounds)
    except ValidationError as error:
        wrong = first_complaint(error)
        raise InputError(f"these hyper-parameters cannot be recorded: {wrong}; choose others") from error


@contextmanager
def _beside(path: Path, cipher: Cipher | None) -> Iterator[tuple[Path, Path, Path]]:
    """Names to write truth, factors and, under encryption, the key to; they appear after the recording."""
    with ExitStack() as stack:
        truth, factors = (
            stack.enter_context(replacing(beside, PRIVATE))
            for beside in (truth_path(path), factors_path(path))
        )
        held = cipher is not None and cipher.key()
        yield truth, factors, stack.enter_context(replacing(key_path(path), PRIVATE)) if held else truth


@contextmanager
def _spooled(path: Path) -> Iterator[Table]:
    """The factors of round after round, in little memory."""
    spool = Table(path, FACTORS, PRIVATE)
    try:
        yield spool
        spool.close()
    except BaseException:
        spool.abandon()
        raise


def _write_set_up(writer: TranscriptWriter, run: Run, round_: int) -> None:
    """What was sent before the first round, with the first one that is kept."""
    for sent in run.set_up():
        writer.set_up(round_, sent.kind, sent.sender, sent.receiver, sent.index, sent.value)


class GraphsWritten:
    """Edges of the kept clients' rows, written once for as many rounds as they stay the same."""

    def __init__(self, writer: TranscriptWriter, users: Int[np.ndarray, " users"]) -> None:
        self._writer, self._users = writer, users
        self._edges: Edges | None = None
        self._first = 0

    def add(self, round_: int, edges: Edges | None) -> None:
        """Take the graph of a round that is recorded; None where rows go to one server."""
        if edges is None or (self._edges is not None and _same(edges, self._edges)):
            return
        if self._edges is not None:
            self._write(self._edges, round_ - 1)
            self._first = round_
        self._edges = edges

    def end(self) -> None:
        """Write the last graph: nothing is known of its end."""
        if self._edges is not None:
            self._write(self._edges, INT32_MAX)

    def _write(self, edges: Edges, last: int) -> None:
        kept = np.isin(edges.sender, self._users)
        sender, receiver, weight = (column[kept] for column in edges)
        self._writer.deliveries(sender, receiver, weight, self._first, last)


def _same(one: Edges, other: Edges) -> bool:
    return one is other or all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
