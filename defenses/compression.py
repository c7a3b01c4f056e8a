"""What programs cut off uploads, on the clients: their norm, small numbers, bits, digits.

``clip`` shortens an upload, or each of its rows, to an L2 norm, as federated averaging does before noise
(McMahan et al. 2018, arXiv:1710.06963); ``top-k`` keeps the largest numbers or rows (Aji, Heafield 2017,
doi:10.18653/v1/D17-1045); ``quantise`` sends signed integers of a few bits and one scale for each client
(QSGD, Alistarh et al. 2017, arXiv:1610.02132); ``round`` sends a few decimal digits. They save bytes or
prepare for noise; none adds any, so that nothing is proved of them.

What these do not hide: which items a client rated (only ``top-k`` of rows names fewer); the direction of a
row, which clipping leaves as it is; what a few bits of each of many numbers tell together. The attack
``undeclared`` reads such rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from defenses.ranges import usable
from defenses.row_noise import client_noise
from victims.common.seeds import Purpose
from victims.common.validation import flag, one_of, positive_share, require_fields, whole
from victims.data.ratings import Ratings
from victims.protocols.account import Account, Setting
from victims.protocols.base import Attacker, Defense, Rows
from victims.protocols.network import taken

MOST_DIGITS = 15  # that a float64 has
READ = (Attacker("undeclared"),)
FITTED = (*READ, Attacker("likelihood", 2))


class _Compression(Defense):
    """What is common to them: no noise, so no account, and options that everybody knows."""

    def account(self, ratings: Ratings, setting: Setting) -> Account:
        """Nothing is proved."""
        title = f"Privacy account of {self.name}, {setting.text}"
        return Account(title, unproved=f"nothing is proved: {self.name} adds no noise")

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        return {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]


def _clients(rows: Rows) -> Int[np.ndarray, " rows"]:
    """The clients of rows, numbered from 0."""
    return np.unique(rows.sender, return_inverse=True)[1]


def _largest(
    size: Float[np.ndarray, " values"], owner: Int[np.ndarray, " values"], share: float
) -> Bool[np.ndarray, " values"]:
    """Which values are among the largest share of their owner's, one of each at least."""
    order = np.lexsort((-size, owner))
    counts = np.bincount(owner)
    rank = np.arange(size.size) - np.repeat(np.cumsum(counts) - counts, counts)
    keep = np.empty(size.size, bool)
    keep[order] = rank < np.ceil(share * counts)[owner[order]]
    return keep


@dataclass(frozen=True)
class Clip(_Compression):
    """An upper bound of norms.

    Attributes
    ----------
    norm : float
        Largest L2 norm, in the units of the gradients (stars squared): 1e-9 to 1e9.
    of : "client" or "row"
        Whose: of all that a client uploads in a round, or of each of its rows.

    References
    ----------
    H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, ICLR 2018, arXiv:1710.06963.
    """

    norm: float = 1.0
    of: Literal["client", "row"] = "client"
    name: str = "clip"
    attackers = FITTED

    def __post_init__(self) -> None:
        require_fields(self, "clip", norm=usable(), of=one_of("client", "row"))

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The rows as they leave the clients in round ``round_``."""
        norm = np.linalg.norm(rows.gradient, axis=1)
        if self.of == "client":
            owner = _clients(rows)
            norm = np.sqrt(np.bincount(owner, norm**2))[owner]
        return replace(
            rows, gradient=rows.gradient * np.minimum(1, self.norm / np.maximum(norm, 1e-300))[:, None]
        )


@dataclass(frozen=True)
class TopK(_Compression):
    """Sparsified uploads.

    Attributes
    ----------
    share : float
        Share of a client's numbers, or rows, that are kept in a round, in (0, 1]; one is in any case.
    of : "numbers" or "rows"
        Numbers that are left out are sent as 0; rows that are left out are not sent.

    References
    ----------
    A. F. Aji, K. Heafield, EMNLP 2017, doi:10.18653/v1/D17-1045.
    """

    share: float = 0.1
    of: Literal["numbers", "rows"] = "numbers"
    name: str = "top-k"
    attackers = FITTED

    def __post_init__(self) -> None:
        require_fields(self, "top-k", share=positive_share(), of=one_of("numbers", "rows"))

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The rows as they leave the clients in round ``round_``."""
        owner = _clients(rows)
        if self.of == "rows":
            kept = _largest(np.linalg.norm(rows.gradient, axis=1), owner, self.share)
            return taken(rows, np.flatnonzero(kept))
        size = np.abs(rows.gradient)
        keep = _largest(size.ravel(), np.repeat(owner, size.shape[1]), self.share).reshape(size.shape)
        return replace(rows, gradient=np.where(keep, rows.gradient, 0.0))


@dataclass(frozen=True)
class Quantise(_Compression):
    """Numbers of a few bits.

    Attributes
    ----------
    bits : int
        Of each number, its sign among them, 2 to 16: multiples of the client's largest number in this round
        over 2^(bits - 1) - 1.
    stochastic : bool
        Whether numbers are rounded up or down at random, so that their mean stays; else to the nearest.

    References
    ----------
    D. Alistarh et al., NeurIPS 2017, arXiv:1610.02132.
    """

    bits: int = 8
    stochastic: bool = True
    name: str = "quantise"
    attackers = READ

    def __post_init__(self) -> None:
        require_fields(self, "quantise", bits=whole(2, 16), stochastic=flag())

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The rows as they leave the clients in round ``round_``."""
        owner = _clients(rows)
        largest = np.zeros(owner.max(initial=-1) + 1)
        np.maximum.at(largest, owner, np.abs(rows.gradient).max(axis=1, initial=0))
        step = (np.maximum(largest, 1e-300) / (2 ** (self.bits - 1) - 1))[owner][:, None]
        up: Any = 0.5
        if self.stochastic:
            law = np.random.Generator.random
            up = client_noise(rows.sender, rows.gradient.shape[1], seed, Purpose.QUANTISATION, round_, law)
        return replace(rows, gradient=np.floor(rows.gradient / step + up) * step)


@dataclass(frozen=True)
class Round(_Compression):
    """Numbers of a few decimal digits.

    Attributes
    ----------
    digits : int
        How many are kept, 0 to 15 after the point, 1 to 15 of the significand.
    of : "decimals" or "significand"
        Digits after the point, or from the first that is not zero.
    """

    digits: int = 2
    of: Literal["decimals", "significand"] = "decimals"
    name: str = "round"
    attackers = READ

    def __post_init__(self) -> None:
        require_fields(self, "round", of=one_of("decimals", "significand"))
        require_fields(self, "round", digits=whole(int(self.of == "significand"), MOST_DIGITS))

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The rows as they leave the clients in round ``round_``."""
        if self.of == "decimals":
            return replace(rows, gradient=np.round(rows.gradient, self.digits))
        size = np.abs(rows.gradient)
        power = np.floor(np.log10(np.where(size > 0, size, 1)))
        unit = 10.0 ** (power - self.digits + 1)
        return replace(rows, gradient=np.round(rows.gradient / unit) * unit)
