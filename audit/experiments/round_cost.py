"""What a round costs: seconds in each phase, bytes sent and ciphertexts, of one client and of the server.

Phases as in Mai & Pang 2022, Table 5: local update (a client computes its rows), encryption, aggregation (the
server adds all rows), decryption (of the sums, or in FedMF of the item factors, by every client), and the
server's update.
Rows are encrypted, added and decrypted on a stated sample and scaled, for they cost the same each. Seconds
are of the processor: what runs beside does not count.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, NamedTuple, TypeVar

import gmpy2
import jax
import numpy as np
from jaxtyping import Float
from phe import paillier

from audit.experiments.cells import Say, silent
from defenses.ciphers import EncryptedTotal, PaillierCipher
from victims.common.errors import InputError
from victims.common.limits import peak_memory
from victims.data.ratings import Ratings
from victims.data.subsets import of_users
from victims.protocols.base import Cipher, Defense, Received, Victim
from victims.training import Run, sent_rows, start

UNTIMED = (
    "bytes_sent",
    "bytes_sent_mean",
    "bytes_received",
    "ciphertexts",
    "ciphertexts_decrypted",
    "ciphertexts_added",
    "peak_bytes",
)
SAMPLE_ROWS = 256  # encrypted, added and decrypted


@dataclass(frozen=True)
class Cost:
    """Of one round, in seconds, bytes and ciphertexts."""

    # the mean client is the one whose number of rows is nearest to the mean, or has that many; the others are
    # of the client with most rows, or of all rows. Subtraction is what the server takes in place of the
    # aggregation where it subtracts gradients, as in Chai et al. 2021, and does not add negated ones;
    # decryption is one decrypter's; the server's update is timed with the clients' own step, which the
    # simulation takes in the same program
    local_update: float
    local_update_mean: float
    encryption: float
    encryption_mean: float
    aggregation: float
    subtraction: float
    decryption: float
    server_update: float
    bytes_sent: float
    bytes_sent_mean: float
    bytes_received: float  # by every client
    ciphertexts: float  # that the client with most rows sends
    ciphertexts_decrypted: float  # by one client
    ciphertexts_added: float  # by the server
    peak_bytes: float  # largest resident size of this process so far
    note: str = ""  # what was measured on a sample and scaled

    def metrics(self) -> dict[str, float]:
        """Names of the result table; seconds and bytes are in the names."""
        values = asdict(self)
        return {_told_as(name): value for name, value in values.items() if name != "note"}

    def transfer(self, bits_per_second: float, mean: bool = False) -> float:
        """Seconds in which the client with most rows, or the mean one, sends and receives."""
        sent = self.bytes_sent_mean if mean else self.bytes_sent
        return 8 * (sent + self.bytes_received) / bits_per_second

    def slowest(self, bits_per_second: float) -> float:
        """Chai et al.'s accounting: the slowest client, the server, and the transfer, in seconds."""
        return self.client + self.server + self.transfer(bits_per_second)

    @property
    def client(self) -> float:
        """Seconds of the client with most rows, in Chai et al.'s accounting: it decrypts, too."""
        return self.local_update + self.encryption + self.decryption

    @property
    def server(self) -> float:
        """Seconds of the server: all rows added, and its step."""
        return self.aggregation + self.server_update

    def server_share(self, subtracts: bool = False) -> float:
        """Share of the server in the seconds of the slowest client and the server, as in Chai et al. 2021."""
        server = self.server - self.aggregation + self.subtraction if subtracts else self.server
        return server / (self.client + server)


def _told_as(name: str) -> str:
    return name if name in UNTIMED else f"seconds_{name}"


METRICS = tuple(_told_as(one.name) for one in fields(Cost) if one.name != "note")


def cost_of(
    victim: Victim[Any],
    ratings: Ratings,
    defenses: Sequence[Defense],
    seed: int = 0,
    *,
    sample: int = SAMPLE_ROWS,
    phe_bits: int | None = None,
    progress: Say = silent,
) -> Cost:
    """Measure one round."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # short keys are a comparison with the papers here
        run = start(victim, ratings, defenses, seed)
    if run.network.edges is not None:
        raise InputError("cost_of measures a round around one server, and these clients send to each other")
    progress("local update")
    counts = _rows_per_client(run)
    local, rows = _local_update(run, ratings, int(counts.argmax()))
    local_mean, _ = _local_update(run, ratings, int(np.abs(counts - counts.mean()).argmin()))
    progress("server update")
    update = _server_update(run, ratings)
    rows = np.resize(rows, (min(sample, rows.shape[0]), rows.shape[1]))
    progress("encryption, addition, decryption")
    if phe_bits is not None:
        each = with_phe(rows[: max(1, sample // 64)], phe_bits)
    elif run.cipher is None:
        each = in_the_clear(rows)
    else:
        each = packed(run.cipher, rows)
    return _scaled(run, counts, (local, local_mean), update, each)


def _local_update(run: Run, ratings: Ratings, client: int) -> tuple[float, np.ndarray]:
    """Seconds in which one client computes its rows, and the rows, (n_rows, factors)."""
    alone = of_users(ratings, np.array([client]))
    own = start(run.victim, alone, run.defenses[: -1 if run.cipher else None], run.seed)
    upload = partial(sent_rows, own, np.array([0]), 0)
    list(upload())  # compiles what is timed
    seconds, pieces = timed(lambda: list(upload()))
    return seconds, np.concatenate([piece.gradient for piece in pieces])


def _server_update(run: Run, ratings: Ratings) -> float:
    """Seconds in which the server takes up what arrived, and the clients their own step."""
    items, attributes = run.victim.broadcast(run.state)
    arrived = Received(np.zeros_like(items), np.zeros_like(attributes))
    step = partial(run.victim.round, run.state, ratings, arrived, run.sample(0))
    jax.block_until_ready(step())  # compiles what is timed
    seconds, _ = timed(lambda: jax.block_until_ready(step()))
    return seconds


def _scaled(run: Run, counts: np.ndarray, local: tuple[float, float], update: float, each: PerRow) -> Cost:
    """A whole round from what one row costs."""
    n_state = sum(factors.shape[0] for factors in run.victim.broadcast(run.state))
    sealed = each.ciphertexts > 0
    blind = sealed and run.blind
    decrypters = 1 if run.cipher is None or blind else max(1, run.cipher.rules.decrypters.size)
    most, everything = float(counts.max()), float(counts.sum())
    return Cost(
        local_update=local[0],
        local_update_mean=local[1],
        encryption=each.encrypt * most,
        encryption_mean=each.encrypt * float(counts.mean()),
        aggregation=each.add * everything,
        subtraction=each.subtract * everything,
        decryption=each.decrypt * n_state / decrypters,
        server_update=0.0 if blind else update,
        bytes_sent=most * each.size,
        bytes_sent_mean=float(counts.mean()) * each.size,
        bytes_received=float(n_state * (each.size if blind else 8 * run.state.item_factors.shape[1])),
        ciphertexts=most * each.ciphertexts,
        ciphertexts_decrypted=n_state * each.ciphertexts / decrypters,
        ciphertexts_added=everything * each.ciphertexts,
        peak_bytes=float(peak_memory()),
        note=f"measured on {each.measured} rows; scaled to {int(most)} of the busiest client, "
        f"{int(everything)} of all and {n_state} sums",
    )


def _rows_per_client(run: Run) -> np.ndarray:
    """How many rows leave each client in a round: what a defense keeps back costs nothing."""
    counts = np.zeros(run.ratings.n_users, np.int64)
    for rows in sent_rows(run, np.arange(counts.size), 0):
        counts += np.bincount(rows.sender, minlength=counts.size)
    return counts


PHE_PRECISION = 2.0**-40  # as in defenses.ciphers
FLOAT_BYTES = 8
CLEAR_ROWS, CLEAR_ITEMS = 1 << 14, 1000  # that are added in the clear
Result = TypeVar("Result")
Gradients = Float[np.ndarray, "rows factors"]


class PerRow(NamedTuple):
    """Seconds to encrypt, add, subtract and decrypt one row; its bytes and ciphertexts; how many rows were
    measured.
    """

    encrypt: float
    add: float
    subtract: float
    decrypt: float
    size: int
    ciphertexts: int
    measured: int


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Time some work."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def in_the_clear(rows: Gradients) -> PerRow:
    """Measure rows that nobody encrypts."""
    some = np.resize(rows, (CLEAR_ROWS, rows.shape[1]))
    index = np.arange(CLEAR_ROWS) % CLEAR_ITEMS
    adding, _ = timed(lambda: [np.bincount(index, column, minlength=CLEAR_ITEMS) for column in some.T])
    each = adding / CLEAR_ROWS
    return PerRow(0.0, each, each, 0.0, FLOAT_BYTES * rows.shape[1], 0, CLEAR_ROWS)


def packed(cipher: Cipher, rows: Gradients) -> PerRow:
    """Measure rows whose numbers are packed into few ciphertexts (``defenses.encryption``)."""
    if not isinstance(cipher, PaillierCipher):
        raise InputError("the cost of ideal encryption says nothing: measure paillier without ideal=true")
    count, index = rows.shape[0], np.arange(rows.shape[0])
    encrypting, sealed = timed(partial(cipher.encrypted, rows))
    total = cipher.total(count, rows.shape[1])
    assert isinstance(total, EncryptedTotal)
    total.multiply(index, sealed)
    adding, _ = timed(partial(total.multiply, index, sealed))
    square = cipher.secret.public.square
    inverting, _ = timed(lambda: [gmpy2.invert(one, square) for one in sealed])
    opening, _ = timed(partial(total.opened, np.ones(count, bool)))
    ciphertexts = len(sealed) // count
    size = ciphertexts * cipher.secret.public.ciphertext_bytes
    adding, inverting = adding / count, inverting / count
    spent = encrypting / count, adding, adding + inverting, opening / count
    return PerRow(*spent, size, ciphertexts, count)


def with_phe(rows: Gradients, key_bits: int) -> PerRow:
    """Measure python-paillier as the papers use it: each number by itself, one fixed exponent."""
    public, secret = paillier.generate_paillier_keypair(n_length=key_bits)
    encode = partial(paillier.EncodedNumber.encode, public, precision=PHE_PRECISION)
    encoded = [encode(float(value)) for value in rows.ravel()]
    count = rows.shape[0]
    encrypting, sealed = timed(lambda: [public.encrypt(value) for value in encoded])
    adding, sums = timed(lambda: [one + one for one in sealed])
    subtracting, _ = timed(lambda: [both - one for both, one in zip(sums, sealed, strict=True)])
    opening, _ = timed(lambda: [secret.decrypt(one) for one in sums])
    size = rows.shape[1] * (2 * key_bits // 8)
    spent = encrypting / count, adding / count, subtracting / count, opening / count
    return PerRow(*spent, size, rows.shape[1], count)
