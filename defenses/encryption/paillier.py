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

import secrets
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from defenses.encryption.array_cipher import KEY_BITS, generate_keys
from defenses.encryption.fixed_point import LANE_BITS, FixedPoint, Rules
from defenses.encryption.ideal_cipher import IdealCipher
from defenses.encryption.paillier_cipher import PaillierCipher
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Cipher, Defense, Rows


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
    P. Paillier, EUROCRYPT 1999, doi:10.1007/3-540-48910-X_16; papers 000 (arXiv:2210.07775), section 5,
    and 001 (arXiv:1906.05108), section 5.
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
