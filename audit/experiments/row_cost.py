"""Seconds to encrypt, add and decrypt one row: in the clear, with this project's packing, and with phe.

Seconds are of the processor, of all threads together, so that what runs beside does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import gmpy2
import numpy as np
from jaxtyping import Float
from phe import paillier

from defenses.encryption.paillier_cipher import EncryptedTotal, PaillierCipher
from victims.common.errors import InputError
from victims.protocols.base import Cipher

PHE_PRECISION = 2.0**-40  # as in defenses.encryption.fixed_point
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
