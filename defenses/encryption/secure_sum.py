"""A secure sum over a neighbourhood: a client sees the sum over its neighbours of an item, and no row.

What Paillier does for a server, neighbours do by masks that they agree on in pairs and that cancel in the
sum of each receiver (K. Bonawitz et al., CCS 2017, doi:10.1145/3133956.3133982). No party holds a key. The
masks are drawn by the stand-in of the cryptosystem, from a seed that nobody keeps: views and numbers are
those of the real protocol but for its messages to agree on masks.

What this does not hide: which items a client sends rows of; the sum itself, and with ``min_contributors=1``
the row of a client who is alone in it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from defenses.encryption.fixed_point import FixedPoint, Rules
from defenses.encryption.ideal_cipher import IdealCipher
from victims.common.validation import at_least, between, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Cipher, Defense, Rows


@dataclass(frozen=True)
class NobodysKey(IdealCipher):
    """The stand-in under masks that cancel in sums: nothing opens a single row."""

    def key(self) -> dict[str, str]:
        """There is none."""
        return {}


@dataclass(frozen=True)
class SecureSum(Defense):
    """Sums over neighbours.

    Attributes
    ----------
    fraction_bits : int
        Numbers are rounded to multiples of 2^-fraction_bits, 0 to 52.
    min_contributors : int
        A sum of fewer rows is not opened, >= 1; receivers agree on it with their neighbours.

    References
    ----------
    K. Bonawitz et al., CCS 2017, doi:10.1145/3133956.3133982.
    """

    fraction_bits: int = 40
    min_contributors: int = 1
    name: str = "secure-sum"
    attackers = (Attacker("rated-set", 2),)  # The lists of items are in the open

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
        return NobodysKey(rules, secrets.token_bytes(32))

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        bits, fewest = self.fraction_bits, self.min_contributors
        return {"name": self.name, "fraction_bits": bits, "min_contributors": fewest}
