"""Additively homomorphic encryption of uploads, and secure sums among neighbours: nobody sees a row.

``paillier``, Mai & Pang 2022 (section 5) and Chai et al. 2021 (section 5): one client makes a pair of keys,
everybody gets the public key, clients alone the secret one. Rows are encoded with one fixed exponent and
packed, many numbers to a ciphertext (``defenses.ciphers``). Where the server needs the sums in the clear
(FedMVMF), decrypting clients share that work and send them back; where it only adds (FedMF), it holds the
item factors encrypted and every client decrypts them. ``ideal`` replaces the cryptosystem by a stand-in with
the same views and the same numbers, bit for bit, at almost no cost: integers are added in the clear inside
the simulation, and recorded rows are masked with the output of a hash. It is for measuring leakage; it is no
encryption to deploy.

What this does not hide: which rows a client sends; the sums, once they are decrypted, so an item with one
contributor shows that client's gradient, and with a few of them more follows (attack ``aggregate``); the sums
from whoever receives the item factors, which are a function of them, in FedMF in every round, in FedMVMF in
the first; anything at all, if the server holds the key, which any one client or decrypter can give it.

``secure-sum``: clients agree in pairs on masks that cancel in sums (K. Bonawitz et al., CCS 2017,
doi:10.1145/3133956.3133982): a server sees the sum over all clients of an item, a client of a graph that over
its neighbours, and neither a row. No party holds a key. The masks are drawn by the stand-in of the
cryptosystem, from a seed beside the recording, for views of those who know rows of their own: views and
numbers are those of the real protocol but for its messages to agree on masks.

What this does not hide: which items a client sends rows of; the sum itself, and the row of a client whose
co-contributors are none or the adversary's (``victims.transcript.sybils``).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import gmpy2
import numpy as np
from phe import paillier

from defenses.ciphers import (
    KEY_BITS,
    LANE_BITS,
    FixedPoint,
    IdealCipher,
    PaillierCipher,
    Rules,
    SecretKey,
    generate_keys,
)
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Cipher, Defense, Rows
from victims.transcript.manifest import Manifest
from victims.transcript.recorded import Opener


@dataclass(frozen=True)
class Paillier(Defense):
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

    References
    ----------
    P. Paillier, EUROCRYPT 1999, doi:10.1007/3-540-48910-X_16; Mai & Pang 2022 (arXiv:2210.07775), section 5,
    and Chai et al. 2021 (arXiv:1906.05108), section 5.
    """

    key_bits: int = 2048
    fraction_bits: int = 40
    packed: bool = True
    ideal: bool = False
    decrypters: int = 1
    min_contributors: int = 1
    publish_exponents: bool = False
    name: str = "paillier"
    attackers = (
        Attacker("aggregate", 2),
        Attacker("rated-set", 2),
    )  # Decrypted sums taken apart, and the lists

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

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The numbers that the ciphertexts stand for."""
        point = FixedPoint(1, self.fraction_bits)
        return replace(rows, gradient=point.restored(point.quantised(rows.gradient)))

    def cipher(self, n_users: int, factors: int, seed: int) -> Cipher:
        """A new key, and the clients who decrypt."""
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
class Masks(IdealCipher):
    """The stand-in under masks that cancel in sums: nothing opens a row of others."""

    def key(self) -> dict[str, str]:
        """The seed of all masks; a client knows its own, and a view opens rows of its own clients alone."""
        return {"scheme": "masks", "mask": self.mask.hex()}


@dataclass(frozen=True)
class SecureSum(Defense):
    """Sums over clients, or over neighbours.

    Attributes
    ----------
    fraction_bits : int
        Numbers are rounded to multiples of 2^-fraction_bits, 0 to 52.
    min_contributors : int
        A sum of fewer rows is not opened, >= 1; receivers agree on it with those who send.

    References
    ----------
    K. Bonawitz et al., CCS 2017, doi:10.1145/3133956.3133982.
    """

    fraction_bits: int = 40
    min_contributors: int = 1
    name: str = "secure-sum"
    attackers = (Attacker("aggregate", 2), Attacker("rated-set", 2))  # sums taken apart, and the lists

    def __post_init__(self) -> None:
        require_fields(self, "secure-sum", fraction_bits=between(0, 52), min_contributors=at_least(1))

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The numbers that the masked integers stand for."""
        point = FixedPoint(1, self.fraction_bits)
        return replace(rows, gradient=point.restored(point.quantised(rows.gradient)))

    def cipher(self, n_users: int, factors: int, seed: int) -> Cipher:
        """New masks."""
        point = FixedPoint(1, self.fraction_bits, n_users + 1)
        rules = Rules(point, factors, np.zeros(0, np.int64), self.min_contributors, False)
        return Masks(rules, secrets.token_bytes(32))

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        bits, fewest = self.fraction_bits, self.min_contributors
        return {"name": self.name, "fraction_bits": bits, "min_contributors": fewest}


def opener(manifest: Manifest, key: Mapping[str, str]) -> Opener:
    """Make the function that turns the ciphertexts of a recording into rows."""
    sealing = ("paillier", "secure-sum")
    entry = next((told for told in manifest.defenses if told.get("name") in sealing), None)
    if entry is None:
        raise InputError(
            "the key is for recordings under the defense paillier or secure-sum, and this one names neither"
        )
    if entry["name"] == "secure-sum":
        return _opener_of_masks(manifest, entry, key)
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
        return IdealCipher(rules, mask_of(key)).opened
    return PaillierCipher(rules, secret_of(key, defense.key_bits, entry)).opened


def _opener_of_masks(manifest: Manifest, entry: Mapping[str, Any], key: Mapping[str, str]) -> Opener:
    """What clients open their own rows with."""
    if key.get("scheme") != "masks":
        raise InputError(f"the key must have the scheme 'masks', got {str(key.get('scheme'))[:80]!r}")
    try:
        bits = SecureSum(entry.get("fraction_bits", SecureSum.fraction_bits)).fraction_bits
    except TypeError:
        raise InputError("the manifest's entry for secure-sum must hold numbers") from None
    rules = Rules(FixedPoint(1, bits), manifest.factors, np.zeros(0, np.int64), 1, False)
    return Masks(rules, mask_of(key)).opened


def mask_of(key: Mapping[str, str]) -> bytes:
    """Read the mask's seed from a key file."""
    try:
        mask = bytes.fromhex(key["mask"])
    except (KeyError, TypeError, ValueError):
        mask = b""
    if len(mask) != 32:
        raise InputError("the key's mask must be 64 hexadecimal digits")
    return mask


def secret_of(key: Mapping[str, str], key_bits: int, entry: Mapping[str, Any]) -> SecretKey:
    """Read the primes from a key file, and check them against each other and the manifest's modulus."""
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
    return SecretKey.of(paillier.PaillierPrivateKey(paillier.PaillierPublicKey(p * q), p, q))
