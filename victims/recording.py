"""Record a victim: what each party sees in a round, and the loop that streams it to disk."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.common.files import PRIVATE, replacing
from victims.data.ratings import Ratings
from victims.protocols.base import Cipher, Defense, Holding, Network, Victim, WithItemServer
from victims.protocols.network import SERVER, Sums
from victims.training import Run, biases_of, each_message, formed_rows, start, sums_of
from victims.transcript.beside import factors_path
from victims.transcript.manifest import Manifest
from victims.transcript.spool import Spool
from victims.transcript.view import ATTRIBUTE, ITEM, KINDS
from victims.transcript.writer import TranscriptWriter, key_path, truth_path, write_key, write_truth

ITEM_SERVER = -2  # of the parties
ITEM_SUM, ATTRIBUTE_SUM = KINDS.index("item-sum"), KINDS.index("attribute-sum")


@dataclass(frozen=True)
class SentBatch:
    """Rows on their way, as ``TranscriptWriter.messages`` takes them.

    Attributes
    ----------
    sender, kind, index : (n_rows,) int
    gradient : (n_rows, factors) float64
    ciphertext : list of bytes or None, optional
        In place of the gradients; None for rows that stay in the clear.
    exponent : (n_rows,) int32, optional
        What an encoding publishes beside a row.
    sequence, reference : (n_rows,) int32, (n_rows, factors) float64, optional
        As of ``Rows``.
    receiver : int or None, optional
        The server, if nothing is said; None where the edges of the network say who.
    """

    sender: Int[np.ndarray, " rows"]
    kind: Int[np.ndarray, " rows"]
    index: Int[np.ndarray, " rows"]
    gradient: Float[np.ndarray, "rows factors"]
    ciphertext: Sequence[bytes | None] | None = None
    exponent: Int[np.ndarray, " rows"] | None = None
    sequence: Int[np.ndarray, " rows"] | None = None
    reference: Float[np.ndarray, "rows factors"] | None = None
    receiver: int | None = SERVER


class Exchange(NamedTuple):
    """Everything that is sent in one round.

    Attributes
    ----------
    round : int
    items, attributes : (n_items, factors), (n_attributes, factors)
        What everybody knows.
    ciphertext : list of bytes, optional
        In place of both, where the server does not know them.
    noise_scale : (n_items + n_attributes, factors), optional
        Standard deviation of the noise in every upload about a row, where the server knows it.
    batches : iterator of SentBatch
        Uploads, what the item server sends, decrypted sums; formed while they are read, to bound memory.
    sums : list of Sums
        What somebody sees of encrypted rows.
    bias : (n_items + n_attributes,), optional
        What everybody adds to predictions.
    holdings : iterator of Holding, optional
        What single clients know; None where rows go to one server, and nobody knows more than everybody.
    """

    round: int
    items: Float[np.ndarray, "items factors"]
    attributes: Float[np.ndarray, "attributes factors"]
    ciphertext: list[bytes] | None
    noise_scale: Float[np.ndarray, "rows factors"] | None
    batches: Iterator[SentBatch]
    sums: list[Sums]
    bias: Float[np.ndarray, " rows"] | None = None
    holdings: Iterator[Holding] | None = None


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
    """Run a victim up to the last of ``rounds`` and write the transcript ``path`` and its truth.

    Parameters
    ----------
    victim : Victim
    ratings : Ratings
    path : Path
        Directory to create. The truth goes to ``NAME.truth.arrow`` beside it, the clients' factors in the
        kept rounds to ``NAME.factors.arrow``, and where uploads are encrypted the clients' key to
        ``NAME.key.json``.
    rounds : sequence of int
        Rounds to keep, counted from 0; all rounds up to the largest are trained.
    users : sequence of int, optional
        Clients to keep; everybody takes part in training either way. Where sums are decrypted all clients
        are kept, for the sums are of all.
    defenses : sequence of Defense
        Applied in this order to every upload; encryption comes last.
    train_on_received : bool
        Whether receivers train on what reaches them, as they would; False trains them on the rows before
        the defenses, so that recordings under different defenses show the same factors.
    watched : sequence of int, optional
        Clients whose own knowledge is kept, where clients know more than everybody does: these can be
        adversaries. ``users`` without it.
    seed : int
    progress : callable
        Called with (rounds done, rounds in all).

    Raises
    ------
    InputError
        If a round or user does not exist, ``path`` exists, training diverges or is over before the last
        round, a number is too large to encrypt, or some clients are left out where sums are decrypted.
    """
    kept_rounds, kept_users = _wanted_rounds(rounds), _wanted_users(users, ratings.n_users)
    for beside in (truth_path(path), factors_path(path), key_path(path)):
        if beside.exists():
            raise InputError(f"{beside} exists; choose another name or remove it first")
    kept_watched = kept_users if watched is None else _wanted_users(watched, ratings.n_users)
    run = start(victim, ratings, defenses, seed)
    if _decrypts_sums(run) and kept_users.size < ratings.n_users:
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
        _write_network(writer, run, kept_users)
        for round_ in range(last + 1):
            sums: list[Sums] = []
            if round_ in kept_rounds:
                exchange = exchange_of(run, kept_users, round_, train_on_received, kept_watched)
                write_exchange(writer, exchange)
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


def exchange_of(
    run: Run,
    users: Int[np.ndarray, " users"],
    round_: int,
    on_received: bool = True,
    watched: Int[np.ndarray, " watched"] | None = None,
) -> Exchange:
    """What is sent in one round, as a function of the run before it.

    Parameters
    ----------
    run : Run
    users : (n,) int
        Clients whose uploads are kept, ascending.
    round_ : int
        Its number, from 0.
    on_received : bool
        As of ``Run.trained``.
    watched : (n,) int, optional
        Clients whose own knowledge is kept, ascending; ``users`` without it.

    Returns
    -------
    Exchange
    """
    watched = users if watched is None else watched
    network = run.network
    items, attributes = run.victim.broadcast(run.state)
    sealed = None
    if run.cipher is not None and run.victim.blind_server:
        sealed = run.cipher.seal(np.concatenate([items, attributes]))
    sums = sums_of(run, round_, watched) if _decrypts_sums(run) else []
    uploads = _uploads(run, network, users, round_, on_received, watched)
    batches = _numbered(chain(uploads, _item_server_rows(run), _decrypted(run.cipher, sums)))
    noise = _noise_scale(run, items, attributes, round_)
    biases = biases_of(run)
    bias = None if biases is None else np.concatenate([biases.items, np.zeros(len(attributes))])
    holdings = None if network.edges is None else run.victim.holdings(run.state, run.ratings, watched)
    return Exchange(round_, items, attributes, sealed, noise, batches, sums, bias, holdings)


def write_exchange(writer: TranscriptWriter, exchange: Exchange) -> None:
    """Append one round to a transcript.

    Parameters
    ----------
    writer : TranscriptWriter
    exchange : Exchange
        Its batches are read once.

    Raises
    ------
    InputError
        As the writer's methods.
    """
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
        writer.holding(exchange.round, holding.holder, holding.index, holding.factors)
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


def truth_columns(
    ratings: Ratings, users: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """User, kind, index and value of the ratings that exist and of all attribute columns.

    Parameters
    ----------
    ratings : Ratings
    users : (n,) int

    Returns
    -------
    user, kind, index, value
        (n_rows,) each.
    """
    mine = np.isin(ratings.users, users)
    n_attributes = ratings.n_attributes
    user = np.concatenate([ratings.users[mine], np.repeat(users, n_attributes)])
    kind = np.repeat([ITEM, ATTRIBUTE], [mine.sum(), users.size * n_attributes])
    index = np.concatenate([ratings.items[mine], np.tile(np.arange(n_attributes), users.size)])
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


def _decrypts_sums(run: Run) -> bool:
    return run.cipher is not None and not run.victim.blind_server


def _manifest_of(run: Run, rounds: list[int]) -> Manifest:
    entries: list[dict[str, Any]] = [defense.public() for defense in run.defenses]
    if run.cipher is not None:
        entries[-1] |= run.cipher.public()
    return run.victim.manifest(run.ratings, rounds).model_copy(update={"defenses": entries})


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
def _spooled(path: Path) -> Iterator[Spool]:
    """The factors of round after round, in little memory."""
    spool = Spool(path, mode=PRIVATE)
    try:
        yield spool
        spool.close()
    except BaseException:
        spool.abandon()
        raise


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


def _write_network(writer: TranscriptWriter, run: Run, users: Int[np.ndarray, " users"]) -> None:
    """Edges along which the kept clients' rows go, if there are any."""
    edges = run.network.edges
    if edges is not None:
        kept = np.isin(edges.sender, users)
        writer.deliveries(edges.sender[kept], edges.receiver[kept], edges.weight[kept])


def _write_set_up(writer: TranscriptWriter, run: Run, round_: int) -> None:
    """What was sent before the first round, with the first one that is kept."""
    for sent in run.victim.set_up(run.state, run.ratings):
        writer.set_up(round_, sent.kind, sent.sender, sent.receiver, sent.index, sent.value)


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
    if not run.victim.has_item_server or not run.ratings.item_features.shape[1]:
        return
    rows = cast(WithItemServer, run.victim).item_server_rows(run.state, run.ratings)
    index = np.arange(rows.shape[0])
    sender, kind = np.full(index.size, ITEM_SERVER), np.full(index.size, ITEM)
    yield _in_the_clear(run.cipher, sender, kind, index, rows)


def _decrypted(cipher: Cipher | None, seen: Sequence[Sums]) -> Iterator[SentBatch]:
    """What somebody sees of the sums of encrypted rows."""
    for sums in seen:
        row = np.flatnonzero(sums.released)
        is_item = row < sums.n_items
        kind = np.where(is_item, ITEM_SUM, ATTRIBUTE_SUM)
        index = np.where(is_item, row, row - sums.n_items)
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
