"""The stand-in of the cryptosystem: the same views and numbers at almost no cost; see ``paillier``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from defenses.encryption.fixed_point import Rules
from victims.common.errors import InputError
from victims.protocols.base import Total

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
