"""An additively homomorphic cipher as a recording uses it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int


@runtime_checkable
class Total(Protocol):
    """Sums of uploaded rows over clients, formed piece by piece as the server forms them."""

    def add(self, group: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows factors"]) -> None:
        """Add each row to the sum of its group."""
        ...

    def opened(self, wanted: Bool[np.ndarray, " groups"]) -> Float[np.ndarray, "groups factors"]:
        """The wanted sums in the clear, zeros elsewhere."""
        ...


@runtime_checkable
class Agreed(Protocol):
    """What clients agree on before they encrypt.

    ``min_contributors``: sums of fewer clients are not decrypted; ``decrypters``: clients who decrypt them,
    row j being the work of number j modulo their number.
    """

    @property
    def min_contributors(self) -> int:
        """Fewest clients whose sum is decrypted."""
        ...

    @property
    def decrypters(self) -> Int[np.ndarray, " decrypters"]:
        """Client numbers."""
        ...

    def rounded(self, values: Float[np.ndarray, "rows factors"]) -> Float[np.ndarray, "rows factors"]:
        """The numbers as the encoding represents them."""
        ...

    def exponents(self, values: Float[np.ndarray, "rows factors"]) -> Int[np.ndarray, " rows"] | None:
        """What an unsafe encoding publishes beside each row."""
        ...


@runtime_checkable
class Cipher(Protocol):
    """An additively homomorphic cipher and its key, for one recording."""

    @property
    def rules(self) -> Agreed:
        """What clients agree on."""
        ...

    def seal(self, values: Float[np.ndarray, "rows factors"]) -> list[bytes]:
        """One ciphertext per row."""
        ...

    def total(self, groups: int, factors: int) -> Total:
        """Sums under encryption, all zero."""
        ...

    def key(self) -> dict[str, str]:
        """What opens the ciphertexts, or nothing; it goes beside the recording, never into it."""
        ...

    def public(self) -> dict[str, str]:
        """What everybody knows of the key; it goes into the manifest."""
        ...
