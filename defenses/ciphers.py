"""Rows as integers, Paillier's cryptosystem on whole arrays of them, and a stand-in with the same views.

A number x is the integer round(x 2^f). Lanes of 64 bits are put side by side, P = sum_l v_l 2^(64 l), with
signed v_l, so that P may be negative; the cipher keeps it modulo n, as Mai & Pang 2022 and Chai et al. 2021
do for single numbers. Sums of packed integers are the packed sums as long as every |sum of v_l| < 2^63; the
bound is checked where numbers are encoded, for as many summands as may come together. One exponent for all:
an encoding that chooses it by the number (as phe does by default) publishes magnitudes, and zero from
non-zero.

The keys are phe's, the arithmetic is batched over gmpy2. P. Paillier, EUROCRYPT 1999,
doi:10.1007/3-540-48910-X_16, with g = n + 1: a plaintext m is (1 + n m) r^n mod n^2. Who holds the secret key
(in Mai & Pang 2022 and Chai et al. 2021 every client does) draws r^n modulo p^2 and q^2 and joins the two:
modulo p^2 the n-th powers are the p-th powers s^p of s in 1..p-1, each once, so the law is the same and the
exponent and the modulus have half the length each. Additions multiply modulo n^2. Batches release the
interpreter's lock, so threads use all cores.

Textbook Paillier is malleable and not authenticated: a ciphertext that was altered decrypts to another
number. What can be checked is checked: range, a common factor with n, and that the plaintext fits its lanes.
"""

from __future__ import annotations

import hashlib
import secrets
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import gmpy2
import joblib
import numpy as np
import scipy.sparse as sp
from gmpy2 import mpz
from jaxtyping import Bool, Float, Int
from phe import paillier

from victims.common.errors import InputError
from victims.common.validation import at_least, between, one_of, require, require_fields
from victims.protocols.base import Total

KEY_BITS = (1024, 2048, 3072)
WEAK = 2048  # shorter keys are for comparison with the papers


def generate_keys(key_bits: int = 2048) -> SecretKey:
    """Generate a new pair of keys."""
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


LANE_BITS = 64
LANE_BYTES = LANE_BITS // 8


@dataclass(frozen=True)
class FixedPoint:
    """An encoding."""

    lanes: int  # numbers in one plaintext, >= 1
    fraction_bits: int = 40  # f, the number x is round(x 2^f); an error of at most 2^-(f+1) per number
    summands: int = 1  # most plaintexts that are ever added up

    def __post_init__(self) -> None:
        require_fields(
            self,
            "fixed point",
            lanes=at_least(1),
            fraction_bits=between(0, 52),
            summands=between(1, (1 << 40) - 1),
        )

    @property
    def largest(self) -> float:
        """Largest |x| whose sum over ``summands`` plaintexts still fits into a lane.

        >>> round(FixedPoint(lanes=15, fraction_bits=40, summands=1000).largest, 3)
        8388.608
        """
        return ((1 << (LANE_BITS - 1)) - 1) // self.summands / 2.0**self.fraction_bits

    def quantised(self, values: Float[np.ndarray, " *n"]) -> Int[np.ndarray, " *n"]:
        """round(x 2^f) as int64."""
        values = np.asarray(values, np.float64)
        if not np.isfinite(values).all():
            raise InputError("numbers to encrypt must be finite, got NaN or infinity")
        bound = ((1 << (LANE_BITS - 1)) - 1) // self.summands
        with np.errstate(over="ignore"):
            scaled = np.rint(values * 2.0**self.fraction_bits)
        worst = float(np.abs(scaled).max(initial=0.0))
        if worst >= bound or worst >= 2.0**63:
            raise InputError(
                f"numbers to encrypt must be below {self.largest:.6g} in size, so that sums over "
                f"{self.summands} plaintexts fit into {LANE_BITS} bits, got {np.abs(values).max():.6g}; "
                f"clip the uploads or take fewer fraction_bits than {self.fraction_bits}"
            )
        return scaled.astype(np.int64)

    def restored(self, integers: Int[np.ndarray, " *n"]) -> Float[np.ndarray, " *n"]:
        """The numbers that integers, or sums of them, stand for."""
        return integers / 2.0**self.fraction_bits

    def plaintexts(self, width: int) -> int:
        """Number of plaintexts for a row of ``width`` numbers."""
        return -(-width // self.lanes)

    def pack(self, integers: Int[np.ndarray, "rows width"]) -> list[int]:
        """Plaintexts of each row, those of a row together; possibly negative."""
        rows, width = integers.shape
        n_plaintexts = self.plaintexts(width)
        lanes = np.zeros((rows, n_plaintexts * self.lanes), np.int64)
        lanes[:, :width] = integers
        lanes = lanes.reshape(rows * n_plaintexts, self.lanes)
        # sum of v_l B^l = (sum of (v_l mod B) B^l) - (sum over negative v_l of B^(l+1))
        digits = np.ascontiguousarray(lanes.view(np.uint64), "<u8").tobytes()
        borrow = (lanes < 0).astype("<u8").tobytes()
        size = self.lanes * LANE_BYTES
        starts = range(0, rows * n_plaintexts * size, size)
        return [
            int.from_bytes(digits[at : at + size], "little")
            - (int.from_bytes(borrow[at : at + size], "little") << LANE_BITS)
            for at in starts
        ]

    def unpack(self, plaintexts: list[int], width: int) -> Int[np.ndarray, "rows width"]:
        """Integers of each row again."""
        n_plaintexts = self.plaintexts(width)
        size = (self.lanes + 1) * LANE_BYTES
        try:
            joined = b"".join(int(plain).to_bytes(size, "little", signed=True) for plain in plaintexts)
        except OverflowError:
            raise InputError(
                f"decrypted plaintexts must fit into {self.lanes} lanes of {LANE_BITS} bits; "
                "the ciphertext was altered, or has another key or encoding"
            ) from None
        digits = np.frombuffer(joined, "<u8").reshape(-1, self.lanes + 1)
        out = np.empty((digits.shape[0], self.lanes), np.int64)
        carry = np.zeros(digits.shape[0], np.uint64)
        for lane in range(self.lanes):
            digit = digits[:, lane] + carry  # wraps to 0 where the carry fills it
            wrapped = (digit == 0) & (carry == 1)
            out[:, lane] = digit.view(np.int64)
            carry = (wrapped | (out[:, lane] < 0)).astype(np.uint64)
        if np.any(digits[:, -1] + carry):
            raise InputError(
                f"decrypted plaintexts must fit into {self.lanes} lanes of {LANE_BITS} bits; "
                "the ciphertext was altered, or has another key or encoding"
            )
        return out.reshape(-1, n_plaintexts * self.lanes)[:, :width]


@dataclass(frozen=True)
class Rules:
    """What clients agree on before they encrypt; see ``Paillier``."""

    point: FixedPoint
    factors: int
    decrypters: Int[np.ndarray, " decrypters"]
    min_contributors: int
    publish_exponents: bool

    def rounded(self, values: Float[np.ndarray, "rows factors"]) -> Float[np.ndarray, "rows factors"]:
        """The numbers as the encoding represents them."""
        return self.point.restored(self.point.quantised(values))

    def exponents(self, values: Float[np.ndarray, "rows factors"]) -> Int[np.ndarray, " rows"] | None:
        """What is published beside the ciphertexts: the largest binary exponent of each row, 0 for zeros."""
        if not self.publish_exponents:
            return None
        return np.frexp(np.abs(values).max(axis=1))[1].astype(np.int32)


COUNTER_BYTES = 8


@dataclass(frozen=True)
class IdealCipher:
    """The stand-in: rows masked with a hash of the key and a counter; see the module."""

    rules: Rules
    mask: bytes
    used: list[int] = field(default_factory=lambda: [0], repr=False)

    def seal(self, values: Float[np.ndarray, "rows factors"]) -> list[bytes]:
        """A counter and the masked integers of each row."""
        counters = np.arange(self.used[0], self.used[0] + values.shape[0])
        self.used[0] += values.shape[0]
        names = [int(counter).to_bytes(COUNTER_BYTES, "little") for counter in counters]
        masked = self.rules.point.quantised(values) ^ self._masks(names)
        return [name + row.tobytes() for name, row in zip(names, masked, strict=True)]

    def opened(self, sealed: Sequence[bytes]) -> Float[np.ndarray, "rows factors"]:
        """The rows again."""
        size = COUNTER_BYTES + 8 * self.rules.factors
        for number, row in enumerate(sealed):
            if len(row) != size:
                raise InputError(f"ciphertext {number} must have {size} bytes, got {len(row)}")
        if not sealed:
            return np.zeros((0, self.rules.factors))
        rows = np.frombuffer(b"".join(row[COUNTER_BYTES:] for row in sealed), "<i8")
        masks = self._masks([row[:COUNTER_BYTES] for row in sealed])
        return self.rules.point.restored(rows.reshape(-1, self.rules.factors) ^ masks)

    def _masks(self, names: Sequence[bytes]) -> Int[np.ndarray, "rows factors"]:
        streams = (hashlib.shake_256(self.mask + name).digest(8 * self.rules.factors) for name in names)
        return np.frombuffer(b"".join(streams), "<i8").reshape(-1, self.rules.factors)

    def total(self, groups: int, factors: int) -> Total:
        """Sums of integers, all zero."""
        return IdealTotal(self, np.zeros((groups, factors), np.int64))

    def key(self) -> dict[str, str]:
        """The mask's seed."""
        return {"scheme": "ideal", "mask": self.mask.hex()}

    def public(self) -> dict[str, str]:
        """Nothing."""
        return {}


@dataclass(frozen=True)
class IdealTotal:
    """Sums of the encoded integers."""

    cipher: IdealCipher
    sums: Int[np.ndarray, "groups factors"]

    def add(self, group: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows factors"]) -> None:
        """Add each row to the sum of its group."""
        ones, starts = np.ones(group.size, np.int64), np.arange(group.size + 1)
        member = sp.csr_array((ones, group, starts), shape=(group.size, self.sums.shape[0]))
        self.sums[:] += member.T @ self.cipher.rules.point.quantised(values)

    def opened(self, wanted: Bool[np.ndarray, " groups"]) -> Float[np.ndarray, "groups factors"]:
        """The wanted sums, zeros elsewhere."""
        return np.where(wanted[:, None], self.cipher.rules.point.restored(self.sums), 0.0)


PIECE = 4096  # rows encrypted together


@dataclass(frozen=True)
class PaillierCipher:
    """The cryptosystem, as clients use it: they hold the secret key, which also encrypts faster."""

    rules: Rules
    secret: SecretKey

    def encrypted(self, values: Float[np.ndarray, "rows factors"]) -> list[mpz]:
        """Ciphertexts of all rows, those of a row together."""
        return self.secret.encrypt(self.rules.point.pack(self.rules.point.quantised(values)))

    def seal(self, values: Float[np.ndarray, "rows factors"]) -> list[bytes]:
        """One ciphertext per row: those of its plaintexts, joined."""
        public, n_plaintexts = self.secret.public, self.rules.point.plaintexts(self.rules.factors)
        out = []
        for start in range(0, values.shape[0], PIECE):
            sealed = [public.to_bytes(one) for one in self.encrypted(values[start : start + PIECE])]
            out += [b"".join(sealed[at : at + n_plaintexts]) for at in range(0, len(sealed), n_plaintexts)]
        return out

    def opened(self, sealed: Sequence[bytes]) -> Float[np.ndarray, "rows factors"]:
        """The rows again."""
        public = self.secret.public
        size, n_plaintexts = public.ciphertext_bytes, self.rules.point.plaintexts(self.rules.factors)
        if not sealed:
            return np.zeros((0, self.rules.factors))
        for number, row in enumerate(sealed):
            if len(row) != size * n_plaintexts:
                raise InputError(
                    f"ciphertext {number} must have {size * n_plaintexts} bytes, {n_plaintexts} of {size}, "
                    f"got {len(row)}; "
                    "it is truncated, or of another key or encoding"
                )
        pieces = [row[at : at + size] for row in sealed for at in range(0, size * n_plaintexts, size)]
        plain = self.secret.decrypt([public.from_bytes(piece) for piece in pieces])
        return self.rules.point.restored(self.rules.point.unpack(plain, self.rules.factors))

    def total(self, groups: int, factors: int) -> Total:
        """Sums under encryption, all zero."""
        return EncryptedTotal(self, [mpz(1)] * (groups * self.rules.point.plaintexts(factors)))

    def key(self) -> dict[str, str]:
        """The primes."""
        return {"scheme": "paillier", "p": f"{self.secret.phe.p:x}", "q": f"{self.secret.phe.q:x}"}

    def public(self) -> dict[str, str]:
        """The modulus."""
        return {"modulus": f"{self.secret.public.phe.n:x}"}


@dataclass(frozen=True)
class EncryptedTotal:
    """What the server holds while rows arrive: one product of ciphertexts per group and part."""

    cipher: PaillierCipher
    products: list[mpz] = field(repr=False)

    def add(self, group: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows factors"]) -> None:
        """Encrypt the rows, as their senders do, and multiply them in, as the server does."""
        for start in range(0, values.shape[0], PIECE):
            piece = slice(start, start + PIECE)
            self.multiply(group[piece], self.cipher.encrypted(values[piece]))

    def multiply(self, group: Int[np.ndarray, " rows"], ciphertexts: Sequence[mpz]) -> None:
        """The server's addition, without any key."""
        n_plaintexts = self.cipher.rules.point.plaintexts(self.cipher.rules.factors)
        square = self.cipher.secret.public.square
        slots = (
            np.repeat(group, n_plaintexts) * n_plaintexts + np.tile(np.arange(n_plaintexts), group.size)
        ).tolist()
        for at, ciphertext in zip(slots, ciphertexts, strict=True):
            self.products[at] = self.products[at] * ciphertext % square

    def opened(self, wanted: Bool[np.ndarray, " groups"]) -> Float[np.ndarray, "groups factors"]:
        """The decrypters' work: the wanted sums, zeros elsewhere."""
        point, factors = self.cipher.rules.point, self.cipher.rules.factors
        n_plaintexts = point.plaintexts(factors)
        out = np.zeros((wanted.size, factors))
        chosen = np.flatnonzero(np.repeat(wanted, n_plaintexts))
        if chosen.size:
            plain = self.cipher.secret.decrypt([self.products[at] for at in chosen.tolist()])
            out[wanted] = point.restored(point.unpack(plain, factors))
        return out
