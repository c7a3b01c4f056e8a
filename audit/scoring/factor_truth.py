"""The clients' true factors, ``NAME.factors.arrow`` beside a recording: user, round, factor.

Attacks never see it. Recordings of other programs have none, and then factors are not scored.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.common.given_files import existing_file
from victims.transcript.columns import ColumnFile, integer_chunks, open_columns, vector_chunks
from victims.transcript.kinds import INT32_MAX
from victims.transcript.schema import FACTORS

TRUTH_END, FACTORS_END = ".truth.arrow", ".factors.arrow"


@dataclass(frozen=True)
class FactorTruth:
    """Factors of clients in some rounds."""

    user: Int[np.ndarray, " rows"]
    round: Int[np.ndarray, " rows"]
    value: Float[np.ndarray, "rows K"]

    def __repr__(self) -> str:
        """One line: of how many clients and rounds."""
        return f"FactorTruth(users={np.unique(self.user).size}, rounds={np.unique(self.round).size})"

    def of(
        self, users: Int[np.ndarray, " users"], round_: Int[np.ndarray, " users"]
    ) -> Float[np.ndarray, "users K"]:
        """The factor of each client in a round of its own; NaN where the file has none."""
        there = (self.user.astype(np.int64) << 32) | self.round
        wanted = (users.astype(np.int64) << 32) | round_
        position = np.minimum(np.searchsorted(there, wanted), there.size - 1)
        return np.where((there[position] == wanted)[:, None], self.value[position], np.nan)

    def everybody(self, round_: int) -> Float[np.ndarray, "users K"]:
        """The factors of all clients that have one in a round."""
        return self.value[self.round == round_]


def factors_beside(truth: Path) -> Path | None:
    """The file of factors that belongs to a truth file, if it is there."""
    if not truth.name.endswith(TRUTH_END):
        return None
    path = truth.with_name(truth.name.removesuffix(TRUTH_END) + FACTORS_END)
    return path if path.exists() else None


def read_factors(path: Path) -> FactorTruth:
    """Read ``NAME.factors.arrow``."""
    file = open_columns(existing_file(path), FACTORS)
    columns = [integer_chunks(file, name, 0, INT32_MAX - 1, ">= 0") for name in ("user", "round")]
    vectors = vector_chunks(file, "factor", _width(file))
    if not vectors or not sum(len(chunk) for chunk in vectors):
        raise InputError(f"{path} must hold at least one row")
    user, round_ = (np.concatenate(chunks) for chunks in columns)
    value = np.concatenate(vectors).astype(np.float64, copy=False)
    order = np.lexsort((round_, user))
    same = (np.diff(user[order]) == 0) & (np.diff(round_[order]) == 0)
    if same.any():
        row = int(order[1:][same].min())
        raise InputError(f"{path} row {row}: each user and round must occur once")
    return FactorTruth(user[order], round_[order], value[order])


def _width(file: ColumnFile) -> int:
    """K, as the first batch has it."""
    first = file.columns("factor")[0].type if file.batches else None
    return int(getattr(first, "list_size", 1))
