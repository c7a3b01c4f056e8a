"""The cryptosystem as clients use it, and the sums that the server forms under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from gmpy2 import mpz
from jaxtyping import Bool, Float, Int

from defenses.encryption.array_cipher import SecretKey
from defenses.encryption.fixed_point import Rules
from victims.common.errors import InputError
from victims.protocols.base import Total

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
