"""Real numbers as integers with one fixed exponent, many of them in one plaintext.

A number x is the integer round(x 2^f). Lanes of 64 bits are put side by side, P = sum_l v_l 2^(64 l), with
signed v_l, so that P may be negative; the cipher keeps it modulo n, as papers 000 and 001 do for single
numbers. Sums of packed integers are the packed sums as long as every |sum of v_l| < 2^63; the bound is
checked where numbers are encoded, for as many summands as may come together. One exponent for all:
an encoding that chooses it by the number (as phe does by default) publishes magnitudes, and zero from
non-zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.common.validation import at_least, between, require_fields

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
