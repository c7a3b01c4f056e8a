"""Additively homomorphic encryption of uploads: the server adds rows that it cannot read.

Papers 000 (section 5) and 001 (section 5): one client makes a pair of keys, everybody gets the public key,
clients alone the secret one. Rows are encoded with one fixed exponent and packed, many numbers to a
ciphertext (``defenses.encryption.fixed_point``), under Paillier's cryptosystem
(``defenses.encryption.array_cipher``). Where the server needs the sums in the clear (FedMVMF), decrypting
clients share that work and send them back; where it only adds (FedMF), it holds the item factors encrypted
and every client decrypts them.

``ideal`` replaces the cryptosystem by a stand-in with the same views and the same numbers, bit for bit, at
almost no cost: integers are added in the clear inside the simulation, and recorded rows are masked with
the output of a hash. It is for measuring leakage; it is no encryption to deploy.

What this does not hide: which rows a client sends; the sums, once they are decrypted, so an item with one
contributor shows that client's gradient, and with a few of them more follows (attack ``aggregate``); the sums
from whoever receives the item factors, which are a function of them, in FedMF in every round, in FedMVMF in
the first; anything at all, if the server holds the key, which any one client or decrypter can give it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz
from jaxtyping import Bool, Float, Int
from phe import paillier

from defenses.encryption.array_cipher import KEY_BITS, SecretKey, generate_keys
from defenses.encryption.fixed_point import LANE_BITS, FixedPoint
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Cipher, Rows, Total, Unchanged
from victims.transcript.manifest import Manifest
from victims.transcript.reader import Opener

PIECE = 4096  # rows encrypted together
COUNTER_BYTES = 8


@dataclass(frozen=True)
class Paillier(Unchanged):
    """The clients' encryption.

    Attributes
    ----------
    key_bits : int
        1024 (the papers), 2048 or 3072. Below 2048 a warning is given.
    fraction_bits : int
        Numbers are rounded to multiples of 2^-fraction_bits, 0 to 52.
    packed : bool
        Many numbers in one plaintext, or one each as published.
    ideal : bool
        Use the stand-in.
    decrypters : int
        Clients who share the decryption of sums, >= 1.
    min_contributors : int
        Sums of fewer clients are not decrypted, >= 1.
    publish_exponents : bool
        Send beside each row the largest binary exponent of its numbers, as encodings do that choose the
        exponent by the number (phe's default). Unsafe: it tells zero from non-zero, and magnitudes.
    """

    key_bits: int = 2048
    fraction_bits: int = 40
    packed: bool = True
    ideal: bool = False
    decrypters: int = 1
    min_contributors: int = 1
    publish_exponents: bool = False
    name: str = "paillier"

    def __post_init__(self) -> None:
        require_fields(
            self,
            "paillier",
            key_bits=one_of(*KEY_BITS),
            fraction_bits=between(0, 52),
            decrypters=at_least(1),
            min_contributors=at_least(1),
        )

    def encoding(self, factors: int, n_users: int) -> FixedPoint:
        """The encoding of rows of ``factors`` numbers, for sums over all clients and one row more."""
        lanes = min(factors, (self.key_bits - 2) // LANE_BITS) if self.packed else 1
        return FixedPoint(lanes, self.fraction_bits, n_users + 1)

    @property
    def attackers(self) -> tuple[Attacker, ...]:
        """Decrypted sums taken apart, and the lists."""
        return (Attacker("aggregate", 2), Attacker("rated-set", 2))

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The numbers that the ciphertexts stand for."""
        point = FixedPoint(1, self.fraction_bits)
        return replace(rows, gradient=point.restored(point.quantised(rows.gradient)))

    def cipher(self, n_users: int, factors: int, seed: int) -> Cipher:
        """A new key, and the clients who decrypt.

        Raises
        ------
        InputError
            If there are more decrypters than clients.
        """
        if self.decrypters > n_users:
            raise InputError(f"paillier decrypters must be at most {n_users} clients, got {self.decrypters}")
        rng = generator(seed, Purpose.DECRYPTERS)
        decrypters = np.sort(rng.choice(n_users, self.decrypters, replace=False))
        rules = Rules(
            self.encoding(factors, n_users),
            factors,
            decrypters,
            self.min_contributors,
            self.publish_exponents,
        )
        if self.ideal:
            return IdealCipher(rules, secrets.token_bytes(32))
        return PaillierCipher(rules, generate_keys(self.key_bits))

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        told = {
            "key_bits": self.key_bits,
            "fraction_bits": self.fraction_bits,
            "packed": self.packed,
            "ideal": self.ideal,
            "decrypters": self.decrypters,
            "min_contributors": self.min_contributors,
        }
        return {"name": self.name, **told}


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


@dataclass(frozen=True)
class PaillierCipher:
    """The cryptosystem, as clients use it: they hold the secret key, which also encrypts faster."""

    rules: Rules
    secret: SecretKey

    def encrypted(self, values: Float[np.ndarray, "rows factors"]) -> list[mpz]:
        """Ciphertexts of all rows, those of a row together."""
        return self.secret.encrypt(self.rules.point.pack(self.rules.point.quantised(values)))

    def seal(self, values: Float[np.ndarray, "rows factors"]) -> list[bytes]:
        """One ciphertext per row: those of its parts, joined."""
        public, parts = self.secret.public, self.rules.point.plaintexts(self.rules.factors)
        out = []
        for start in range(0, values.shape[0], PIECE):
            sealed = [public.to_bytes(one) for one in self.encrypted(values[start : start + PIECE])]
            out += [b"".join(sealed[at : at + parts]) for at in range(0, len(sealed), parts)]
        return out

    def opened(self, sealed: Sequence[bytes]) -> Float[np.ndarray, "rows factors"]:
        """The rows again.

        Raises
        ------
        InputError
            If a ciphertext has the wrong length, is out of range, or decrypts to what no row can be.
        """
        public = self.secret.public
        size, parts = public.ciphertext_bytes, self.rules.point.plaintexts(self.rules.factors)
        if not sealed:
            return np.zeros((0, self.rules.factors))
        for number, row in enumerate(sealed):
            if len(row) != size * parts:
                raise InputError(
                    f"ciphertext {number} must have {size * parts} bytes, {parts} of {size}, got {len(row)}; "
                    "it is truncated, or of another key or encoding"
                )
        pieces = [row[at : at + size] for row in sealed for at in range(0, size * parts, size)]
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
        parts = self.cipher.rules.point.plaintexts(self.cipher.rules.factors)
        square = self.cipher.secret.public.square
        place = (np.repeat(group, parts) * parts + np.tile(np.arange(parts), group.size)).tolist()
        for at, ciphertext in zip(place, ciphertexts, strict=True):
            self.products[at] = self.products[at] * ciphertext % square

    def opened(self, wanted: Bool[np.ndarray, " groups"]) -> Float[np.ndarray, "groups factors"]:
        """The decrypters' work: the wanted sums, zeros elsewhere."""
        point, factors = self.cipher.rules.point, self.cipher.rules.factors
        parts = point.plaintexts(factors)
        out = np.zeros((wanted.size, factors))
        chosen = np.flatnonzero(np.repeat(wanted, parts))
        if chosen.size:
            plain = self.cipher.secret.decrypt([self.products[at] for at in chosen.tolist()])
            out[wanted] = point.restored(point.unpack(plain, factors))
        return out


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
        names = [int(number).to_bytes(COUNTER_BYTES, "little") for number in counters]
        masked = self.rules.point.quantised(values) ^ self._masks(names)
        return [name + row.tobytes() for name, row in zip(names, masked, strict=True)]

    def opened(self, sealed: Sequence[bytes]) -> Float[np.ndarray, "rows factors"]:
        """The rows again.

        Raises
        ------
        InputError
            If one has the wrong length.
        """
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
        np.add.at(self.sums, group, self.cipher.rules.point.quantised(values))

    def opened(self, wanted: Bool[np.ndarray, " groups"]) -> Float[np.ndarray, "groups factors"]:
        """The wanted sums, zeros elsewhere."""
        return np.where(wanted[:, None], self.cipher.rules.point.restored(self.sums), 0.0)


def opener(manifest: Manifest, key: Mapping[str, str]) -> Opener:
    """What turns the ciphertexts of a recording into rows, given the content of its key file.

    Raises
    ------
    InputError
        If the recording is not encrypted by this defense, or the key is damaged or another one's.
    """
    entry = next((each for each in manifest.defenses if each.get("name") == "paillier"), None)
    if entry is None:
        raise InputError("the key is for recordings under the defense paillier, which this one does not name")
    names = ("key_bits", "fraction_bits", "packed", "ideal")
    try:
        defense = Paillier(**{name: entry[name] for name in names if name in entry})
    except TypeError:
        raise InputError("the manifest's entry for paillier must hold numbers and true or false") from None
    point = defense.encoding(manifest.factors, manifest.n_users)
    rules = Rules(point, manifest.factors, np.zeros(0, np.int64), 1, False)
    wanted = "ideal" if defense.ideal else "paillier"
    if key.get("scheme") != wanted:
        raise InputError(f"the key must have the scheme {wanted!r}, got {str(key.get('scheme'))[:80]!r}")
    if defense.ideal:
        return IdealCipher(rules, _mask(key)).opened
    return PaillierCipher(rules, _secret(key, defense.key_bits, entry)).opened


def _mask(key: Mapping[str, str]) -> bytes:
    try:
        mask = bytes.fromhex(key["mask"])
    except (KeyError, TypeError, ValueError):
        mask = b""
    if len(mask) != 32:
        raise InputError("the key's mask must be 64 hexadecimal digits")
    return mask


def _secret(key: Mapping[str, str], key_bits: int, entry: Mapping[str, Any]) -> SecretKey:
    try:
        p, q = (int(key[name][: key_bits // 4], 16) for name in ("p", "q"))
    except (KeyError, TypeError, ValueError):
        raise InputError("the key's p and q must be hexadecimal numbers") from None
    if min(p, q) < 3 or p == q or (p * q).bit_length() != key_bits:
        raise InputError(f"the key's p and q must be primes with a product of {key_bits} bits")
    if not (gmpy2.is_prime(p) and gmpy2.is_prime(q)):
        raise InputError("the key's p and q must be primes, the file is damaged")
    if entry.get("modulus", f"{p * q:x}") != f"{p * q:x}":
        raise InputError("the key is not the one of this recording: its modulus is another")
    return SecretKey(paillier.PaillierPrivateKey(paillier.PaillierPublicKey(p * q), p, q))
