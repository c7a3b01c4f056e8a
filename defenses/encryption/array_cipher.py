"""Paillier encryption of whole arrays: the keys are phe's, the arithmetic is batched over gmpy2.

P. Paillier, EUROCRYPT 1999, doi:10.1007/3-540-48910-X_16, with g = n + 1: a plaintext m is
(1 + n m) r^n mod n^2. Who holds the secret key (in papers 000 and 001 every client does) draws r^n modulo
p^2 and q^2 and joins the two: modulo p^2 the n-th powers are the p-th powers s^p of s in 1..p-1, each once,
so the law is the same and the exponent and the modulus have half the length each. Additions multiply
modulo n^2. Batches release the interpreter's lock, so threads use all cores.

Textbook Paillier is malleable and not authenticated: a ciphertext that was altered decrypts to another
number. What can be checked is checked: range, a common factor with n, and that the plaintext fits its lanes.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import gmpy2
import joblib
from gmpy2 import mpz
from phe import paillier

from victims.common.errors import InputError
from victims.common.validation import one_of, require

KEY_BITS = (1024, 2048, 3072)
WEAK = 2048  # shorter keys are for comparison with the papers


def generate_keys(key_bits: int = 2048) -> SecretKey:
    """Generate a new pair of keys.

    References
    ----------
    P. Paillier, EUROCRYPT 1999, doi:10.1007/3-540-48910-X_16.
    """
    require("paillier", "key_bits", key_bits, one_of(*KEY_BITS))
    if key_bits < WEAK:
        warnings.warn(
            f"{key_bits}-bit Paillier keys are what the papers use and below today's recommendations "
            f"(NIST SP 800-57: {WEAK} bits for 112-bit strength)",
            stacklevel=2,
        )
    return SecretKey.of(paillier.generate_paillier_keypair(n_length=key_bits)[1])


def _workers() -> int:
    return int(joblib.cpu_count())


def _powers(bases: Sequence[mpz], exponent: mpz, modulus: mpz) -> list[mpz]:
    """All bases to one exponent, on all cores."""
    n_workers = min(_workers(), max(1, len(bases)))
    if n_workers == 1:
        return gmpy2.powmod_base_list(list(bases), exponent, modulus)
    chunk = -(-len(bases) // n_workers)
    pieces = [list(bases[at : at + chunk]) for at in range(0, len(bases), chunk)]
    with ThreadPoolExecutor(n_workers) as pool:
        results = pool.map(lambda piece: gmpy2.powmod_base_list(piece, exponent, modulus), pieces)
        return [power for result in results for power in result]


@dataclass(frozen=True)
class PublicKey:
    """n, and what anybody can do with it."""

    phe: paillier.PaillierPublicKey
    n: mpz  # the modulus
    square: mpz  # the modulus of the ciphertexts

    @classmethod
    def of(cls, key: paillier.PaillierPublicKey) -> PublicKey:
        """The key with its modulus as GMP's integers."""
        return cls(key, mpz(key.n), mpz(key.n) ** 2)

    @property
    def ciphertext_bytes(self) -> int:
        """Length of a stored ciphertext."""
        return 2 * ((self.phe.n.bit_length() + 7) // 8)

    @property
    def plaintext_bits(self) -> int:
        """Signed plaintexts lie within 2^plaintext_bits of zero; phe's bound n / 3 is larger."""
        return self.phe.n.bit_length() - 2

    def encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """Fresh ciphertexts of signed integers."""
        draws = [mpz(secrets.randbelow(self.phe.n - 1) + 1) for _ in plaintexts]
        return self.masked(plaintexts, _powers(draws, self.n, self.square))

    def masked(self, plaintexts: Sequence[int], masks: Sequence[mpz]) -> list[mpz]:
        """Ciphertexts of signed integers under given n-th powers."""
        largest = max((abs(plain).bit_length() for plain in plaintexts), default=0)
        if largest > self.plaintext_bits:
            raise InputError(
                f"plaintexts must have at most {self.plaintext_bits} bits under this key, got {largest}; "
                "use fewer lanes or a longer key"
            )
        pairs = zip(plaintexts, masks, strict=True)
        return [(1 + self.n * plain) * mask % self.square for plain, mask in pairs]

    def add(self, ciphertexts: Iterable[mpz]) -> mpz:
        """Ciphertext of the sum."""
        product = mpz(1)
        for ciphertext in ciphertexts:
            product = product * ciphertext % self.square
        return product

    def to_bytes(self, ciphertext: mpz) -> bytes:
        """Big-endian, as long for every ciphertext of a key."""
        return int(ciphertext).to_bytes(self.ciphertext_bytes, "big")

    def from_bytes(self, stored: bytes) -> mpz:
        """A stored ciphertext, checked."""
        if len(stored) != self.ciphertext_bytes:
            raise InputError(
                f"ciphertexts of this key have {self.ciphertext_bytes} bytes, got {len(stored)}: "
                "truncated, or of another key"
            )
        ciphertext = mpz(int.from_bytes(stored, "big"))
        if not 0 < ciphertext < self.square or gmpy2.gcd(ciphertext, self.n) != 1:
            raise InputError(
                "a ciphertext must be an invertible number below n^2; it was altered, or has another key"
            )
        return ciphertext


class Prime(NamedTuple):
    """One factor of n: its square, and the inverse of L((1 + n)^(value - 1)) modulo it."""

    value: mpz
    square: mpz
    inverse: mpz

    @staticmethod
    def of(value: mpz, other: mpz) -> Prime:
        """One factor, given the other."""
        square = value * value
        generator = gmpy2.powmod(1 + value * other, value - 1, square)
        return Prime(value, square, gmpy2.invert((generator - 1) // value, value))


@dataclass(frozen=True)
class SecretKey:
    """p and q: encrypts faster than the public key can, and decrypts."""

    phe: paillier.PaillierPrivateKey
    public: PublicKey  # the key that may be told to everybody
    primes: tuple[Prime, Prime]  # p and q

    @classmethod
    def of(cls, key: paillier.PaillierPrivateKey) -> SecretKey:
        """The key with what decryption needs of its primes."""
        p, q = mpz(key.p), mpz(key.q)
        return cls(key, PublicKey.of(key.public_key), (Prime.of(p, q), Prime.of(q, p)))

    def _masks(self, count: int) -> list[mpz]:
        (p, q), square = self.primes, self.public.square
        powers = []
        for prime in (p, q):
            draws = [mpz(secrets.randbelow(int(prime.value) - 1) + 1) for _ in range(count)]
            powers.append(_powers(draws, prime.value, prime.square))
        join = q.square * gmpy2.invert(q.square, p.square)
        return [(of_q + (of_p - of_q) * join) % square for of_p, of_q in zip(*powers, strict=True)]

    def encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """Fresh ciphertexts of signed integers, with the same law as ``PublicKey.encrypt``."""
        return self.public.masked(plaintexts, self._masks(len(plaintexts)))

    def decrypt(self, ciphertexts: Sequence[mpz]) -> list[int]:
        """Signed integers; Paillier's section 7, with both halves joined by the remainder theorem."""
        p, q = self.primes
        halves = [
            [(power - 1) // prime.value * prime.inverse % prime.value
             for power in _powers([c % prime.square for c in ciphertexts], prime.value - 1, prime.square)]
            for prime in (p, q)
        ]  # fmt: skip
        n, q_inverse = self.public.n, gmpy2.invert(q.value, p.value)
        half = n // 2
        plain = [
            of_q + (of_p - of_q) * q_inverse % p.value * q.value for of_p, of_q in zip(*halves, strict=True)
        ]
        return [int(m - n if m > half else m) for m in plain]
