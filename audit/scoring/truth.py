"""What the clients kept private, as scoring needs it: ratings, attributes, factors. Attacks never see this.

The clients' factors lie beside the truth (``NAME.factors.arrow``: user, round, factor). Recordings of other
programs have none, and then factors are not scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.common.files import existing_file
from victims.common.limits import LARGEST_LEVEL, SMALLEST_LEVEL, refuse_absurd_table
from victims.transcript.adversaries import some_names
from victims.transcript.columns import (
    FACTORS,
    TRUTH,
    finite_chunks,
    integer_chunks,
    kind_chunks,
    open_columns,
    vector_chunks,
)
from victims.transcript.kinds import INT32_MAX, OF_FACTORS
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM

TRUTH_END, FACTORS_END = ".truth.arrow", ".factors.arrow"
DENSE, DENSE_CELLS = (
    16,
    1 << 21,
)  # a table of all items may have so many columns for each answer, or cells more


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


@dataclass(frozen=True)
class Truth:
    """Ratings and attributes of the clients in a truth file.

    Attributes
    ----------
    users : (n_users,) ascending client numbers
    ratings : (n_users, n_item_columns) CSR, absent means unrated
        Columns up to the largest rated item.
    attributes : (n_users, n_attribute_columns)
        0 where the file has no row.
    factors : FactorTruth or None
        None where no file of factors is beside it.
    """

    users: Int[np.ndarray, " users"]
    ratings: sp.csr_array
    attributes: Float[np.ndarray, "users attributes"]
    factors: FactorTruth | None = None

    def __repr__(self) -> str:
        """One line: of how many clients."""
        shape = f"users={self.users.size}, attributes={self.attributes.shape[1]}"
        return f"Truth({shape}, ratings={self.ratings.nnz})"

    def of(self, users: Int[np.ndarray, " some"]) -> Truth:
        """What is true of some clients alone."""
        kept = np.isin(self.users, users)
        return replace(
            self, users=self.users[kept], ratings=self.ratings[kept], attributes=self.attributes[kept]
        )

    def refuse_unless_about(self, manifest: Manifest) -> None:
        """Refuse a recording that is not this truth's own, before a table is as wide as claimed."""
        about = "give the truth file that was recorded with this transcript"
        widths = (
            ("user", "n_users", int(self.users[-1]) + 1),
            ("item index", "n_items", self.ratings.shape[1]),
            ("attribute index", "n_attributes", self.attributes.shape[1] if manifest.n_attributes else 0),
        )
        for what, size, width in widths:
            if width > getattr(manifest, size):
                raise InputError(
                    f"the truth: {what} must be below {size} = {getattr(manifest, size)} (manifest), "
                    f"got {width - 1}; {about}"
                )
        if manifest.n_attributes > self.attributes.shape[1]:
            rows = self.ratings.nnz + self.users.size
            refuse_absurd_table("the truth", self.users.size, manifest.n_attributes, rows)

    def refuse_unless_of(self, users: np.ndarray, names: Mapping[int, str] | None = None) -> None:
        """Refuse a truth that lacks clients whom an attack may answer about."""
        known = np.isin(users, self.users)
        if known.all():
            return
        there, missing = (some_names(each, names or {}) for each in (self.users, users[~known]))
        which = f"of {(~known).sum():,} of the {users.size:,} clients that upload ({missing})"
        raise InputError(
            f"the truth has nothing {which}; it is about {there}; give the truth that was recorded with this "
            "transcript, each client under one name in upload and truth (RecordedGrid: client=)"
        )

    def rows(self, users: np.ndarray) -> np.ndarray:
        """Find the row of each client."""
        self.refuse_unless_of(users)
        return np.searchsorted(self.users, users)

    def ratings_at(
        self, row: Int[np.ndarray, " users"], index: Int[np.ndarray, "a rows"], shape: tuple[int, ...]
    ) -> Float[np.ndarray, "users rows"]:
        """Look up the rating of each (client, item), 0 where there is none."""
        n_columns = self.ratings.shape[1]
        index = np.minimum(index, n_columns)  # beyond the last rated item: the empty last column
        if index.shape[0] == 1 and n_columns <= DENSE * index.size + DENSE_CELLS // row.size:
            dense = np.zeros((row.size, n_columns + 1))
            dense[:, :n_columns] = self.ratings[row].toarray()
            return dense[:, index[0]]
        if not self.ratings.nnz:
            return np.zeros(shape)
        owner = np.repeat(np.arange(self.users.size), np.diff(self.ratings.indptr))
        key = owner * (n_columns + 1) + self.ratings.indices.astype(np.int64)
        wanted = row[:, None] * (n_columns + 1) + index
        place = np.minimum(np.searchsorted(key, wanted), key.size - 1)
        return np.where(key[place] == wanted, self.ratings.data[place], 0.0).reshape(shape)

    def attributes_of(
        self, row: Int[np.ndarray, " users"], n_attributes: int
    ) -> Float[np.ndarray, "users attributes"]:
        """Take the attributes of some rows."""
        table = np.zeros((row.size, n_attributes))
        width = min(n_attributes, self.attributes.shape[1])
        table[:, :width] = self.attributes[row, :width]
        return table


def read_truth(path: Path) -> Truth:
    """Read ``NAME.truth.arrow`` (user, kind, index, value)."""
    file = open_columns(existing_file(path), TRUTH)
    user, index = (
        np.concatenate(integer_chunks(file, name, 0, INT32_MAX - 1, ">= 0") or [np.zeros(0, int)])
        for name in ("user", "index")
    )
    if user.size == 0:
        raise InputError(f"{path} must hold at least one row")
    kind = np.concatenate(kind_chunks(file, OF_FACTORS))
    value = np.concatenate(finite_chunks(file, "value"))
    implausible = (value < SMALLEST_LEVEL) | (value > LARGEST_LEVEL)
    wrong = np.flatnonzero(np.where(kind == ITEM, implausible, (value < 0) | (value > 1)))
    if wrong.size and kind[wrong[0]] == ITEM and value[wrong[0]] > 0:
        raise InputError(
            f"{path} row {wrong[0]}: value must be a rating within {SMALLEST_LEVEL:g}..{LARGEST_LEVEL:g}, "
            f"got {value[wrong[0]]:g}"
        )
    if wrong.size:
        rule = "> 0 (only ratings that exist are listed)" if kind[wrong[0]] == ITEM else "in 0..1"
        raise InputError(f"{path} row {wrong[0]}: value must be {rule}, got {value[wrong[0]]:g}")
    order = np.lexsort((index, kind, user))
    same = (np.diff(user[order]) == 0) & (np.diff(kind[order]) == 0) & (np.diff(index[order]) == 0)
    if same.any():
        row = int(order[1:][same].min())
        raise InputError(f"{path} row {row}: each user, kind and index must occur once")
    users, client = np.unique(user, return_inverse=True)
    item = kind == ITEM
    refuse_absurd_table(path, users.size, int(index[~item].max(initial=-1)) + 1, user.size)
    shape = users.size, int(index[item].max(initial=-1)) + 1
    ratings = sp.csr_array((value[item], (client[item], index[item])), shape=shape)
    ratings.sort_indices()
    attributes = np.zeros((users.size, int(index[~item].max(initial=-1)) + 1))
    attributes[client[~item], index[~item]] = value[~item]
    beside = factors_beside(path)
    return Truth(users, ratings, attributes, None if beside is None else read_factors(beside))


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
    first = file.columns("factor")[0].type if file.batches else None  # K, as the first batch has it
    vectors = vector_chunks(file, "factor", int(getattr(first, "list_size", 1)))
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
