"""What a round costs: seconds in each phase, bytes sent and ciphertexts, of one client and of the server.

Phases as in paper 000, Table 5: local update (a client computes its rows), encryption, aggregation (the
server adds all rows), decryption (of the sums, or in FedMF of the item factors, by every client), and the
server's update.
Rows are encrypted, added and decrypted on a stated sample and scaled, for they cost the same each.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from phe import paillier

from audit.registry import make_defense, make_defenses, make_victim
from defenses.encryption.paillier_cipher import EncryptedTotal, PaillierCipher
from victims.common.errors import InputError
from victims.common.limits import peak_memory
from victims.data.ratings import Ratings
from victims.data.subsets import most_rated, of_users
from victims.protocols.base import Cipher, Defense, Received, Rows, Victim
from victims.training import Run, sampled, sent_rows, start

SAMPLE_ROWS = 256  # encrypted, added and decrypted
PHE_PRECISION = 2.0**-40  # as in defenses.encryption.fixed_point
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Cost:
    """Of one round; clients are the one with most rows, and the mean one.

    Attributes
    ----------
    local_update, encryption : float
        Seconds of the slowest client.
    aggregation, decryption, server_update : float
        Seconds for all rows; decryption is one decrypter's, and the server's update is timed together with
        the clients' own step, which the simulation takes in the same program.
    bytes_sent, bytes_sent_mean, bytes_received : float
        By the client with most rows, by the mean client, and by every client.
    ciphertexts : float
        Of the client with most rows.
    peak_bytes : float
        Largest resident size of this process so far.
    note : str
        What was measured on a sample and scaled.
    """

    local_update: float
    encryption: float
    aggregation: float
    decryption: float
    server_update: float
    bytes_sent: float
    bytes_sent_mean: float
    bytes_received: float
    ciphertexts: float
    peak_bytes: float
    note: str = ""

    def metrics(self) -> dict[str, float]:
        """Names of the result table; seconds and bytes are in the names."""
        values = asdict(self)
        values.pop("note")
        seconds = ("local_update", "encryption", "aggregation", "decryption", "server_update")
        return {f"seconds_{name}" if name in seconds else name: value for name, value in values.items()}

    def slowest(self, bits_per_second: float) -> float:
        """Paper 001's accounting: the slowest client, the server, and the transfer, in seconds."""
        moved = 8 * (self.bytes_sent + self.bytes_received) / bits_per_second
        client = self.local_update + self.encryption + self.decryption
        return client + self.aggregation + self.server_update + moved


class PerRow(NamedTuple):
    """Seconds to encrypt, add and decrypt one row; its bytes and ciphertexts; how many rows were measured."""

    encrypt: float
    add: float
    decrypt: float
    size: int
    ciphertexts: int
    measured: int


def cost_of(
    victim: Victim[Any],
    ratings: Ratings,
    defenses: Sequence[Defense],
    seed: int = 0,
    *,
    sample: int = SAMPLE_ROWS,
    phe_bits: int | None = None,
    progress: Progress = lambda what: None,
) -> Cost:
    """Measure one round.

    Parameters
    ----------
    victim, ratings, defenses, seed
        As for a recording; encryption must be the real one.
    sample : int
        Rows that are encrypted, added and decrypted; what all rows cost is scaled from them.
    phe_bits : int, optional
        Encrypt with phe as it comes, one number per ciphertext, under a key of this length, instead of by
        ``defenses``.
    progress : callable
        Called with what is going on.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # short keys are a comparison with the papers here
        run = start(victim, ratings, defenses, seed)
    progress("local update")
    counts = _rows_per_client(run)
    busiest = of_users(ratings, np.array([counts.argmax()]))
    own = start(victim, busiest, run.defenses[: -1 if run.cipher else None], seed)
    list(sent_rows(own, np.array([0]), 0))
    local, rows = _timed(lambda: list(sent_rows(own, np.array([0]), 0)))
    alone = np.concatenate([part.gradient for part in rows])
    progress("server update")
    arrived = Received(*(np.zeros_like(part) for part in victim.broadcast(run.state)))
    unrated = sampled(run.defenses, ratings, 0, seed)
    step = partial(victim.round, run.state, ratings, arrived, unrated)
    jax.block_until_ready(step())  # compiles what is timed
    update, _ = _timed(lambda: jax.block_until_ready(step()))
    alone = np.resize(alone, (min(sample, alone.shape[0]), alone.shape[1]))
    progress("encryption, addition, decryption")
    if phe_bits is not None:
        each = _by_phe(alone[: max(1, sample // 64)], phe_bits)
    elif run.cipher is None:
        each = _in_the_clear(alone)
    else:
        each = _by_us(run.cipher, alone)
    return _scaled(run, counts, local, update, each)


@dataclass(frozen=True)
class Sheet:
    """What to measure: every number of items in the clear, with phe, and packed under every key length."""

    victim: str = "fedmf"
    options: dict[str, Any] = field(default_factory=dict)
    items: tuple[int, ...] = ()
    key_bits: tuple[int, ...] = (1024, 2048)
    phe: bool = True
    defense: str = "none"
    sample: int = SAMPLE_ROWS
    bits_per_second: float = 1e9
    seed: int = 0


def run(
    sheet: Sheet,
    ratings: Ratings,
    *,
    report: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> list[dict[str, Any]]:
    """One row per number of items and system, with all numbers of ``Cost``."""
    victim: Any = make_victim(sheet.victim, sheet.options)
    base = make_defenses(sheet.defense)
    systems: list[tuple[str, list[Defense], int | None]] = [("in the clear", base, None)]
    for bits in sheet.key_bits:
        if sheet.phe:
            systems.append((f"phe, {bits} bit", base, bits))
        packed = make_defense(f"paillier:key_bits={bits}")
        systems.append((f"packed, {bits} bit", [*base, packed], None))
    tasks = [(count, system) for count in sheet.items or (ratings.n_items,) for system in systems]
    rows = []
    for done, (count, (name, defenses, length)) in enumerate(tasks):
        part = most_rated(ratings, count)

        def say(what: str, label: str = f"{count} items, {name}: ", at: int = done) -> None:
            report(at, len(tasks), label + what)

        found = cost_of(
            victim, part, defenses, sheet.seed, sample=sheet.sample, phe_bits=length, progress=say
        )
        slowest = found.slowest(sheet.bits_per_second)
        row = {"items": count, "ratings": part.n_ratings, "system": name, "slowest": slowest}
        rows.append({**row, **found.metrics(), "note": found.note})
    report(len(tasks), len(tasks), "done")
    return rows


def _in_the_clear(rows: np.ndarray) -> PerRow:
    some = np.resize(rows, (1 << 14, rows.shape[1]))
    index = np.arange(some.shape[0]) % 1000
    adding, _ = _timed(lambda: [np.bincount(index, column, minlength=1000) for column in some.T])
    return PerRow(0.0, adding / some.shape[0], 0.0, 8 * rows.shape[1], 0, some.shape[0])


def _by_us(cipher: Cipher, rows: np.ndarray) -> PerRow:
    if not isinstance(cipher, PaillierCipher):
        raise InputError("the cost of ideal encryption says nothing: measure paillier without ideal=true")
    count, place = rows.shape[0], np.arange(rows.shape[0])
    encrypting, sealed = _timed(partial(cipher.encrypted, rows))
    total = cipher.total(count, rows.shape[1])
    assert isinstance(total, EncryptedTotal)
    total.multiply(place, sealed)
    adding, _ = _timed(partial(total.multiply, place, sealed))
    opening, _ = _timed(partial(total.opened, np.ones(count, bool)))
    parts = len(sealed) // count
    size = parts * cipher.secret.public.ciphertext_bytes
    return PerRow(encrypting / count, adding / count, opening / count, size, parts, count)


def _by_phe(rows: np.ndarray, key_bits: int) -> PerRow:
    """python-paillier as the papers use it: each number by itself, one fixed exponent."""
    public, secret = paillier.generate_paillier_keypair(n_length=key_bits)
    encode = partial(paillier.EncodedNumber.encode, public, precision=PHE_PRECISION)
    encoded = [encode(float(number)) for number in rows.ravel()]
    count = rows.shape[0]
    encrypting, sealed = _timed(lambda: [public.encrypt(number) for number in encoded])
    adding, sums = _timed(lambda: [one + one for one in sealed])
    opening, _ = _timed(lambda: [secret.decrypt(one) for one in sums])
    size = rows.shape[1] * (2 * key_bits // 8)
    return PerRow(encrypting / count, adding / count, opening / count, size, rows.shape[1], count)


def _scaled(run: Run, counts: np.ndarray, local: float, update: float, each: PerRow) -> Cost:
    """A whole round from what one row costs."""
    n_state = sum(part.shape[0] for part in run.victim.broadcast(run.state))
    sealed = each.ciphertexts > 0
    blind = sealed and run.victim.blind_server
    decrypters = run.cipher.rules.decrypters.size if run.cipher is not None and not blind else 1
    most, everything = float(counts.max()), float(counts.sum())
    return Cost(
        local_update=local,
        encryption=each.encrypt * most,
        aggregation=each.add * everything,
        decryption=each.decrypt * n_state / decrypters,
        server_update=0.0 if blind else update,
        bytes_sent=most * each.size,
        bytes_sent_mean=float(counts.mean()) * each.size,
        bytes_received=float(n_state * (each.size if blind else 8 * run.state.item_factors.shape[1])),
        ciphertexts=most * each.ciphertexts,
        peak_bytes=float(peak_memory()),
        note=f"measured on {each.measured} rows; scaled to {int(most)} of the busiest client, "
        f"{int(everything)} of all and {n_state} sums",
    )


def _rows_per_client(run: Run) -> np.ndarray:
    """How many rows each client sends in a round."""
    counts = np.zeros(run.ratings.n_users, np.int64)
    part: Rows
    sample = sampled(run.defenses, run.ratings, 0, run.seed)
    for part in run.victim.uploads(run.state, run.ratings, np.arange(counts.size), sample):
        counts += np.bincount(part.sender, minlength=counts.size)
    return counts


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result
